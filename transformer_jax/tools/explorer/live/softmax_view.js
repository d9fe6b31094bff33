// The view of two softmaxes: the weights of one query of a head, and the probabilities of the next token, each as scores, exponentials and shares. A slider
// changes the temperature of both.

const SOFTMAX_LINE = 22, SOFTMAX_TOP = 58, SOFTMAX_GAP = 74, SOFTMAX_NUMBER = 50;
const nextTokens = new Map(); // question -> { logits, best } or { words }
let heat = 1;

const heatInput = element("input", "", { type: "range", min: 0.1, max: 3, step: 0.1, value: 1, ariaLabel: "temperature of the softmax" });
const heatWords = element("span", "1.0");
heatInput.addEventListener("input", () => {
  heat = Number(heatInput.value);
  heatWords.textContent = heat.toFixed(1);
  heatInput.setAttribute("aria-valuetext", heatWords.textContent);
  panels.forEach(drawPanel);
});
const heatLabel = element("label", ["temperature T ", heatInput, " ", heatWords]);

// exp((score - largest) / T) and its share of the sum; `all` has the scores that the sum is over.
function softmaxRow(scores, temperature, all = scores) {
  const largest = all.reduce((most, score) => Math.max(most, score), -Infinity), exponential = (score) => Math.exp((score - largest) / temperature);
  const sum = all.reduce((total, score) => total + exponential(score), 0), exponentials = Array.from(scores, exponential);
  return { exponentials, shares: exponentials.map((each) => each / sum), sum };
}

// The answer to a question about a row of a reading; drawn again when it comes.
function answerOf(action, answers, fields) {
  const key = JSON.stringify(fields);
  if (!answers.has(key)) {
    answers.set(key, { words: "computing …" });
    request(action, fields).then((found) => found || { words: "this layer is off, or this position has no score" }, (error) => ({ words: error.message })).then((found) => { answers.set(key, found); render(); });
  }
  return answers.get(key);
}

const softmaxView = {
  name: "softmax", key: "S", hasNoScale: true, showsHead: true, lights: ["output"],
  needs: "of the live text", isThere: () => state.text === LIVE_TEXT,
  // Both blocks: { title, words } or { title, pieces, scores, all, chosen }.
  blocks({ reading }) {
    if (!reading.targetIds) return [{ title: "", words: "the model has not read the text yet" }];
    const { kind, layer, row, column } = state, attention = attentionOf(reading), fields = { text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [] };
    const rows = reading.tokens[attention.rows], head = state.head || 1;
    if (row < 0 || row >= rows.length) return [{ title: "", words: "choose a token that is written, or a row of the matrix (m)" }];
    const weighs = answerOf("neurons", products, { ...fields, kind, layer, head, row, column: 0 });
    const query = { title: `${shown(rows[row])} reads ${READ[attention.columns]}: ${nameOfPart(state.run, kind, layer)}, head ${head}` };
    const isSoftmax = weighs.scores && softmaxRow(weighs.scores, 1).shares.every((share, index) => Math.abs(share - weighs.weights[index]) < 1e-3);
    const blocks = [weighs.words || !isSoftmax ? { ...query, words: weighs.words || "these weights are no plain softmax of their scores" } : { ...query, pieces: reading.tokens[attention.columns].slice(0, weighs.scores.length), scores: [...weighs.scores], chosen: column }];
    if (attention.rows !== "target") return blocks;
    const next = answerOf("nextToken", nextTokens, { ...fields, row }), title = `the next token at position ${row + 1}, of ${model.tokenizers[model.tokenizers.length - 1].pieces.length.toLocaleString("en")}`;
    return [...blocks, next.words ? { title, words: next.words } : { title, pieces: next.best.map(([, piece]) => piece), scores: next.best.map(([token]) => next.logits[token]), all: next.logits, chosen: next.best.findIndex(([token]) => token === reading.targetIds[row]) }];
  },
  // The left of the first column, the longest bar, and the distance of the columns.
  columns(panel) {
    const left = Math.min(120, panel.width / 4), pitch = clamp((panel.width - left - 8) / 3, 90, 190);
    return { left, pitch, bar: pitch - SOFTMAX_NUMBER - 16 };
  },
  // The y of the blocks.
  tops(blocks) {
    let y = SOFTMAX_TOP;
    return blocks.map(({ pieces }) => { const top = y; y += (pieces ? pieces.length : 1) * SOFTMAX_LINE + SOFTMAX_GAP; return top; }).concat(y);
  },
  extent(panel) {
    const blocks = this.blocks(panel), tops = this.tops(blocks);
    const { left, pitch } = this.columns(panel);
    return { width: left + 3 * pitch, height: tops[tops.length - 1] - SOFTMAX_GAP / 2 };
  },
  draw(pen, panel, frame) {
    const blocks = this.blocks(panel), tops = this.tops(blocks), { left: start, pitch, bar } = this.columns(panel), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink), blue = ink("chosen");
    blocks.forEach(({ title, words, pieces, scores, all, chosen }, index) => {
      const top = tops[index] - frame.y, left = start - frame.x;
      pen.text(title, 12 - frame.x, top - 38, { color: plain, bold: true });
      if (words) return pen.text(words, 12 - frame.x, top - 12, { color: faint });
      const { exponentials, shares, sum } = softmaxRow(scores, heat, all), lowest = Math.min(0, ...scores), range = Math.max(1e-9, ...scores) - lowest;
      const columns = [["score", scores, range], [pitch < 150 ? "exp" : "exp((score − largest) / T)", exponentials, 1], [`${pitch < 150 ? "" : `÷ ${number(sum)} = `}${all ? "probability" : "weight"}`, shares, 1]];
      columns.forEach(([name, values, scale], column) => {
        const x = left + column * pitch, least = column ? 0 : lowest; // Bars of scores begin at zero.
        pen.text(clipped(name, pitch - 8), x, top - 14, { color: faint });
        values.forEach((value, line) => {
          const y = top + (line + 0.5) * SOFTMAX_LINE, length = Math.abs(value) / scale * bar, zero = x - least / scale * bar;
          pen.rect(value < 0 ? zero - length : zero, y - 7, Math.max(length, 1), 14, value < 0 ? mark : column === 2 ? blue : faint);
          pen.text(value.toFixed(column ? 3 : 2), x + bar + 6, y, { color: plain, size: 11 });
        });
      });
      pieces.forEach((piece, line) => pen.text(clipped(shown(piece), start - 14), left - 8, top + (line + 0.5) * SOFTMAX_LINE, { color: line === chosen ? mark : plain, align: "right", bold: line === chosen }));
    });
  },
  at(panel, x, y) {
    const blocks = this.blocks(panel), tops = this.tops(blocks), line = Math.floor((y + frameOf(panel).y - tops[0]) / SOFTMAX_LINE);
    return blocks[0].pieces && line >= 0 && line < blocks[0].pieces.length ? { row: state.row, column: line } : null;
  },
  inspect() {
    return [
      element("h2", "softmax"), heatLabel,
      element("p", "A softmax turns scores into shares that sum to 1: it takes exp(score / T) of each score and divides by the sum. A temperature T below 1 makes the largest share larger; above 1 the shares become more equal. Subtracting the largest score changes no share, and keeps exp from overflowing. The slider moves these bars alone; the temperature of the search is in the map."),
      ...targetRow(mainPanel().reading) >= 0 ? inspectLive(mainPanel(), targetRow(mainPanel().reading)) : [],
    ];
  },
};

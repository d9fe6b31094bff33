// The view of one score: the query and the key of a head by dimension, and their products.

const products = new Map(); // question -> { words } or what `Attention.pair` returns

// The query and key of the chosen pair of tokens, or words that say what to choose.
function productsOf(reading) {
  const attention = attentionOf(reading);
  if (!reading.targetIds) return { words: "the model has not read the text yet" };
  if (!state.head || state.row < 0 || state.column < 0) return { words: "choose one head, and a cell of its matrix (m): its query and its key are shown here" };
  const { kind, layer, head, row, column } = state;
  if (row >= reading.tokens[attention.rows].length || column >= reading.tokens[attention.columns].length) return { words: "this text has no such token" };
  return answerOf("neurons", products, { text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], kind, layer, head, row, column });
}

const BAR_LINE = 15, BAR_WIDTH = 130, BARS_TOP = 66;
// Additive scores are sums of v tanh(query + key), others of products.
const IS_ADDITIVE = /additive|concat|sensitive/.test(settings.attention || "");

const productsView = {
  name: IS_ADDITIVE ? "query + key" : "query × key", key: "q", hasNoScale: true, showsHead: true,
  needs: "of the live text", isThere: () => state.text === LIVE_TEXT,
  extent(panel) {
    const { columns, terms } = productsOf(panel.reading);
    return terms ? { width: 60 + (columns.length + 1) * (BAR_WIDTH + 30), height: BARS_TOP + (terms.length + 2) * BAR_LINE + 40 } : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const found = productsOf(panel.reading), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink), blue = ink("chosen");
    if (found.words) return pen.text(found.words, 12, 30, { color: faint });
    const { terms, factor } = found, attention = attentionOf(panel.reading), tokens = panel.reading.tokens;
    const x = (column) => 60 + column * (BAR_WIDTH + 30) - frame.x, y = (line) => BARS_TOP + (line + 0.5) * BAR_LINE - frame.y;
    const names = { query: "query of " + shown(tokens[attention.rows][state.row]), key: "key of " + shown(tokens[attention.columns][state.column]), location: "weights before" };
    const columns = [...found.columns.map(([name, values]) => [names[name], values]), [IS_ADDITIVE ? "v tanh(sum)" : "product", terms]];
    pen.text("dim", x(0) - 8, y(-1), { color: faint, align: "right", size: 11 });
    columns.forEach(([title, values], column) => {
      const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
      pen.text(clipped(title, BAR_WIDTH + 20), x(column), y(-1), { color: plain, bold: true });
      values.forEach((value, line) => {
        const length = Math.abs(value) / largest * BAR_WIDTH / 2, middle = x(column) + BAR_WIDTH / 2;
        pen.rect(value < 0 ? middle - length : middle, y(line) - BAR_LINE / 2 + 2, length, BAR_LINE - 4, value < 0 ? mark : blue);
        pen.text(value.toFixed(2), x(column) + BAR_WIDTH + 2, y(line), { color: faint, size: 10 });
      });
    });
    terms.forEach((_, line) => { pen.text(String(line + 1), x(0) - 8, y(line), { color: faint, size: 10, align: "right" }); });
    pen.text(settings.attention ? `${settings.attention} attention` : nameOfHead(panel).split(":")[0], x(0), 18 - frame.y, { color: faint });
    const sum = terms.reduce((total, value) => total + value, 0), weight = found.isVisible ? found.weights[state.column].toFixed(3) : "0: masked";
    pen.text(`sum ${number(sum)}${factor === 1 ? "" : `, times ${number(factor)} = score ${number(sum * factor)}`}; softmax over ${found.scores.length} keys: weight ${weight}`, x(0), y(terms.length + 0.7), { color: plain });
  },
  at: () => null,
  inspect(panel) {
    const found = productsOf(panel.reading);
    if (!found.terms) return [element("h2", this.name), element("p", found.words)];
    const pieces = panel.reading.tokens[attentionOf(panel.reading).columns].slice(0, found.scores.length), seen = found.scores.filter((score) => score > -1e9);
    const words = settings.attention ? "A score is the sum over the dimensions. Scores of this query:"
      : `A score is the sum of the products of query and key${found.factor === 1 ? "" : ", divided by √d_k"} (Vaswani et al. 2017, equation 1). Scores of this query:`;
    return [
      element("h2", this.name), element("p", words),
      ranking(pieces, Float32Array.from(found.scores, (score) => score > -1e9 ? score : 0), Math.max(...seen.map(Math.abs)), (index) => set({ column: index })),
    ];
  },
};

"use strict";
// Views of a live page: which head mattered for which token, and the query-key product of a head by dimension.

const HEAD_CELL = 30, TOKEN_LINE = 24, EFFECTS_TOP = 120;
// The parts to switch off one by one: all heads; of an RNN its parts.
const EFFECTS = HEAD_NAMES.length ? HEAD_NAMES : Object.keys(CHOICES);
const titleOf = (name) => CHOICES[name] || name.replaceAll(".", " ");
const effects = new WeakMap(); // reading -> { changes: a list for each of EFFECTS, largest } or { words }

// The effects of all heads on a live reading; computed when they are first looked at.
function effectsOf(reading) {
  if (!reading || !reading.targetIds) return { words: "the model has not read the text yet" };
  if (!effects.has(reading)) {
    const says = (found) => { effects.set(reading, found); render(); };
    effects.set(reading, { words: "switching off every part in turn …" });
    request("effects", { slot: reading.run, text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], temperature: reading.temperature, names: EFFECTS }, (done) => says({ words: `switching off every part in turn … ${Math.round(100 * done)} %` }))
      .then((changes) => says({ changes, largest: Math.max(1e-9, ...changes.flat().map(Math.abs)) }),
        (error) => { if (error.message === "stopped") effects.delete(reading); else says({ words: error.message }); });
  }
  return effects.get(reading);
}

const effectsView = {
  name: HEAD_NAMES.length ? "head effects" : "part effects", key: "a", hasNoScale: true,
  isThere: () => state.text === LIVE_TEXT,
  left: (panel) => Math.max(labelRoom(panel.reading.tokens.target), 74) + 10,
  extent(panel) {
    const { changes } = effectsOf(panel.reading);
    return changes ? { width: this.left(panel) + EFFECTS.length * HEAD_CELL + 10, height: EFFECTS_TOP + (panel.reading.tokens.target.length + 1) * TOKEN_LINE + 10 } : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const { changes, largest, words } = effectsOf(panel.reading), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink);
    if (words) return pen.text(words, 12, 30, { color: faint });
    const left = this.left(panel) - frame.x, top = EFFECTS_TOP - frame.y, matrix = { largest, isSigned: true }, off = new Set(panel.reading.edits || []);
    EFFECTS.forEach((name, index) => {
      const x = left + index * HEAD_CELL, isOff = off.has(name), isHere = hovered && hovered.index === index, ofPart = changes[index];
      pen.text(`${titleOf(name)}${isOff ? " off" : ""}`, x + HEAD_CELL / 2, top - 6, { color: isOff ? mark : isHere ? plain : faint, size: 11, rotated: true, bold: isHere });
      const total = ofPart.reduce((sum, value) => sum + value, 0);
      [...ofPart, total].forEach((value, row) => {
        const isTotal = row === ofPart.length, y = top + row * TOKEN_LINE + (isTotal ? 4 : 0);
        if (!isTotal) pen.rect(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, cssColor(value, matrix));
        const isStrong = !isTotal && Math.abs(value) > 0.55 * largest;
        if (isTotal || Math.abs(value) >= 0.05) pen.text(value.toFixed(Math.abs(value) >= 9.95 ? 0 : 1).replace("-0.0", "0.0"), x + HEAD_CELL / 2, y + TOKEN_LINE / 2, { color: isStrong ? isDark() ? "#10161c" : "#ffffff" : plain, size: 10, align: "center", bold: isTotal });
        if (isHere && hovered.row === row) pen.frame(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, mark, 2);
      });
    });
    [...panel.reading.tokens.target, "all"].forEach((piece, row, pieces) => {
      const isTotal = row === pieces.length - 1, y = top + (row + 0.5) * TOKEN_LINE + (isTotal ? 4 : 0);
      pen.text(isTotal ? "all tokens" : clipped(shown(piece), LABEL_ROOM), left - 6, y, { color: targetRow(panel.reading) === row && !isTotal ? mark : plain, align: "right", bold: isTotal });
    });
  },
  at(panel, x, y) {
    if (!effectsOf(panel.reading).changes) return null;
    const frame = frameOf(panel), index = Math.floor((x + frame.x - this.left(panel)) / HEAD_CELL), row = Math.floor((y + frame.y - EFFECTS_TOP) / TOKEN_LINE);
    return EFFECTS[index] && row < panel.reading.tokens.target.length ? { index, row: Math.max(row, -1), column: -1 } : null;
  },
  choose(item) { toggle(EFFECTS[item.index]); },
  inspect(panel, item) {
    const { changes } = effectsOf(panel.reading), found = changes && changes[item.index];
    const parts = found ? [
      element("h2", titleOf(EFFECTS[item.index])),
      ...item.row >= 0 ? [element("p", `without it log p(${shown(panel.reading.tokens.target[item.row])}) changes by ${number(found[item.row])}`)] : [],
      element("p", "click to switch it off or on"),
    ] : [element("h2", this.name), element("p", `The change of the log-probability of every token of the ${WORDS.result} when one part is switched off${HEAD_NAMES.length ? " (the output of a head is zero)" : ""}. Orange: the token becomes less probable. Click a column to keep it off.`)];
    return [...parts, ...!found && targetRow(panel.reading) >= 0 ? inspectLive(panel, targetRow(panel.reading)) : []];
  },
};

// ---------------------------------------------------------------- neurons

const products = new Map(); // question -> { words } or what `Attention.pair` returns

// The query and key of the chosen pair of tokens, or words that say what to choose.
function productsOf(reading) {
  const attention = attentionOf(reading);
  if (!reading.targetIds) return { words: "the model has not read the text yet" };
  if (!state.head || state.row < 0 || state.column < 0) return { words: "choose one head, and a cell of its matrix (m): its query and its key are shown here" };
  const { kind, layer, head, row, column } = state;
  if (row >= reading.tokens[attention.rows].length || column >= reading.tokens[attention.columns].length) return { words: "this text has no such token" };
  const fields = { text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], kind, layer, head, row, column }, key = JSON.stringify(fields);
  if (!products.has(key)) {
    products.set(key, { words: "computing …" });
    request("neurons", fields).then((found) => found || { words: "this layer is off, or this position has no score" }, (error) => ({ words: error.message })).then((found) => { products.set(key, found); render(); });
  }
  return products.get(key);
}

const BAR_LINE = 15, BAR_WIDTH = 130, BARS_TOP = 66;
// Additive scores are sums of v tanh(query + key), others of products.
const IS_ADDITIVE = /additive|concat|sensitive/.test(settings.attention || "");

const neuronsView = {
  name: IS_ADDITIVE ? "query + key" : "query × key", key: "q", hasNoScale: true,
  isThere: () => state.text === LIVE_TEXT,
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
    pen.text(settings.attention ? `${settings.attention} attention` : `head ${state.head} of layer ${layerNumber(state.run, state.kind, state.layer)}, ${state.kind} attention`, x(0), 18 - frame.y, { color: faint });
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

// ---------------------------------------------------------------- states of an RNN

const STATE_LINE = 20, STATE_TOP = 40, STATE_GAP = 60;

// The annotations of the source and the top states of the decoder, a row for every token, a column for every dimension.
const statesView = {
  name: "states", key: "i", hasNoScale: true,
  isThere: () => state.text === LIVE_TEXT,
  layout(panel) {
    const { tokens, states } = panel.reading, left = Math.max(labelRoom(tokens.source), labelRoom(tokens.target)) + 10;
    const cell = clamp((panel.width - left - 10) / Math.max(states.source.size, states.target.size), 1, 8);
    const below = STATE_TOP + tokens.source.length * STATE_LINE + STATE_GAP;
    return { left, cell, parts: [
      { side: "source", at: "column", title: "annotations of the source", y: STATE_TOP }, { side: "target", at: "row", title: "states of the decoder after each token", y: below },
    ] };
  },
  extent(panel) {
    if (!panel.reading.states) return { width: 300, height: 60 };
    const { left, cell, parts } = this.layout(panel), { tokens, states } = panel.reading;
    return { width: left + cell * Math.max(states.source.size, states.target.size) + 10, height: parts[1].y + tokens.target.length * STATE_LINE + 10 };
  },
  draw(pen, panel, frame) {
    const { reading } = panel, [plain, faint, mark] = ["ink", "faint", "mark"].map(ink);
    if (!reading.states) return pen.text("states are shown when the model has read the text", 12, 30, { color: faint });
    const { left, cell, parts } = this.layout(panel);
    for (const { side, at, title, y } of parts) {
      const { values, size } = reading.states[side], rows = reading.tokens[side];
      const image = bitmapOf({ rows, columns: counted(size), values, isSigned: true, largest: values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9) });
      pen.text(`${title}, ${size} dimensions; blue is positive`, left - frame.x, y - 14 - frame.y, { color: faint });
      pen.bitmap(image, left - frame.x, y - frame.y, cell * size, STATE_LINE * rows.length);
      rows.forEach((piece, row) => pen.text(clipped(shown(piece), LABEL_ROOM), left - 6 - frame.x, y + (row + 0.5) * STATE_LINE - frame.y, { color: isMarked(at, row) ? mark : plain, align: "right", bold: isMarked(at, row) }));
    }
  },
  at(panel, x, y) {
    if (!panel.reading.states) return null;
    const frame = frameOf(panel), { tokens } = panel.reading;
    for (const { side, at, y: top } of this.layout(panel).parts) {
      const index = Math.floor((y + frame.y - top) / STATE_LINE);
      if (index >= 0 && index < tokens[side].length) return { row: -1, column: -1, [at]: index };
    }
    return null;
  },
  inspect(panel, item) {
    const matrix = currentMatrix(panel);
    return matrix && (item.row >= 0 || item.column >= 0) ? inspectToken(matrix, item, panel)
      : [element("h2", this.name), element("p", "One row for each token, one column for each dimension. Click a token to see its attention.")];
  },
};

Object.assign(VIEWS, { effects: effectsView, neurons: neuronsView, ...settings.kind === "rnn" ? { states: statesView } : {} });
KEYS.push(["a q", `${effectsView.name}, ${neuronsView.name}`], ...settings.kind === "rnn" ? [["i", "states of the encoder and the decoder"]] : [], ["y", "difference to the unchanged model"], ["z", "undo all edits"], ["u", "guided tour"]);

live = { settle: settleLive, show: showStrip, inspect: inspectLive, force: forceLive, why: whyInTree, isRead, isComputing, keys: { z: reset, u: tour } };
buildStrip();

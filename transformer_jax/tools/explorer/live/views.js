"use strict";
// Views of a live page: which head mattered for which token, and the query-key product of a head by dimension.

const HEAD_CELL = 30, TOKEN_LINE = 24, EFFECTS_TOP = 120;
const effects = new WeakMap(); // reading -> { heads, largest } or { words }

// The effects of all heads on a live reading; computed when they are first looked at.
function effectsOf(reading) {
  if (!reading || !reading.targetIds) return { words: "heads can be switched off for the live text only: choose the live text above" };
  if (!effects.has(reading)) {
    const says = (found) => { effects.set(reading, found); render(); };
    effects.set(reading, { words: "switching off every head in turn …" });
    request("effects", { slot: reading.run, text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [] }, (done) => says({ words: `switching off every head in turn … ${Math.round(100 * done)} %` }))
      .then((heads) => says({ heads, largest: Math.max(1e-9, ...heads.flatMap(({ changes }) => changes.map(Math.abs))) }),
        (error) => { if (error.message === "stopped") effects.delete(reading); else says({ words: error.message }); });
  }
  return effects.get(reading);
}

const effectsView = {
  name: "head effects", key: "a", hasNoScale: true,
  isThere: () => state.text === LIVE_TEXT,
  left: (panel) => Math.max(labelRoom(panel.reading.tokens.target), 74) + 10,
  extent(panel) {
    const { heads } = effectsOf(panel.reading);
    return heads ? { width: this.left(panel) + heads.length * HEAD_CELL + 10, height: EFFECTS_TOP + (panel.reading.tokens.target.length + 1) * TOKEN_LINE + 10 } : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const { heads, largest, words } = effectsOf(panel.reading), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink);
    if (words) return pen.text(words, 12, 30, { color: faint });
    const left = this.left(panel) - frame.x, top = EFFECTS_TOP - frame.y, matrix = { largest, isSigned: true }, off = new Set(panel.reading.edits || []);
    heads.forEach(({ kind, layer, head, changes }, index) => {
      const x = left + index * HEAD_CELL, isOff = off.has(`${kind}.${layer}.head.${head}`), isHere = hovered && hovered.index === index;
      pen.text(`${kind} ${layer} head ${head}${isOff ? " off" : ""}`, x + HEAD_CELL / 2, top - 6, { color: isOff ? mark : isHere ? plain : faint, size: 11, turned: true, bold: isHere });
      const total = changes.reduce((sum, value) => sum + value, 0);
      [...changes, total].forEach((value, row) => {
        const y = top + row * TOKEN_LINE + (row === changes.length ? 4 : 0), isTotal = row === changes.length;
        if (!isTotal) pen.rect(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, cssColor(value, matrix));
        const isStrong = !isTotal && Math.abs(value) > 0.55 * largest;
        if (isTotal || Math.abs(value) >= 0.05) pen.text(value.toFixed(Math.abs(value) >= 9.95 ? 0 : 1).replace("-0.0", "0.0"), x + HEAD_CELL / 2, y + TOKEN_LINE / 2, { color: isStrong ? isDark() ? "#10161c" : "#ffffff" : plain, size: 10, align: "center", bold: isTotal });
        if (isHere && hovered.row === row) pen.frame(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, mark, 2);
      });
    });
    [...panel.reading.tokens.target, "all"].forEach((piece, row, pieces) => {
      const isTotal = row === pieces.length - 1, y = top + (row + 0.5) * TOKEN_LINE + (isTotal ? 4 : 0);
      pen.text(isTotal ? "all tokens" : clipped(shown(piece), LABEL_ROOM), left - 6, y, { color: isMarked("row", row) && !isTotal ? mark : plain, align: "right", bold: isTotal });
    });
  },
  at(panel, x, y) {
    const { heads } = effectsOf(panel.reading);
    if (!heads) return null;
    const frame = frameOf(panel), index = Math.floor((x + frame.x - this.left(panel)) / HEAD_CELL), row = Math.floor((y + frame.y - EFFECTS_TOP) / TOKEN_LINE);
    return heads[index] && row < panel.reading.tokens.target.length ? { index, row: Math.max(row, -1), column: -1 } : null;
  },
  choose(place, panel) {
    const { kind, layer, head } = effectsOf(panel.reading).heads[place.index];
    toggle(`${kind}.${layer}.head.${head}`);
  },
  inspect(panel, place) {
    const { heads } = effectsOf(panel.reading), found = heads && heads[place.index];
    const parts = found ? [
      element("h2", `${found.kind} attention, layer ${found.layer}, head ${found.head}`),
      ...place.row >= 0 ? [element("p", `without it log p(${shown(panel.reading.tokens.target[place.row])}) changes by ${number(found.changes[place.row])}`)] : [],
      element("p", "click to switch it off or on"),
    ] : [element("h2", "head effects"), element("p", "The change of the log-probability of every token of the translation when one head is switched off (its output is zero). Orange: the token becomes less probable. Click a column to keep the head off.")];
    return [...parts, ...place.row >= 0 && !found ? inspectLive(panel, place.row) : []];
  },
};

// ---------------------------------------------------------------- neurons

const products = new Map(); // question -> { words } or { query, key, scores, weights, factor, isVisible }

// The query and key of the chosen pair of tokens, or words that say what to choose.
function productsOf(reading) {
  const attention = attentionOf(reading);
  if (!reading.targetIds) return { words: "queries and keys are computed for the live text only: choose the live text above" };
  if (!state.head || state.row < 0 || state.column < 0) return { words: "choose one head, and a cell of its matrix (m): its query and its key are shown here" };
  const { kind, layer, head, row, column } = state;
  if (row >= reading.tokens[attention.rows].length || column >= reading.tokens[attention.columns].length) return { words: "this translation has no such token" };
  const fields = { text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], kind, layer, head, row, column }, key = JSON.stringify(fields);
  if (!products.has(key)) {
    products.set(key, { words: "computing …" });
    request("neurons", fields).then((found) => found || { words: "this layer is off" }, (error) => ({ words: error.message })).then((found) => { products.set(key, found); render(); });
  }
  return products.get(key);
}

const BAR_LINE = 15, BAR_WIDTH = 130, BARS_TOP = 66;

const neuronsView = {
  name: "query × key", key: "q", hasNoScale: true,
  isThere: () => state.text === LIVE_TEXT,
  extent(panel) {
    const { query } = productsOf(panel.reading);
    return query ? { width: 60 + 3 * (BAR_WIDTH + 30), height: BARS_TOP + (query.length + 2) * BAR_LINE + 40 } : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const found = productsOf(panel.reading), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink), blue = ink("chosen");
    if (found.words) return pen.text(found.words, 12, 30, { color: faint });
    const { query, key, factor } = found, attention = attentionOf(panel.reading), tokens = panel.reading.tokens;
    const x = (column) => 60 + column * (BAR_WIDTH + 30) - frame.x, y = (line) => BARS_TOP + (line + 0.5) * BAR_LINE - frame.y;
    const columns = [["query of " + shown(tokens[attention.rows][state.row]), query], ["key of " + shown(tokens[attention.columns][state.column]), key], ["product", query.map((value, index) => value * key[index])]];
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
    query.forEach((_, line) => { pen.text(String(line + 1), x(0) - 8, y(line), { color: faint, size: 10, align: "right" }); });
    pen.text(`head ${state.head} of layer ${state.layer}, ${state.kind} attention`, x(0), 18 - frame.y, { color: faint });
    const sum = columns[2][1].reduce((total, value) => total + value, 0);
    const weight = found.isVisible ? found.weights[state.column].toFixed(3) : "0: masked";
    pen.text(`sum of products ${number(sum)}, times ${number(factor)} = score ${number(sum * factor)}; softmax over ${found.scores.length} keys: weight ${weight}`, x(0), y(query.length + 0.7), { color: plain });
  },
  at: () => null,
  inspect(panel) {
    const found = productsOf(panel.reading);
    if (!found.query) return [element("h2", "query × key"), element("p", found.words)];
    const pieces = panel.reading.tokens[attentionOf(panel.reading).columns].slice(0, found.scores.length);
    return [
      element("h2", "query × key"), element("p", "A score is the sum of the products of query and key, divided by √d_k (Vaswani et al. 2017, equation 1). Scores of this query:"),
      ranking(pieces, Float32Array.from(found.scores), Math.max(...found.scores.map(Math.abs)), (index) => set({ column: index })),
    ];
  },
};

Object.assign(VIEWS, { effects: effectsView, neurons: neuronsView });
KEYS.push(["a q", "head effects, query × key"], ["y", "difference to the unchanged model"], ["z", "undo all edits"], ["u", "guided tour"]);

live = { settle: settleLive, show: showStrip, inspect: inspectLive, force: forceLive, why: whyLive, keys: { z: reset, u: tour } };
buildStrip();

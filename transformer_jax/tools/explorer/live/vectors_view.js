// The view of vectors, a row for each token: embeddings with positions of a Transformer, states of an RNN.

const VECTOR_LINE = 20, VECTORS_TOP = 40, VECTORS_GAP = 60, FIRST_NUMBERS = 12;
const VECTOR_TITLES = settings.kind === "rnn" ? { source: "annotations of the source", target: "states of the decoder after each token" }
  : { source: `source: ${EMBEDDING}`, input: `decoder: ${EMBEDDING}` };

const vectorsView = {
  name: "vectors", key: "i", hasNoScale: true, lights: ["encoder.embedding", "decoder.embedding", "decoder.states", "encoder.states"],
  needs: "of the live text", isThere: () => state.text === LIVE_TEXT,
  // The blocks of the picture: `at` is the side of the state that a row chooses.
  layout(panel) {
    const { tokens, states } = panel.reading, sides = Object.keys(states), left = Math.max(...sides.map((side) => labelRoom(tokens[side]))) + 10;
    const widest = Math.max(...sides.map((side) => states[side].size)), cell = clamp((panel.width - left - 10) / widest, 1, 8);
    let y = VECTORS_TOP;
    const parts = sides.map((side) => {
      const part = { side, at: side === "source" ? "column" : "row", title: VECTOR_TITLES[side], y };
      y += tokens[side].length * VECTOR_LINE + VECTORS_GAP;
      return part;
    });
    return { left, cell, parts, width: left + cell * widest + 10, height: y };
  },
  extent(panel) { return panel.reading.states ? this.layout(panel) : { width: 300, height: 60 }; },
  draw(pen, panel, frame) {
    const { reading } = panel, [plain, faint, mark] = ["ink", "faint", "mark"].map(ink);
    if (!reading.states) return pen.text("vectors are shown when the model has read the text", 12, 30, { color: faint });
    const { left, cell, parts } = this.layout(panel), { edits = [] } = reading;
    for (const { side, at, title, y } of parts) {
      const { values, size } = reading.states[side], rows = reading.tokens[side], top = y - frame.y;
      const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
      pen.text(clipped(`${edits.includes("positions") ? title.replace(" + position", "") : title}, ${size} numbers`, frame.width - left - 8), left - frame.x, top - 14, { color: faint });
      pen.bitmap(bitmapOf({ rows, columns: counted(size), values, isSigned: true, largest }), left - frame.x, top, cell * size, VECTOR_LINE * rows.length);
      rows.forEach((piece, row) => {
        const strong = isMarked(at, row);
        pen.text(clipped(shown(piece), LABEL_ROOM), left - 6 - frame.x, top + (row + 0.5) * VECTOR_LINE, { color: strong ? mark : plain, align: "right", bold: strong });
        if (strong) pen.frame(left - frame.x, top + row * VECTOR_LINE, cell * size, VECTOR_LINE, mark, 2);
      });
    }
  },
  at(panel, x, y) {
    if (!panel.reading.states) return null;
    const frame = frameOf(panel), { tokens } = panel.reading;
    for (const { side, at, y: top } of this.layout(panel).parts) {
      const index = Math.floor((y + frame.y - top) / VECTOR_LINE);
      if (index >= 0 && index < tokens[side].length) return { row: -1, column: -1, [at]: index };
    }
    return null;
  },
  inspect(panel, item) {
    const { states, tokens } = panel.reading, side = states && Object.keys(states).find((each) => (each === "source" ? item.column : item.row) >= 0 && tokens[each][each === "source" ? item.column : item.row] !== undefined);
    if (!side) return [element("h2", this.name), element("p", "A row for each token, a column for each number of its vector; blue is positive. Click a token to read the first numbers.")];
    const index = side === "source" ? item.column : item.row, { values, size } = states[side], vector = values.subarray(index * size, (index + 1) * size);
    const largest = vector.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9), matrix = settings.kind === "rnn" ? currentMatrix(panel) : null;
    return [
      element("h2", `the vector of ${shown(tokens[side][index])} (${index + 1})`), element("p", `the first ${FIRST_NUMBERS} of ${size} numbers`),
      element("table", [...vector.subarray(0, FIRST_NUMBERS)].map((value, place) => {
        const bar = element("i", "", { className: value < 0 ? "negative" : "" });
        bar.style.width = `${100 * Math.abs(value) / largest}%`;
        return element("tr", [cell(String(place + 1)), cell(number(value)), cell(bar, "bar")]);
      })),
      ...matrix ? inspectToken(matrix, item, panel) : [],
    ];
  },
};

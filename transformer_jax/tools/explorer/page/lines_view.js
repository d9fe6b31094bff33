// The view of one matrix as lines between two columns of tokens.

const LINES_A_ROW = 12, LINES_OF_HEAD = 4, FAINTEST = 0.04;

const linesView = {
  name: "lines", key: "b", hasHeads: true, hasColorsOfHeads: true, hasZoom: true,
  needs: matrixView.needs, isThere: matrixView.isThere,
  layout(panel, matrix) {
    const longest = Math.max(matrix.rows.length, matrix.columns.length);
    const pitch = clamp(clamp((panel.height - HEADING - 8) / longest, 15, 34) * 1.25 ** state.zoom, 4, 60);
    const left = labelRoom(matrix.rows) + 6, right = labelRoom(matrix.columns) + 6;
    const middle = clamp(panel.width - left - right - 12, 60, 620);
    const start = Math.max((panel.width - left - right - middle) / 2, 0);
    return { pitch, from: start + left, to: start + left + middle, width: start + left + middle + right, longest };
  },
  extent(panel) {
    const matrix = currentMatrix(panel);
    if (!matrix) return null;
    const { pitch, longest } = this.layout(panel, matrix);
    return { width: panel.width, height: HEADING + pitch * longest + 8 };
  },
  draw(pen, panel, frame) {
    const matrix = currentMatrix(panel), { pitch, from, to } = this.layout(panel, matrix);
    const { rows, columns, values } = matrix, largest = largestBeside(matrix);
    const [plain, faint, mark, ground] = ["ink", "faint", "mark", "ground"].map(ink), blue = ink("chosen");
    const height = (index) => HEADING - frame.y + (index + 0.5) * pitch;
    const isSeen = (index) => height(index) > -pitch && height(index) < frame.height + pitch;
    const item = hovered || state, heads = this.headsOf(panel, matrix);
    // Lines of several heads between two tokens lie side by side.
    const draw = (drawn, scale, color, shift = 0) => {
      const line = (row, column) => {
        const share = drawn.values[row * columns.length + column] / (scale || 1), strength = Math.abs(share);
        if (strength > FAINTEST) pen.curve(from, height(row) + shift, to, height(column) + shift, share < 0 ? mark : color, 0.1 + 0.9 * strength, 0.5 + 3 * strength);
      };
      if (item.row >= 0 && item.row < rows.length) for (let column = 0; column < columns.length; column++) line(item.row, column);
      if (item.column >= 0 && item.column < columns.length && item.row < 0) for (let row = 0; row < rows.length; row++) line(row, item.column);
      if (item.row >= 0 || item.column >= 0) return;
      const most = heads.length ? LINES_OF_HEAD : LINES_A_ROW;
      for (let row = 0; row < rows.length; row++) if (isSeen(row)) for (const column of strongest(drawn, row, most)) line(row, column);
    };
    if (heads.length) heads.forEach((each, index) => each && draw(each, 1, headColor(index), (index - (heads.length - 1) / 2) * Math.min(3, pitch / heads.length)));
    else draw(matrix, largest, blue);
    const side = (name, pieces, x, align) => pieces.forEach((piece, index) => {
      if (!isSeen(index)) return;
      const strong = isMarked(name, index);
      pen.text(clipped(shown(piece), LABEL_ROOM), x, height(index), { color: strong ? mark : plain, size: Math.min(LABEL + 1, Math.max(pitch, 7)), align, bold: strong });
    });
    side("row", rows, from - 6, "right");
    side("column", columns, to + 6, "left");
    pen.rect(0, 0, frame.width, HEADING - 2, ground);
    if (heads.length) pen.text("heads", from + 8, 11, { color: faint });
    heads.forEach((_, index) => pen.text(String(index + 1), from + 62 + index * 20, 11, { color: headColor(index), bold: true, size: 14, align: "center" }));
    pen.text(WRITTEN[matrix.attention.rows], from - 6, 11, { color: faint, align: "right" });
    pen.text("reads " + READ[matrix.attention.columns], to + 6, 11, { color: faint, align: to + 130 > frame.width ? "right" : "left" });
  },
  // The matrices of the heads, each with a color of its own, where all heads are shown.
  headsOf(panel, { attention, measure }) {
    if (state.head || attention.heads < 2 || measure !== "weights") return [];
    return counted(attention.heads).map((head) => matrixOf(panel.reading, attention, state.layer - 1, head + 1, "weights"));
  },
  at(panel, x, y) {
    const matrix = currentMatrix(panel);
    if (!matrix) return null;
    const { pitch, from, to } = this.layout(panel, matrix), index = Math.floor((y + frameOf(panel).y - HEADING) / pitch);
    if (x <= from + 12 && index >= 0 && index < matrix.rows.length) return { row: index, column: -1 };
    if (x >= to - 12 && index >= 0 && index < matrix.columns.length) return { row: -1, column: index };
    return null;
  },
  show(panel, side, index) {
    panel.scroller.scrollTop = (index + 0.5) * this.layout(panel, currentMatrix(panel)).pitch - panel.height / 2;
  },
};

// The columns of a row with the values furthest from zero, at most `most`.
function strongest(matrix, row, most) {
  const start = row * matrix.columns.length, found = [];
  for (let column = 0; column < matrix.columns.length; column++) {
    if (Math.abs(matrix.values[start + column]) > FAINTEST * matrix.largest) found.push(column);
  }
  if (found.length <= most) return found;
  return found.sort((a, b) => Math.abs(matrix.values[start + b]) - Math.abs(matrix.values[start + a])).slice(0, most);
}


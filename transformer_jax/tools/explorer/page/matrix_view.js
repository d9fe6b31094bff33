// The view of one matrix, a cell for each pair of tokens.

// A view has: name, key, isThere(); extent(panel), its whole size; draw(pen, panel, frame), where frame is the visible part
// { x, y, width, height } of the extent; at(panel, x, y), the item at a point: { row, column, ... } or null.
const LABEL = 12, LABEL_ROOM = 150, HEADING = 22, LARGEST_CELL = 72, CELL_WITH_NUMBER = 34;
// The axes of a matrix in words.
const WRITTEN = { source: "source", target: "writes", input: "input" }, READ = { source: "source", input: "tokens before", target: "target" };
const ruler = document.createElement("canvas").getContext("2d");

function labelRoom(pieces) {
  ruler.font = `${LABEL}px ${FONT}`;
  let widest = 0;
  for (const piece of new Set(pieces)) widest = Math.max(widest, ruler.measureText(shown(piece)).width);
  return Math.min(Math.ceil(widest) + 8, LABEL_ROOM);
}

function fittingCell(panel, matrix) {
  matrix.left = matrix.left || Math.max(labelRoom(matrix.rows), 36) + HEADING;
  matrix.top = matrix.top || labelRoom(matrix.columns) + HEADING;
  return Math.min((panel.width - matrix.left - 8) / matrix.columns.length, (panel.height - matrix.top - 8) / matrix.rows.length);
}

function layoutOf(panel, matrix) {
  let fit = fittingCell(panel, matrix), { left, top } = matrix;
  // Side by side, cells are of one size and at one place.
  for (const each of panels) {
    const other = each === panel ? null : currentMatrix(each);
    if (!other) continue;
    fit = Math.min(fit, fittingCell(each, other));
    [left, top] = [Math.max(left, other.left), Math.max(top, other.top)];
  }
  return { left, top, cell: clamp(clamp(fit, 2, LARGEST_CELL) * 1.25 ** state.zoom, 1, 90) };
}

const isMarked = (side, index) => (hovered ? hovered[side] === index : state[side] === index);
const clipped = (text, room) => {
  ruler.font = `${LABEL}px ${FONT}`;
  if (ruler.measureText(text).width <= room) return text;
  while (text && ruler.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text + "…";
};

const matrixView = {
  name: "matrix", key: "m", hasHeads: true, hasZoom: true,
  needs: "this model has no attention", isThere: () => attentionOf(readingOf(state.run)) !== undefined,
  extent(panel) {
    const matrix = currentMatrix(panel);
    if (!matrix) return null;
    const { left, top, cell } = layoutOf(panel, matrix);
    return { width: left + cell * matrix.columns.length + 8, height: top + cell * matrix.rows.length + 8 };
  },
  draw(pen, panel, frame) {
    const matrix = currentMatrix(panel), { left, top, cell } = layoutOf(panel, matrix);
    const { rows, columns } = matrix, [plain, faint, mark, ground] = ["ink", "faint", "mark", "ground"].map(ink);
    const largest = largestBeside(matrix), colors = `${paint()},${largest}`;
    matrix.bitmap = matrix.bitmapColors === colors ? matrix.bitmap : bitmapOf({ ...matrix, largest });
    matrix.bitmapColors = colors;
    pen.bitmap(matrix.bitmap, left - frame.x, top - frame.y, cell * columns.length, cell * rows.length);
    if (cell >= CELL_WITH_NUMBER) this.drawNumbers(pen, matrix, largest, (column) => left - frame.x + (column + 0.5) * cell, (row) => top - frame.y + (row + 0.5) * cell);
    pen.frame(left - frame.x - 0.5, top - frame.y - 0.5, cell * columns.length + 1, cell * rows.length + 1, ink("line"));
    const item = hovered || state;
    if (item.row >= 0 && item.row < rows.length) pen.frame(left - frame.x, top - frame.y + item.row * cell, cell * columns.length, cell, mark, 1.5);
    if (item.column >= 0 && item.column < columns.length) pen.frame(left - frame.x + item.column * cell, top - frame.y, cell, cell * rows.length, mark, 1.5);
    // The labels stay visible above the cells that scroll below them.
    pen.rect(0, 0, left, frame.height, ground);
    pen.rect(0, 0, frame.width, top, ground);
    const readable = Math.ceil(10 / cell);
    for (let row = 0; row < rows.length; row++) {
      const y = top - frame.y + (row + 0.5) * cell, strong = isMarked("row", row);
      if (y < top || y > frame.height || (!strong && row % readable)) continue;
      if (strong && readable > 1) pen.rect(HEADING, y - LABEL / 2 - 2, left - HEADING - 1, LABEL + 4, ground);
      pen.text(clipped(shown(rows[row]), left - HEADING - 4), left - 4, y, { color: strong ? mark : plain, size: Math.min(LABEL, Math.max(cell, 9)), align: "right", bold: strong });
    }
    for (let column = 0; column < columns.length; column++) {
      const x = left - frame.x + (column + 0.5) * cell, strong = isMarked("column", column);
      if (x < left || x > frame.width || (!strong && column % readable)) continue;
      if (strong && readable > 1) pen.rect(x - LABEL / 2 - 2, HEADING, LABEL + 4, top - HEADING - 1, ground);
      pen.text(clipped(shown(columns[column]), top - HEADING - 4), x, top - 4, { color: strong ? mark : plain, size: Math.min(LABEL, Math.max(cell, 9)), rotated: true, bold: strong });
    }
    pen.rect(0, 0, left, top, ground);
    pen.text(WRITTEN[matrix.attention.rows] + " ↓", 4, top - 8, { color: faint });
    pen.text("reads " + READ[matrix.attention.columns] + " →", left, 11, { color: faint });
  },
  drawNumbers(pen, { rows, columns, values, isSigned }, largest, x, y) {
    rows.forEach((_, row) => columns.forEach((_, column) => {
      const value = values[row * columns.length + column], [red, green, blue] = rgbOf(value, { largest, isSigned });
      if (Math.abs(value) < 0.03) return;
      const isBright = 0.299 * red + 0.587 * green + 0.114 * blue > 140;
      pen.text(value.toFixed(2).replace(/^(-?)0\./, "$1."), x(column), y(row), { color: isBright ? "#10161c" : "#ffffff", size: 11, align: "center" });
    }));
  },
  at(panel, x, y) {
    const matrix = currentMatrix(panel);
    if (!matrix) return null;
    const { left, top, cell } = layoutOf(panel, matrix), frame = frameOf(panel);
    const row = Math.floor((y + frame.y - top) / cell), column = Math.floor((x + frame.x - left) / cell);
    const isRow = y >= top && row < matrix.rows.length, isColumn = x >= left && column < matrix.columns.length;
    return isRow || isColumn ? { row: isRow ? row : -1, column: isColumn ? column : -1 } : null;
  },
  show(panel, side, index) {
    const matrix = currentMatrix(panel);
    const { left, top, cell } = layoutOf(panel, matrix);
    if (side === "row") panel.scroller.scrollTop = (index + 0.5) * cell - (panel.height - top) / 2;
    else panel.scroller.scrollLeft = (index + 0.5) * cell - (panel.width - left) / 2;
  },
};


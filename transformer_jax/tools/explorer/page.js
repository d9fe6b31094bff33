"use strict";
// The explorer of attention and search. No library, no network: data and packed arrays are in the page.
// Parts, in this order: data, state, matrices, colors, pens, views, inspector, panels, controls, export, start.

// ---------------------------------------------------------------- data

const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const described = new Map(page.readings.flatMap(({ attentions }) => attentions.flatMap(({ weights, rollout }) => [...weights, ...rollout].map((each) => [each.block, each]))));
const unpacked = new Map(); // number of a block -> { length, at(index) }; null while it is being unpacked
const unpacking = new Map(); // number of a block -> promise

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return bytes;
}

async function inflate(number) {
  const bytes = bytesOf(byId("block-" + number).textContent);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The value of every step; the inverse of quantized() in page.py.
function valuesOfSteps(packed) {
  return Float32Array.from({ length: 256 }, (_, step) => packed.signed
    ? Math.sign(step - 128) * packed.largest * ((step - 128) / 127) ** 2
    : packed.largest * (step / 255) ** 2);
}

// The bytes of a description; some are stored as differences to another block.
const stored = new Map(); // number of a block -> promise
function stepsOf({ block, before }) {
  if (!stored.has(block)) {
    const whole = before === undefined ? inflate(block) : Promise.all([inflate(block), stepsOf(described.get(before))]).then(([steps, earlier]) => steps.map((step, index) => step + earlier[index]));
    stored.set(block, whole);
  }
  return stored.get(block);
}

// The array of a description as { length, at(index) }, or null: then the page is drawn again when it has been unpacked. An array
// that was computed in the page has its values.
function arrayOf(packed) {
  if (packed.values) return { length: packed.values.length, at: (index) => packed.values[index] };
  const found = unpacked.get(packed.block);
  if (found !== undefined) return found;
  unpacked.set(packed.block, null);
  unpacking.set(packed.block, stepsOf(packed).then((steps) => {
    const table = valuesOfSteps(packed);
    unpacked.set(packed.block, { length: steps.length, at: (index) => table[steps[index]] });
    unpacking.delete(packed.block);
    render();
  }));
  return null;
}

// ---------------------------------------------------------------- state

const KEY_OF_KIND = { encoder: "e", decoder: "d", cross: "c" };
const MEASURES = {
  weights: { name: "weights", key: "w", source: "attention weights; each row of a softmax sums to 1" },
  rollout: { name: "rollout", key: "r", source: "attention rollout, from this layer back to the embeddings; Abnar and Zuidema 2020" },
  norms: { name: "norms", key: "n", source: "norm of weight times transformed value; Kobayashi et al. 2020" },
  gradient: { name: "gradient × input", key: "x", isSigned: true, source: "gradient x input of the log-probability of the row's token; Shrikumar et al. 2017" },
};
const state = {
  text: 0, run: 0, beside: -1, view: "matrix", kind: "", layer: 1, head: 1, measure: "weights", zoom: 0,
  row: -1, column: -1, node: -1, palette: "blue", theme: "", shades: "linear",
};
const MOST_ZOOM = 24, THEMES = { "": true, light: true, dark: true }, SHADES = { linear: true, root: true };
const AS_TEXT = ["view", "kind", "measure", "palette", "theme", "shades"];
// In the address layers, heads, texts and runs count from 1; head 0 is the mean of all.
const FROM_ONE = ["text", "run", "beside", "row", "column", "node"];
const initial = {}; // the state without an address
// Functions of other scripts to call when the page is drawn, and their keys.
const onRender = [], otherKeys = {};
let live = null; // of a live page, see live/views.js: { settle, show, inspect, force, why, isRead, isComputing, keys }

const readingOf = (run) => page.readings.find((each) => each.text === state.text && each.run === run);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// The number in the model of a layer of a kind of attention, from its position among these, from 1: other layers may be recurrent.
const layerNumber = (run, kind, layer) => (page.runs[run].layers[kind] || [])[layer - 1] || layer;

function attentionOf(reading) {
  return reading && (reading.attentions.find((each) => each.kind === state.kind) || reading.attentions[reading.attentions.length - 1]);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(state)) {
    const text = given.get(name);
    if (text === null) state[name] = name === "theme" || name === "palette" ? state[name] : initial[name];
    else if (AS_TEXT.includes(name)) state[name] = text;
    else state[name] = (Number.parseInt(text, 10) || 0) - (FROM_ONE.includes(name) ? 1 : 0);
  }
}

function writeAddress() {
  const parts = Object.keys(state).filter((name) => state[name] !== initial[name]).map((name) => {
    const value = FROM_ONE.includes(name) ? state[name] + 1 : state[name];
    return name + "=" + encodeURIComponent(value);
  });
  history.replaceState(null, "", "#" + parts.join("&"));
}

// Makes the state valid: numbers out of range become the nearest valid one, unknown words the first choice, and a token or
// prefix that does not exist is deselected, of a live text once the model has read it.
function settle() {
  state.text = clamp(state.text, 0, Math.max(...page.readings.map((each) => each.text)));
  state.run = clamp(state.run, 0, page.runs.length - 1);
  state.zoom = clamp(state.zoom, -MOST_ZOOM, MOST_ZOOM);
  if (!Object.hasOwn(THEMES, state.theme)) state.theme = "";
  if (!Object.hasOwn(SHADES, state.shades)) state.shades = "linear";
  if (!Object.hasOwn(PALETTES, state.palette)) state.palette = "blue";
  if (!readingOf(state.run)) state.run = page.readings.find((each) => each.text === state.text).run;
  if (!readingOf(state.beside)) state.beside = -1;
  if (live) live.settle();
  if (!Object.hasOwn(VIEWS, state.view) || !VIEWS[state.view].isThere()) state.view = Object.keys(VIEWS).find((name) => VIEWS[name].isThere()) || "matrix";
  const reading = readingOf(state.run), attention = attentionOf(reading);
  const isRead = !live || live.isRead(reading);
  if (state.node < 0 || (isRead && state.node >= (reading.search ? reading.search.nodes.length : 0))) state.node = -1;
  if (!attention) return;
  state.kind = attention.kind;
  state.layer = clamp(state.layer, 1, attention.layers);
  state.head = clamp(state.head, 0, attention.heads);
  // A live page has a measure of changes before it has computed them.
  if (!Object.hasOwn(MEASURES, state.measure) || !(hasMeasure(reading, attention, state.measure) || (live && live.isComputing()))) state.measure = "weights";
  for (const side of ["row", "column"]) {
    if (state[side] < 0 || (isRead && state[side] >= reading.tokens[attention[side + "s"]].length)) state[side] = -1;
  }
}

function set(changes) {
  // A chosen run that has not read the text here shows the first that it has read.
  const { text, run } = { ...state, ...changes }, ofRun = page.readings.filter((each) => each.run === run);
  if ("run" in changes && ofRun.length && !ofRun.some((each) => each.text === text)) changes = { ...changes, text: ofRun[0].text };
  const isNew = (name) => name in changes && changes[name] !== state[name];
  if (isNew("text") || isNew("kind")) Object.assign(state, { row: -1, column: -1 });
  if (isNew("text") || isNew("run")) state.node = -1;
  Object.assign(state, changes);
  hovered = null;
  settle();
  writeAddress();
  render();
}

// ---------------------------------------------------------------- matrices

function hasMeasure(reading, attention, measure) {
  const own = { weights: true, norms: true, rollout: attention.rollout.length > 0, gradient: attention.kind in reading.gradients };
  return measure in own ? own[measure] : MEASURES[measure].isThere(reading);
}

const matrices = new Map();
const MATRICES_KEPT = 12;

// Rows times columns of one head (0: all of them) of a layer, both from 0; null while it is being unpacked.
function matrixOf(reading, attention, layer, head, measure) {
  if (!hasMeasure(reading, attention, measure)) measure = "weights";
  layer = Math.min(layer, attention.layers - 1);
  head = Math.min(head, attention.heads);
  const key = [page.readings.indexOf(reading), attention.kind, layer, head, measure].join();
  if (matrices.has(key)) return matrices.get(key);
  const rows = reading.tokens[attention.rows], columns = reading.tokens[attention.columns];
  const values = valuesOf(reading, attention, layer, head, measure, rows.length, columns.length);
  if (!values) return null;
  let largest = 0;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  const matrix = { rows, columns, values, largest, isSigned: Boolean(MEASURES[measure].isSigned) || values.some((value) => value < 0), attention, measure };
  matrices.set(key, matrix);
  if (matrices.size > MATRICES_KEPT) matrices.delete(matrices.keys().next().value);
  return matrix;
}

function valuesOf(reading, attention, layer, head, measure, numRows, numColumns) {
  if (MEASURES[measure].valuesOf) return MEASURES[measure].valuesOf(reading, attention, layer, head);
  const size = numRows * numColumns;
  const whole = { rollout: attention.rollout[layer], gradient: reading.gradients[attention.kind] }[measure];
  const packed = arrayOf(whole || attention.weights[layer]);
  if (measure === "norms") return packed && normsOf(attention, layer, head, numColumns);
  if (!packed) return null;
  const values = new Float32Array(size), start = whole || !head ? 0 : (head - 1) * size;
  const count = whole || head ? 1 : attention.heads;
  for (let index = 0; index < size * count; index++) values[index % size] += packed.at(start + index) / count;
  return values;
}

// The norm of weight times transformed value of a head, or of the sum over heads, which follows from the cosines.
function normsOf(attention, layer, head, numColumns) {
  const [weights, norms, cosines] = [attention.weights[layer], attention.valueNorms, attention.valueCosines[layer]].map(arrayOf);
  if (!norms || !cosines) return null;
  const { heads } = attention, size = weights.length / heads, values = new Float32Array(size);
  const chosen = head ? [head - 1] : counted(heads), added = new Float32Array(heads);
  for (let index = 0; index < size; index++) {
    const column = index % numColumns;
    let square = 0;
    for (const each of chosen) {
      added[each] = weights.at(each * size + index) * norms.at((layer * heads + each) * numColumns + column);
      square += added[each] ** 2;
      if (head) continue;
      for (let other = 0; other < each; other++) {
        const pair = each * (each - 1) / 2 + other;
        square += 2 * added[each] * added[other] * cosines.at(pair * numColumns + column);
      }
    }
    values[index] = Math.sqrt(Math.max(square, 0));
  }
  return values;
}

const currentMatrix = (panel) => {
  const attention = attentionOf(panel.reading);
  return attention ? matrixOf(panel.reading, attention, state.layer - 1, state.head, state.measure) : undefined;
};

// The largest value of a matrix and of the one beside it: both have one scale.
const largestBeside = (matrix) => Math.max(...panels.map(currentMatrix).map((each) => each && each.measure === matrix.measure ? each.largest : 0));

// A token as text: spaces visible, unprintable characters escaped.
const shown = (piece) => piece.replace(/[\u2581 ]/g, "\u2423").replace(/[\p{C}\p{Z}]/gu, (letter) => "\\u" + letter.codePointAt(0).toString(16).padStart(4, "0"));
const number = (value) => Math.abs(value) >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(1);

// ---------------------------------------------------------------- colors

// Lightness is monotonic in each palette, so values can be told apart without hue.
const PALETTES = {
  blue: { light: [[255, 255, 255], [189, 215, 238], [74, 144, 196], [8, 48, 107]], dark: [[18, 23, 29], [22, 66, 105], [74, 144, 196], [225, 240, 252]] },
  cividis: { light: [[0, 34, 78], [87, 93, 109], [165, 156, 116], [254, 232, 56]], dark: [[0, 34, 78], [87, 93, 109], [165, 156, 116], [254, 232, 56]] },
  gray: { light: [[255, 255, 255], [0, 0, 0]], dark: [[18, 23, 29], [255, 255, 255]] },
};
const SIGNED = { light: [[150, 60, 0], [240, 150, 70], [255, 255, 255], [90, 155, 205], [8, 48, 107]], dark: [[255, 190, 120], [165, 85, 20], [18, 23, 29], [35, 90, 140], [150, 205, 250]] };
const isDark = () => document.documentElement.dataset.theme === "dark";
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function between(stops, share) {
  const position = clamp(share, 0, 1) * (stops.length - 1), below = Math.min(Math.floor(position), stops.length - 2);
  return stops[below].map((value, channel) => Math.round(value + (stops[below + 1][channel] - value) * (position - below)));
}

// 256 colors, packed as ImageData has them; of signed values the middle is zero.
function colorTable(isSigned) {
  const stops = isSigned ? SIGNED[isDark() ? "dark" : "light"] : PALETTES[state.palette][isDark() ? "dark" : "light"];
  return Uint32Array.from({ length: 256 }, (_, step) => {
    const [red, green, blue] = between(stops, step / 255);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

const stepOf = (value, matrix) => {
  let share = matrix.largest ? value / matrix.largest : 0;
  // The square root makes faint values visible; most values of a long text are faint.
  if (state.shades === "root") share = Math.sign(share) * Math.sqrt(Math.abs(share));
  return matrix.isSigned ? Math.round(127.5 + 127.5 * share) : Math.round(255 * share);
};

function cssColor(value, matrix) {
  const color = colorTable(matrix.isSigned)[stepOf(value, matrix)];
  return `rgb(${color & 255},${(color >> 8) & 255},${(color >> 16) & 255})`;
}

// An image of a matrix with a pixel per cell; with more than `most` cells a side, the value furthest from zero in each block.
function bitmapOf(matrix, most = Infinity) {
  const numRows = matrix.rows.length, numColumns = matrix.columns.length;
  const width = Math.min(numColumns, most), height = Math.min(numRows, most);
  const table = colorTable(matrix.isSigned), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const furthest = new Float32Array(width * height);
  for (let row = 0; row < numRows; row++) {
    const line = Math.floor(row * height / numRows) * width, start = row * numColumns;
    for (let column = 0; column < numColumns; column++) {
      const index = line + Math.floor(column * width / numColumns), value = matrix.values[start + column];
      if (Math.abs(value) > Math.abs(furthest[index])) furthest[index] = value;
    }
  }
  for (let index = 0; index < pixels.length; index++) pixels[index] = table[stepOf(furthest[index], matrix)];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// ---------------------------------------------------------------- pens

const FONT = "system-ui, 'DejaVu Sans', sans-serif";

// Whether the first letter is from a right-to-left script.
const isRightToLeft = (text) => /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u.test(text);

class CanvasPen {
  constructor(context) { this.context = context; }
  rect(x, y, width, height, color) {
    this.context.fillStyle = color;
    this.context.fillRect(x, y, width, height);
  }
  frame(x, y, width, height, color, thickness = 1) {
    this.context.strokeStyle = color;
    this.context.lineWidth = thickness;
    this.context.strokeRect(x, y, width, height);
  }
  text(text, x, y, { color, size = 12, align = "left", bold = false, rotated = false }) {
    const context = this.context;
    context.fillStyle = color;
    context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.direction = isRightToLeft(text) ? "rtl" : "ltr";
    if (!rotated) return context.fillText(text, x, y);
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  }
  curve(x1, y1, x2, y2, color, opacity, thickness) {
    const context = this.context, bend = (x2 - x1) / 2;
    context.globalAlpha = opacity;
    context.strokeStyle = color;
    context.lineWidth = thickness;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }
  line(points, color, thickness) {
    const context = this.context;
    context.strokeStyle = color;
    context.lineWidth = thickness;
    context.beginPath();
    points.forEach(([x, y], index) => index ? context.lineTo(x, y) : context.moveTo(x, y));
    context.stroke();
  }
  bitmap(image, x, y, width, height) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, x, y, width, height);
  }
  // Calls `draw` with its origin at (x, y), clipped to the rectangle.
  inside(x, y, width, height, draw) {
    this.context.save();
    this.context.translate(x, y);
    this.context.beginPath();
    this.context.rect(0, 0, width, height);
    this.context.clip();
    draw(this);
    this.context.restore();
  }
}

const marked = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

// The same drawing operations as SVG elements.
class SvgPen {
  constructor() { this.parts = []; }
  rect(x, y, width, height, color) { this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${color}"/>`); }
  frame(x, y, width, height, color, thickness = 1) {
    this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="none" stroke="${color}" stroke-width="${thickness}"/>`);
  }
  text(text, x, y, { color, size = 12, align = "left", bold = false, rotated = false }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const rotation = rotated ? ` transform="rotate(-90 ${x} ${y})"` : "";
    this.parts.push(`<text x="${x}" y="${y}" fill="${color}" font-size="${size}"${bold ? ' font-weight="600"' : ""} text-anchor="${anchor}" dominant-baseline="central" style="unicode-bidi:plaintext"${rotation}>${marked(text)}</text>`);
  }
  curve(x1, y1, x2, y2, color, opacity, thickness) {
    const bend = (x2 - x1) / 2;
    this.parts.push(`<path d="M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}" fill="none" stroke="${color}" stroke-opacity="${opacity.toFixed(3)}" stroke-width="${thickness}"/>`);
  }
  line(points, color, thickness) {
    this.parts.push(`<polyline points="${points.map((point) => point.join()).join(" ")}" fill="none" stroke="${color}" stroke-width="${thickness}"/>`);
  }
  bitmap(image, x, y, width, height) {
    this.parts.push(`<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.toDataURL("image/png")}"/>`);
  }
  inside(x, y, width, height, draw) {
    this.parts.push(`<svg x="${x}" y="${y}" width="${width}" height="${height}">`);
    draw(this);
    this.parts.push("</svg>");
  }
  svg(width, height) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${marked(FONT)}">${this.parts.join("\n")}</svg>\n`;
  }
}

// ---------------------------------------------------------------- views

// A view has: name, key, isThere(); extent(panel), its whole size; draw(pen, panel, frame), where frame is the visible part
// { x, y, width, height } of the extent; at(panel, x, y), the item at a point: { row, column, ... } or null.
const LABEL = 12, LABEL_ROOM = 150, HEADING = 22;
const ruler = document.createElement("canvas").getContext("2d");

function labelRoom(pieces) {
  ruler.font = `${LABEL}px ${FONT}`;
  let widest = 0;
  for (const piece of new Set(pieces)) widest = Math.max(widest, ruler.measureText(shown(piece)).width);
  return Math.min(Math.ceil(widest) + 8, LABEL_ROOM);
}

function layoutOf(panel, matrix) {
  matrix.left = matrix.left || labelRoom(matrix.rows) + HEADING;
  matrix.top = matrix.top || labelRoom(matrix.columns) + HEADING;
  const fit = Math.min((panel.width - matrix.left - 8) / matrix.columns.length, (panel.height - matrix.top - 8) / matrix.rows.length);
  const cell = clamp(clamp(fit, 2, 34) * 1.25 ** state.zoom, 1, 60);
  return { left: matrix.left, top: matrix.top, cell };
}

const isMarked = (side, index) => (hovered ? hovered[side] === index : state[side] === index);
const clipped = (text, room) => {
  ruler.font = `${LABEL}px ${FONT}`;
  if (ruler.measureText(text).width <= room) return text;
  while (text && ruler.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text + "…";
};

const matrixView = {
  name: "matrix", key: "m",
  isThere: () => attentionOf(readingOf(state.run)) !== undefined,
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
    pen.text(matrix.attention.rows + " ↓", 6, top - 8, { color: faint });
    pen.text(matrix.attention.columns + " →", left, 11, { color: faint });
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

const LINES_A_ROW = 12, FAINTEST = 0.04;

const linesView = {
  name: "lines", key: "b",
  isThere: matrixView.isThere,
  layout(panel, matrix) {
    const longest = Math.max(matrix.rows.length, matrix.columns.length);
    const pitch = clamp(clamp((panel.height - HEADING - 8) / longest, 15, 26) * 1.25 ** state.zoom, 4, 60);
    const left = labelRoom(matrix.rows) + 6, right = labelRoom(matrix.columns) + 6;
    const middle = clamp(panel.width - left - right - 12, 60, 460);
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
    const item = hovered || state, line = (row, column) => {
      const share = values[row * columns.length + column] / (largest || 1), strength = Math.abs(share);
      if (strength > FAINTEST) pen.curve(from, height(row), to, height(column), share < 0 ? mark : blue, 0.1 + 0.9 * strength, 0.5 + 3 * strength);
    };
    if (item.row >= 0 && item.row < rows.length) for (let column = 0; column < columns.length; column++) line(item.row, column);
    if (item.column >= 0 && item.column < columns.length && item.row < 0) for (let row = 0; row < rows.length; row++) line(row, item.column);
    if (item.row < 0 && item.column < 0) {
      for (let row = 0; row < rows.length; row++) if (isSeen(row)) for (const column of strongest(matrix, row, LINES_A_ROW)) line(row, column);
    }
    const side = (name, pieces, x, align) => pieces.forEach((piece, index) => {
      if (!isSeen(index)) return;
      const strong = isMarked(name, index);
      pen.text(clipped(shown(piece), LABEL_ROOM), x, height(index), { color: strong ? mark : plain, size: Math.min(LABEL + 1, Math.max(pitch, 7)), align, bold: strong });
    });
    side("row", rows, from - 6, "right");
    side("column", columns, to + 6, "left");
    pen.rect(0, 0, frame.width, HEADING - 2, ground);
    pen.text(matrix.attention.rows, from - 6, 11, { color: faint, align: "right" });
    pen.text("looks at " + matrix.attention.columns, to + 6, 11, { color: faint, align: to + 130 > frame.width ? "right" : "left" });
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

const thumbnails = new Map();
const THUMBNAILS_KEPT = 400;

function thumbnail(panel, attention, layer, head) {
  const key = [page.readings.indexOf(panel.reading), attention.kind, layer, head, state.measure, paint()].join();
  if (!thumbnails.has(key)) {
    const matrix = matrixOf(panel.reading, attention, layer, head, state.measure);
    if (!matrix) return null;
    if (thumbnails.size > THUMBNAILS_KEPT) thumbnails.clear();
    thumbnails.set(key, bitmapOf(matrix, 128));
  }
  return thumbnails.get(key);
}

const gridView = {
  name: "all heads", key: "g", hasOwnScales: true,
  isThere: matrixView.isThere,
  // Rollout and gradients have no heads: one image per layer, or one in all.
  layout(panel) {
    const attention = attentionOf(panel.reading), measure = hasMeasure(panel.reading, attention, state.measure) ? state.measure : "weights";
    const heads = { rollout: 1, gradient: 1 }[measure] || attention.heads;
    const isWhole = measure === "gradient", layers = isWhole ? 1 : attention.layers;
    const pad = 6, side = Math.min((panel.width - 40) / heads, (panel.height - 40) / layers);
    return { attention, isWhole, heads, layers, pad, side: clamp(clamp(side, 56, 320) * 1.25 ** state.zoom, 24, 900) };
  },
  extent(panel) {
    const { layers, heads, side } = this.layout(panel);
    return { width: 40 + heads * side, height: 40 + layers * side };
  },
  draw(pen, panel, frame) {
    const { attention, isWhole, layers, heads, pad, side } = this.layout(panel), [faint, mark, line] = ["faint", "mark", "line"].map(ink);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const x = 34 + head * side - frame.x, y = 30 + layer * side - frame.y;
        if (x > frame.width || y > frame.height || x + side < 0 || y + side < 0) continue;
        const image = thumbnail(panel, attention, layer, head + 1);
        if (image) pen.bitmap(image, x, y, side - pad, side - pad);
        const isHere = hovered && hovered.layer === layer + 1 && hovered.head === head + 1;
        const isChosen = layer + 1 === state.layer && (heads === 1 || head + 1 === state.head);
        pen.frame(x - 0.5, y - 0.5, side - pad + 1, side - pad + 1, isHere || isChosen ? mark : line, isHere || isChosen ? 2 : 1);
      }
    }
    for (let layer = 0; layer < layers; layer++) pen.text(isWhole ? "model" : "layer " + layerNumber(panel.run, attention.kind, layer + 1), 14, 30 + (layer + 0.45) * side - frame.y, { color: faint, align: "center", rotated: true });
    for (let head = 0; head < heads; head++) pen.text(heads > 1 ? "head " + (head + 1) : MEASURES[state.measure].name, 34 + (head + 0.48) * side - frame.x, 15 - frame.y, { color: faint, align: "center" });
  },
  at(panel, x, y) {
    const { layers, heads, side } = this.layout(panel), frame = frameOf(panel);
    const head = Math.floor((x + frame.x - 34) / side) + 1, layer = Math.floor((y + frame.y - 30) / side) + 1;
    return head >= 1 && head <= heads && layer >= 1 && layer <= layers ? { layer, head, row: -1, column: -1 } : null;
  },
  choose(item) { set({ layer: item.layer, head: item.head, view: "matrix" }); },
};

// The tree of a search: a column per token, with the candidates of a step from the most probable down.
const COLUMN = 118, ROW = 24, TREE_TOP = 30;

// Nodes as objects, with the tokens of their prefix, and whether they lead to the best hypothesis.
function treeOf(reading) {
  const search = reading && reading.search;
  if (!search || search.tree) return search && search.tree;
  const nodes = search.nodes.map((values) => Object.fromEntries(values.map((value, index) => [search.fields[index], value])));
  nodes.forEach((node) => {
    node.tokens = node.parent < 0 ? [node.token] : [...nodes[node.parent].tokens, node.token];
    node.text = node.parent < 0 ? node.piece : nodes[node.parent].text + node.piece;
  });
  for (let index = search.hypotheses.length ? search.hypotheses[0] : -1; index >= 0; index = nodes[index].parent) nodes[index].isBest = true;
  const depth = 1 + nodes.reduce((most, node) => Math.max(most, node.position), 0);
  const height = 1 + nodes.reduce((most, node) => Math.max(most, node.rank), 0);
  search.opened = new Set();
  search.tree = { search, nodes, depth, height };
  return search.tree;
}

const treeView = {
  name: "search", key: "t", hasNoScale: true,
  isThere: () => Boolean((readingOf(state.run) || {}).search),
  scale: () => 1.25 ** Math.min(state.zoom, 3),
  extent(panel) {
    const tree = treeOf(panel.reading);
    return tree ? { width: 20 + tree.depth * COLUMN * this.scale(), height: TREE_TOP + tree.height * ROW * this.scale() + 10 } : { width: 0, height: 0 };
  },
  boxOf(node) {
    const scale = this.scale();
    return { x: 10 + node.position * COLUMN * scale, y: TREE_TOP + node.rank * ROW * scale, width: (COLUMN - 26) * scale, height: (ROW - 5) * scale };
  },
  draw(pen, panel, frame) {
    const tree = treeOf(panel.reading), [plain, faint, mark, ground, line, blue] = ["ink", "faint", "mark", "ground", "line", "chosen"].map(ink);
    if (!tree) return pen.text("no search was traced for this run", 20, 40, { color: faint });
    const isSeen = ({ x, width }) => x + width + COLUMN > frame.x && x - COLUMN < frame.x + frame.width;
    const size = 11 * Math.min(this.scale(), 1.3);
    for (const node of tree.nodes) {
      const to = this.boxOf(node);
      if (node.parent < 0 || !isSeen(to)) continue;
      const from = this.boxOf(tree.nodes[node.parent]);
      pen.curve(from.x + from.width - frame.x, from.y + from.height / 2 - frame.y, to.x - frame.x, to.y + to.height / 2 - frame.y,
        node.isBest ? mark : node.status === "dropped" ? line : blue, node.isBest ? 1 : 0.7, node.isBest ? 2.5 : 1);
    }
    tree.nodes.forEach((node, index) => {
      const box = this.boxOf(node), x = box.x - frame.x, y = box.y - frame.y;
      if (!isSeen(box)) return;
      const isPointed = hovered && hovered.node >= 0;
      const isChosen = isPointed ? panels[hovered.panel] === panel && hovered.node === index : panel.run === state.run && state.node === index;
      pen.rect(x, y, box.width, box.height, node.status === "finished" ? ink("shade") : ground);
      pen.frame(x, y, box.width, box.height, isChosen || node.isBest ? mark : node.status === "kept" ? blue : node.status === "finished" ? plain : line, isChosen ? 3 : node.status === "finished" ? 2 : 1);
      const color = node.status === "dropped" ? faint : plain, value = node.log_prob.toFixed(2);
      ruler.font = `${size}px ${FONT}`;
      const room = box.width - ruler.measureText(value).width - 16;
      pen.text(clipped(shown(node.piece), room), x + 5, y + box.height / 2, { color, size, bold: node.status === "finished" });
      pen.text(value, x + box.width - 5, y + box.height / 2, { color: faint, size: size - 1, align: "right" });
    });
    for (let position = 0; position < tree.depth; position++) {
      const x = this.boxOf({ position, rank: 0 }).x - frame.x;
      if (x > -COLUMN && x < frame.width) pen.text("token " + (position + 1), x, 13 - frame.y, { color: faint });
    }
  },
  at(panel, x, y) {
    const tree = treeOf(panel.reading), frame = frameOf(panel);
    const node = tree ? tree.nodes.findIndex((each) => {
      const box = this.boxOf(each);
      return x + frame.x >= box.x && x + frame.x <= box.x + box.width && y + frame.y >= box.y && y + frame.y <= box.y + box.height;
    }) : -1;
    return node >= 0 ? { node } : null;
  },
  choose(item, panel) {
    const isHere = panel.run === state.run;
    set({ run: panel.run, ...isHere ? {} : { beside: state.run }, node: isHere && item.node === state.node ? -1 : item.node });
  },
  inspect(panel, item) {
    const tree = treeOf(panel.reading), node = tree && tree.nodes[item.node >= 0 ? item.node : state.node];
    return node ? inspectNode(tree, node) : tree ? inspectSearch(tree) : [];
  },
};

const cell = (content, kind = "number") => element("td", content, { className: kind });
const fixed = (value) => value.toFixed(2);

// The finished hypotheses, and their rank without the length penalty.
function inspectSearch(tree) {
  const { search, nodes } = tree, finished = search.hypotheses.map((index) => ({ index, node: nodes[index] }));
  const unpenalized = [...finished].sort((a, b) => b.node.log_prob - a.node.log_prob);
  const counts = ["kept", "dropped", "finished"].map((status) => `${nodes.filter((node) => node.status === status).length} ${status}`).join(", ");
  const rows = finished.flatMap(({ index, node }, rank) => [
    element("tr", [
      cell(String(rank + 1)), cell(String(unpenalized.findIndex((each) => each.index === index) + 1)), cell(String(node.position + 1)),
      cell(fixed(node.log_prob)), cell(fixed(node.divisor)), cell(fixed(node.score)),
    ]),
    element("tr", element("td", element("button", textOf(node), { type: "button", onclick: () => set({ node: index }) }), { colSpan: 6 })),
  ]);
  return [
    element("h2", `beam search, ${search.beamWidth} beams`), element("p", `prefixes: ${counts}. Best path in orange; click a box for what may follow it.`),
    element("h2", "finished"),
    element("p", `score = log-probability / penalty, the penalty ((5 + tokens) / 6)^${search.lengthPenalty} (Wu et al. 2016); "without" is the rank without it`),
    element("table", [element("tr", ["#", "without", "len", "log p", "pen.", "score"].map((text) => element("th", text, { className: "number" }))), ...rows]),
  ];
}

const textOf = (node) => shown(node.text.replace(/<\/s>$/, "")).replaceAll("\u2423", " ").trim() || "(empty)";

function inspectNode(tree, node) {
  const before = node.parent < 0 ? 0 : tree.nodes[node.parent].log_prob, parts = [
    element("h2", textOf(node)),
    element("p", `${{ kept: "kept in the beam", dropped: "dropped", finished: "finished" }[node.status]} at token ${node.position + 1}, rank ${node.rank + 1} of its step`),
    element("p", `this token: probability ${Math.exp(node.log_prob - before).toFixed(3)}; log-probability of all ${fixed(node.log_prob)}` +
      (node.score === null ? "" : `; / ${fixed(node.divisor)} = score ${fixed(node.score)}`)),
  ];
  if (node.status === "dropped") parts.push(...forcedParts(tree.search, node.tokens.join()));
  const { search } = tree, siblings = node.parent < 0 ? search.first : tree.nodes[node.parent].following;
  for (const [title, options, tokens] of [["what may follow", node.following, node.tokens], ["instead of this token", siblings, node.tokens.slice(0, -1)]]) {
    if (!options.length) continue;
    parts.push(element("h2", title), element("table", options.flatMap(([token, piece, logProb]) => {
      const bar = element("i"), key = [...tokens, token].join(), isKnown = key in search.forced;
      bar.style.width = 100 * Math.exp(logProb) + "%";
      const open = () => {
        const isToAsk = !isKnown || search.forced[key].failed;
        if (isToAsk || !search.opened.delete(key)) search.opened.add(key);
        if (isToAsk) ask(search, key, [...tokens, token]);
        inspect();
      };
      const canOpen = isKnown || page.served || live;
      const button = element("button", shown(piece), { type: "button", onclick: open, disabled: !canOpen, title: canOpen ? "what the search finds with it" : "not computed ahead" });
      const below = search.opened.has(key) ? forcedParts(search, key) : [];
      if (live && below.length && token !== node.token && options === siblings) below.push(live.why(readingOf(state.run), tokens, [node.token, node.piece], [token, piece]));
      const row = element("tr", [element("td", button), cell(Math.exp(logProb).toFixed(3)), cell(bar, "bar")]);
      return [row, ...below.map((part) => element("tr", element("td", part, { colSpan: 3 })))];
    })));
  }
  return parts;
}

// The result of the search forced to begin with the tokens of a key: precomputed, or requested from the run.
function forcedParts(search, key) {
  const found = search.forced[key];
  if (!found) return [];
  if (found.words) return [element("p", found.words + (found.failed ? " Click again to ask again." : ""))];
  return [element("p", ["forced: ", element("b", found.text || "(empty)"), ` log p ${fixed(found.logProb)}, score ${fixed(found.score)}`])];
}

function ask(search, key, prefix) {
  if (live) return live.force(search, key, prefix);
  search.forced[key] = { words: "asking the run …" };
  const question = JSON.stringify({ run: state.run, text: readingOf(state.run).source, prefix });
  fetch("forced", { method: "POST", headers: { "content-type": "application/json" }, body: question })
    .then((answer) => answer.json()).then((answer) => { search.forced[key] = answer.error ? { words: answer.error + ".", failed: true } : answer; })
    .catch(() => { search.forced[key] = { words: "no answer; is explore --serve still running?", failed: true }; })
    .then(inspect);
}

// Head statistics: a table of layers and heads for each statistic.
const NUMBER = 48, LINE = 22, GAP = 26;

const statisticsView = {
  name: "statistics", key: "h", hasNoScale: true,
  isThere: () => page.statistics.some((each) => each.run === state.run),
  // The tables of the current kind, if any, side by side under their source.
  layout(panel) {
    const own = page.statistics.filter((each) => each.run === panel.run), tables = [], headings = [];
    const ofKind = own.filter((each) => each.kind === state.kind), seen = ofKind.length ? ofKind : own.filter((each) => each.kind === own[0].kind);
    let y = 0;
    for (const source of new Set(seen.map((each) => each.source))) {
      headings.push({ text: `${seen[0].kind} attention, ${source}`, y: y + 16 });
      let x = 10, tallest = 0;
      y += 34;
      for (const { title, values } of seen.filter((each) => each.source === source)) {
        const width = Math.max(34 + values[0].length * NUMBER, 210), height = 46 + values.length * LINE;
        if (x > 10 && x + width > panel.width) [x, y, tallest] = [10, y + tallest, 0];
        tables.push({ kind: seen[0].kind, title, values, x, y, width, height });
        x += width + GAP;
        tallest = Math.max(tallest, height + 14);
      }
      y += tallest;
    }
    return { tables, headings: own.length ? headings : [{ text: "no statistics for this run", y: 16 }], height: y };
  },
  extent(panel) {
    const { tables, height } = this.layout(panel);
    return { width: Math.max(300, ...tables.map((each) => each.x + each.width + 10)), height: Math.max(34, height) };
  },
  draw(pen, panel, frame) {
    const [plain, faint, mark] = ["ink", "faint", "mark"].map(ink), { tables, headings } = this.layout(panel);
    for (const { text, y } of headings) pen.text(text, 10 - frame.x, y - frame.y, { color: faint, size: 13 });
    for (const table of tables) {
      const x = table.x - frame.x, y = table.y - frame.y, all = table.values.flat(), largest = Math.max(...all, 1e-9);
      pen.text(table.title, x, y + 8, { color: plain, bold: true });
      table.values[0].forEach((_, head) => pen.text("h" + (head + 1), x + 30 + (head + 0.5) * NUMBER, y + 26, { color: faint, size: 11, align: "center" }));
      table.values.forEach((heads, layer) => {
        const top = y + 36 + layer * LINE;
        pen.text("l" + layerNumber(panel.run, table.kind, layer + 1), x + 4, top + LINE / 2, { color: faint, size: 11 });
        heads.forEach((value, head) => {
          const left = x + 30 + head * NUMBER, share = value / largest;
          pen.rect(left, top, NUMBER - 2, LINE - 2, cssColor(value, { largest, isSigned: false }));
          const onDark = state.palette === "cividis" ? share < 0.55 : isDark() ? share < 0.6 : share > 0.55;
          pen.text(value.toFixed(largest >= 10 ? 1 : 2), left + NUMBER / 2 - 1, top + LINE / 2 - 1, { color: onDark ? "#ffffff" : "#10161c", size: 11, align: "center" });
          if (layer + 1 === state.layer && head + 1 === state.head) pen.frame(left - 1, top - 1, NUMBER, LINE, mark, 2);
        });
      });
    }
  },
  at(panel, x, y) {
    const frame = frameOf(panel);
    for (const table of this.layout(panel).tables) {
      const head = Math.floor((x + frame.x - table.x - 30) / NUMBER), layer = Math.floor((y + frame.y - table.y - 36) / LINE);
      if (table.values[layer] && table.values[layer][head] !== undefined) return { kind: table.kind, layer: layer + 1, head: head + 1, title: table.title, value: table.values[layer][head] };
    }
    return null;
  },
  choose(item) { set({ kind: item.kind, layer: item.layer, head: item.head, view: "matrix" }); },
  inspect(panel, item) {
    return item.title ? [element("h2", `layer ${layerNumber(panel.run, item.kind, item.layer)}, head ${item.head}`), element("p", `${item.title}: ${item.value}`), element("p", "click to open it")]
      : [element("h2", "head statistics"), element("p", "Averages over all queries; padding never counts. Click a number to open the head.")];
  },
};

const VIEWS = { matrix: matrixView, lines: linesView, grid: gridView, search: treeView, statistics: statisticsView };
const paint = () => [state.palette, isDark() ? "dark" : "light", state.shades].join();

// ---------------------------------------------------------------- inspector

function element(tag, content = "", options = {}) {
  const parts = [content].flat(), isText = parts.every((part) => typeof part !== "object");
  const made = Object.assign(document.createElement(tag), isText ? { dir: "auto" } : {}, options);
  made.append(...parts);
  return made;
}

const TOP = 8;

// Tokens with their values, the furthest from zero first.
function ranking(pieces, values, largest, choose) {
  const order = [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, TOP);
  return element("table", order.map((index) => {
    const bar = element("i", "", { className: values[index] < 0 ? "negative" : "" });
    bar.style.width = 100 * Math.abs(values[index]) / (largest || 1) + "%";
    const button = element("button", shown(pieces[index]), { type: "button", title: "position " + (index + 1), onclick: () => choose(index) });
    return element("tr", [element("td", button), cell(number(values[index])), cell(bar, "bar")]);
  }));
}

function inspectToken(matrix, item, panel) {
  const { rows, columns, values, attention } = matrix, parts = [];
  if (item.row >= rows.length || item.column >= columns.length) return [];
  const name = (piece, index) => `${shown(piece)} (${index + 1})`;
  const along = { row: (index) => values.subarray(index * columns.length, (index + 1) * columns.length), column: (index) => Float32Array.from(rows, (_, row) => values[row * columns.length + index]) };
  if (item.row >= 0 && item.column >= 0) {
    parts.push(element("h2", `${name(rows[item.row], item.row)} → ${name(columns[item.column], item.column)}`));
    parts.push(element("p", `${MEASURES[matrix.measure].name} ${number(values[item.row * columns.length + item.column])}`));
  }
  const both = attention.rows === attention.columns, row = item.row >= 0 ? item.row : both ? item.column : -1;
  const column = item.column >= 0 ? item.column : both ? item.row : -1;
  if (row >= 0) {
    parts.push(element("h2", `${name(rows[row], row)} looks at`));
    if (attention.rows === "target" && panel.reading.logProbs.length) {
      parts.push(element("p", `probability of this token ${Math.exp(panel.reading.logProbs[row]).toFixed(3)}`));
    }
    parts.push(ranking(columns, along.row(row), matrix.largest, (index) => set({ column: index, row: -1 })));
    if (live && attention.rows === "target") parts.push(...live.inspect(panel, row));
  }
  if (column >= 0) {
    parts.push(element("h2", `${name(columns[column], column)} is looked at by`));
    parts.push(ranking(rows, along.column(column), matrix.largest, (index) => set({ row: index, column: -1 })));
  }
  return parts;
}

// The tree of a parser: a constituent or word a line, which chooses the token that wrote it.
function outline(tree, chosen) {
  return [element("h2", "tree"), ...tree.map(([depth, text, row]) => {
    const line = element("p", element("button", text, { type: "button", disabled: row < 0, ariaPressed: row >= 0 && row === chosen, onclick: () => set({ row, column: -1 }) }));
    line.style.paddingLeft = `${0.7 * depth}em`;
    return line;
  })];
}

// Draws the inspector, but not while someone types into it and the reading stays. The button that has the focus keeps it; where it is gone, the inspector has it.
function inspect() {
  const box = byId("inspector"), focused = box.contains(document.activeElement) ? document.activeElement : null;
  if (focused && focused.form && inspectedReading === panels[0].reading) return;
  inspectedReading = panels[0].reading;
  box.replaceChildren(...inspected());
  if (!focused) return;
  const same = [...box.querySelectorAll("button")].find((each) => each.textContent === focused.textContent && each.title === focused.title);
  (same || box).focus({ preventScroll: true });
}

function inspected() {
  const panel = panels[hovered ? hovered.panel : 0], item = hovered || state, view = VIEWS[state.view];
  if (view.inspect) return view.inspect(panel, item);
  const parts = [], matrix = currentMatrix(panel);
  if (matrix && (item.row >= 0 || item.column >= 0)) parts.push(...inspectToken(matrix, item, panel));
  else if (hovered && hovered.layer) parts.push(element("h2", `layer ${layerNumber(panel.run, state.kind, hovered.layer)}, head ${hovered.head}`), element("p", "click to open it"));
  else if (matrix) {
    parts.push(element("h2", MEASURES[matrix.measure].name), element("p", MEASURES[matrix.measure].source));
    if (matrix.measure !== state.measure) parts.push(element("p", `this model has no ${MEASURES[state.measure].name} here`));
    parts.push(element("p", "Point at a token to see where it looks and who looks at it; click to keep it. Press ? for the keys."));
  }
  if (matrix && matrix.attention.rows === "target" && panel.reading.tree.length) parts.push(...outline(panel.reading.tree, item.row));
  return parts;
}

// ---------------------------------------------------------------- panels

let panels = [], hovered = null, inspectedReading = null;

function makePanel(run, index) {
  const canvas = element("canvas", "", { tabIndex: 0 });
  const extent = element("div", canvas), scroller = element("div", extent, { className: "scroller" });
  const caption = element("figcaption"), figure = element("figure", [caption, scroller]);
  const panel = { run, figure, caption, scroller, extent, canvas, context: canvas.getContext("2d"), reading: null, width: 0, height: 0 };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const found = VIEWS[state.view].at(panel, event.clientX - box.left, event.clientY - box.top);
    return found && { row: -1, column: -1, node: -1, ...found, panel: index };
  };
  canvas.addEventListener("pointermove", (event) => point(event.pointerType === "touch" ? null : at(event)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => {
    const found = at(event), view = VIEWS[state.view];
    if (found && view.choose) return view.choose(found, panel);
    set(found && !(found.row === state.row && found.column === state.column) ? { row: found.row, column: found.column } : { row: -1, column: -1 });
  });
  scroller.addEventListener("scroll", () => requestAnimationFrame(() => drawPanel(panel)));
  return panel;
}

function point(found) {
  if (JSON.stringify(found) === JSON.stringify(hovered)) return;
  hovered = found;
  panels.forEach(drawPanel);
  inspect();
}

function arrangePanels() {
  const runs = [state.run, ...(state.beside >= 0 ? [state.beside] : [])];
  if (runs.join() !== panels.map((panel) => panel.run).join()) {
    panels = runs.map(makePanel);
    byId("panels").replaceChildren(...panels.map((panel) => panel.figure));
  }
  for (const panel of panels) {
    panel.reading = readingOf(panel.run);
    const run = page.runs[panel.run], translation = panel.reading && panel.reading.translation;
    const named = page.runs.length > 1 ? [element("b", run.name), ` ${run.detail}  `] : [];
    panel.caption.replaceChildren(...named, ...(translation === null || translation === undefined ? [] : [translation]));
    panel.canvas.setAttribute("aria-label", `${VIEWS[state.view].name} of ${run.name}, ${run.detail}`);
  }
}

const frameOf = (panel) => ({ x: panel.scroller.scrollLeft, y: panel.scroller.scrollTop, width: panel.width, height: panel.height });

// Draws the visible part of the view; returns false while its arrays are being unpacked.
function drawPanel(panel) {
  panel.width = panel.scroller.clientWidth;
  panel.height = panel.scroller.clientHeight;
  const size = VIEWS[state.view].extent(panel), ratio = window.devicePixelRatio || 1;
  if (!size) return false;
  panel.extent.style.width = Math.max(size.width, panel.width) + "px";
  panel.extent.style.height = Math.max(size.height, panel.height) + "px";
  // A scroll bar may have come or gone.
  panel.width = panel.scroller.clientWidth;
  panel.height = panel.scroller.clientHeight;
  const [width, height] = [Math.round(panel.width * ratio), Math.round(panel.height * ratio)];
  if (panel.canvas.width !== width || panel.canvas.height !== height) {
    [panel.canvas.width, panel.canvas.height] = [width, height];
    panel.canvas.style.width = panel.width + "px";
    panel.canvas.style.height = panel.height + "px";
  }
  panel.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  panel.context.clearRect(0, 0, panel.width, panel.height);
  VIEWS[state.view].draw(new CanvasPen(panel.context), panel, frameOf(panel));
  return true;
}

function render() {
  document.documentElement.dataset.theme = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  arrangePanels();
  showControls();
  for (const show of onRender) show();
  if (live) live.show();
  const drawn = panels.map((panel) => panel.reading && drawPanel(panel));
  inspect();
  if (drawn.every(Boolean) && !performance.getEntriesByName("first view").length) performance.mark("first view");
}

// ---------------------------------------------------------------- controls

const KEYS = [
  ["← →", "head"], ["↑ ↓", "layer"], ["0", "all heads together"],
  ["m b g t h", "matrix, lines, all heads, search tree, head statistics"],
  ["e d c", "encoder, decoder, cross attention"],
  ["w r n x", "weights, rollout, norms, gradient × input"],
  ["[ ]", "text before, after"], ["s", "another run beside this one"], ["+ - =", "larger, smaller, fitted"], ["/", "find a token; Enter: the next"],
  ["Esc", "let go of a token"], ["k", "light or dark"], ["l", "colors"], ["v", "shades by the value or by its square root, for faint ones"], ["o p", "save as SVG, PNG"], ["?", "these keys"],
];

function choice(id, options, name, isThere) {
  const group = byId(id);
  if (!group.children.length) {
    group.append(...Object.entries(options).map(([value, { name: title, key }]) =>
      element("button", title, { type: "button", value, title: `${title} (${key})`, onclick: () => set({ [name]: value }) })));
  }
  for (const button of group.children) {
    button.setAttribute("aria-pressed", String(button.value === state[name]));
    button.disabled = !isThere(button.value);
  }
}

function fill(id, options, value) {
  const select = byId(id), wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.replaceChildren(...options.map(([key, title]) => new Option(title, key)));
    select.dataset.options = wanted;
  }
  select.value = value;
  select.disabled = options.length < 2;
}

const counted = (count) => Array.from({ length: count }, (_, index) => index);

function showControls() {
  const reading = readingOf(state.run), attention = attentionOf(reading);
  const texts = counted(1 + Math.max(...page.readings.map((each) => each.text)));
  const short = (text) => text.length > 60 ? text.slice(0, 59) + "…" : text;
  fill("text", texts.map((index) => [index, `${live && index === texts.length - 1 ? "live" : index + 1}: ${short(page.readings.find((each) => each.text === index).source)}`]), state.text);
  const runs = page.runs.map((run, index) => [index, `${run.name} (${run.detail})`]);
  fill("run", runs, state.run);
  fill("beside", [[-1, "nothing"], ...(runs.length > 1 ? runs : [])], state.beside);
  fill("palette", Object.keys(PALETTES).map((name) => [name, name]), state.palette);
  choice("view", VIEWS, "view", (name) => VIEWS[name].isThere());
  const kinds = Object.fromEntries(Object.entries(KEY_OF_KIND).map(([name, key]) => [name, { name, key }]));
  choice("kind", kinds, "kind", (kind) => reading.attentions.some((each) => each.kind === kind));
  choice("measure", MEASURES, "measure", (measure) => Boolean(attention) && hasMeasure(reading, attention, measure));
  fill("layer", counted(attention ? attention.layers : 0).map((index) => [index + 1, layerNumber(state.run, state.kind, index + 1)]), state.layer);
  fill("head", [[0, "all"], ...counted(attention ? attention.heads : 0).map((index) => [index + 1, index + 1])], state.head);
  byId("source").textContent = reading.source;
  byId("remarks").textContent = (reading.remarks || []).join("; ");
  byId("remarks").hidden = !byId("remarks").textContent;
  showScale();
}

function showScale() {
  const matrix = panels.length && attentionOf(panels[0].reading) ? currentMatrix(panels[0]) : null;
  const [canvas, words] = byId("scale").children;
  byId("scale").hidden = !matrix || VIEWS[state.view].hasNoScale;
  if (!matrix) return;
  const image = new ImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer), table = colorTable(matrix.isSigned);
  const scale = { largest: 1, isSigned: matrix.isSigned }, least = matrix.isSigned ? -1 : 0, largest = largestBeside(matrix);
  pixels.forEach((_, index) => { pixels[index] = table[stepOf(least + (1 - least) * (index % canvas.width) / (canvas.width - 1), scale)]; });
  canvas.getContext("2d").putImageData(image, 0, 0);
  words.textContent = VIEWS[state.view].hasOwnScales ? `${least ? "−largest" : 0} … largest of each picture` : `${least ? number(-largest) : 0} … ${number(largest)}`;
}

function find(text, forward) {
  const matrix = currentMatrix(panels[0]), wanted = text.trim().toLowerCase();
  if (!matrix || !wanted) return void (byId("said").textContent = "");
  const hits = ["row", "column"].flatMap((side) => matrix[side + "s"].flatMap((piece, index) => shown(piece).toLowerCase().includes(wanted) ? [{ side, index }] : []));
  const here = hits.findIndex(({ side, index }) => state[side] === index);
  const next = !hits.length ? -1 : here < 0 ? 0 : (here + (forward ? 1 : 0)) % hits.length;
  byId("said").textContent = hits.length ? `${next + 1} of ${hits.length}` : "no such token";
  if (next < 0) return;
  const { side, index } = hits[next];
  set({ row: -1, column: -1, [side]: index });
  if (VIEWS[state.view].show) VIEWS[state.view].show(panels[0], side, index);
}

function press(key) {
  const attention = attentionOf(readingOf(state.run)), { layer, head } = state, palettes = Object.keys(PALETTES);
  const runs = counted(page.runs.length), next = [...runs.slice(state.run + 1), ...runs.slice(0, state.run)].find(readingOf);
  const cyclic = (value, by, low, high) => value + by > high ? low : value + by < low ? high : value + by;
  const actions = {
    ArrowLeft: () => attention && set({ head: cyclic(head, -1, 0, attention.heads) }),
    ArrowRight: () => attention && set({ head: cyclic(head, 1, 0, attention.heads) }),
    ArrowUp: () => attention && set({ layer: cyclic(layer, -1, 1, attention.layers) }),
    ArrowDown: () => attention && set({ layer: cyclic(layer, 1, 1, attention.layers) }),
    0: () => set({ head: 0 }),
    "[": () => set({ text: state.text - 1 }), "]": () => set({ text: state.text + 1 }),
    s: () => set({ beside: state.beside >= 0 || next === undefined ? -1 : next }),
    "+": () => set({ zoom: state.zoom + 1 }), "-": () => set({ zoom: state.zoom - 1 }), "=": () => set({ zoom: 0 }),
    "/": () => byId("search").focus(),
    Escape: () => set({ row: -1, column: -1, node: -1 }),
    k: () => set({ theme: isDark() ? "light" : "dark" }),
    l: () => set({ palette: palettes[(palettes.indexOf(state.palette) + 1) % palettes.length] }),
    v: () => set({ shades: state.shades === "root" ? "linear" : "root" }),
    o: saveSvg, p: savePng,
    "?": () => byId("keys").open ? byId("keys").close() : byId("keys").showModal(),
  };
  for (const [name, view] of Object.entries(VIEWS)) actions[view.key] = () => view.isThere() && set({ view: name });
  for (const [name, letter] of Object.entries(KEY_OF_KIND)) actions[letter] = () => set({ kind: name });
  for (const [name, measure] of Object.entries(MEASURES)) actions[measure.key] = () => set({ measure: name });
  Object.assign(actions, otherKeys, live ? live.keys : {});
  if (!actions[key]) return false;
  actions[key]();
  return true;
}

function listen() {
  for (const name of ["text", "run", "beside", "layer", "head"]) {
    byId(name).addEventListener("change", (event) => set({ [name]: Number(event.target.value) }));
  }
  byId("palette").addEventListener("change", (event) => set({ palette: event.target.value }));
  byId("theme").addEventListener("click", () => press("k"));
  byId("smaller").addEventListener("click", () => press("-"));
  byId("larger").addEventListener("click", () => press("+"));
  byId("svg").addEventListener("click", saveSvg);
  byId("png").addEventListener("click", savePng);
  byId("help").addEventListener("click", () => press("?"));
  byId("ask").hidden = !page.served;
  byId("search").addEventListener("input", (event) => find(event.target.value, false));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target === byId("search")) {
      if (event.key === "Enter") find(event.target.value, true);
      if (event.key === "Escape") event.target.blur();
      return;
    }
    // A slider has the arrow keys only.
    const { tagName, type } = event.target, isTaken = type === "range" ? event.key.startsWith("Arrow") : ["SELECT", "INPUT", "TEXTAREA", "SUMMARY"].includes(tagName);
    if (isTaken || (byId("keys").open && event.key !== "?")) return;
    if (press(event.key)) event.preventDefault();
  });
  window.addEventListener("beforeprint", showSheet);
  window.addEventListener("afterprint", hideSheet);
  window.addEventListener("hashchange", () => { readAddress(); settle(); render(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  new ResizeObserver(() => panels.forEach((panel) => panel.reading && drawPanel(panel))).observe(byId("panels"));
  byId("keys").append(element("table", KEYS.map(([keys, meaning]) => element("tr", [element("td", element("kbd", keys)), element("td", meaning)]))), element("button", "close", { type: "button", onclick: () => byId("keys").close() }));
}

// ---------------------------------------------------------------- export

const LARGEST_PICTURE = 6000, CAPTION = 24;

// Waits until all arrays of the view are unpacked.
async function unpackView() {
  do {
    await Promise.all(unpacking.values());
    for (const panel of drawnPanels()) VIEWS[state.view].draw(new SvgPen(), panel, partOf(panel));
  } while (unpacking.size);
}

const drawnPanels = () => panels.filter((panel) => panel.reading && VIEWS[state.view].extent(panel));

// The whole view if it is not too large, else its visible part.
function partOf(panel) {
  const size = VIEWS[state.view].extent(panel);
  return size.width <= LARGEST_PICTURE && size.height <= LARGEST_PICTURE ? { x: 0, y: 0, ...size } : frameOf(panel);
}

// The panels of the view side by side, with the names of the runs if there are several.
function layoutOfPicture() {
  const top = panels.length > 1 ? CAPTION : 0;
  let width = 0, height = 0;
  const parts = drawnPanels().map((panel) => {
    const frame = partOf(panel), left = width;
    width += Math.ceil(frame.width);
    height = Math.max(height, Math.ceil(frame.height) + top);
    return { panel, frame, left };
  });
  return { parts, width, height, top };
}

function drawPicture(pen, { parts, width, height, top }) {
  pen.rect(0, 0, width, height, ink("ground"));
  for (const { panel, frame, left } of parts) {
    const run = page.runs[panel.run];
    if (top) pen.inside(left, 0, frame.width, top, (inner) => inner.text(clipped(`${run.name} ${run.detail}`, frame.width - 12), 6, top / 2, { color: ink("ink"), bold: true }));
    pen.inside(left, top, frame.width, frame.height, (inner) => VIEWS[state.view].draw(inner, panel, frame));
  }
}

function save(blob, ending) {
  const name = [state.view, state.kind, "layer", layerNumber(state.run, state.kind, state.layer), "head", state.head, state.measure].join("-") + ending;
  const link = element("a", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function drawnSvg() {
  const pen = new SvgPen(), layout = layoutOfPicture();
  drawPicture(pen, layout);
  return pen.svg(layout.width, layout.height);
}

async function svgPicture() {
  await unpackView();
  return drawnSvg();
}

// Paper shows the whole view in light colors, not the part in the window.
function showSheet() {
  document.documentElement.dataset.theme = "light";
  byId("sheet").replaceChildren(new DOMParser().parseFromString(drawnSvg(), "image/svg+xml").documentElement);
}

function hideSheet() {
  byId("sheet").replaceChildren();
  render();
}

async function saveSvg() { save(new Blob([await svgPicture()], { type: "image/svg+xml" }), ".svg"); }

async function pngPicture() {
  await unpackView();
  const layout = layoutOfPicture(), canvas = document.createElement("canvas");
  const scale = Math.min(2, LARGEST_PICTURE / Math.max(layout.width, layout.height));
  [canvas.width, canvas.height] = [Math.ceil(layout.width * scale), Math.ceil(layout.height * scale)];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  drawPicture(new CanvasPen(context), layout);
  return canvas;
}

async function savePng() { (await pngPicture()).toBlob((blob) => save(blob, ".png")); }

// ---------------------------------------------------------------- start

function start() {
  Object.assign(initial, state);
  readAddress();
  settle();
  listen();
  render();
}

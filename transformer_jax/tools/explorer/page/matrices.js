// The matrix of a head, or of all heads, under a measure.

function hasMeasure(reading, attention, measure) {
  const own = { weights: true, norms: true, rollout: attention.rollout.length > 0, gradient: attention.kind in reading.gradients };
  return measure in own ? own[measure] : MEASURES[measure].isThere(reading);
}

const matrices = new Map();
const MATRICES_KEPT = 64;

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


"use strict";
// Vectors are Float32Arrays, a sequence is an array of vectors. A matrix is { rows, columns, data }, stored by row.

const counted = (count) => Array.from({ length: count }, (_, index) => index);

// The parameters by path: { shape, values } of blobs in 16-bit floats, or in 8 bits with a scale for each row.
function unpackParameters(entries, bytes) {
  const found = new Map();
  let offset = 0;
  for (const { path, shape, scales } of entries) {
    const size = shape.reduce((product, length) => product * length, 1), values = new Float32Array(size);
    if (scales) {
      const width = size / scales.length;
      for (let index = 0; index < size; index++) values[index] = (bytes[offset + index] << 24 >> 24) * scales[Math.floor(index / width)];
      offset += size;
    } else {
      for (let index = 0; index < size; index++) values[index] = fromHalf(bytes[offset + 2 * index] | bytes[offset + 2 * index + 1] << 8);
      offset += 2 * size;
    }
    found.set(path, { shape, values });
  }
  return found;
}

// The number of 16 bits of IEEE 754.
function fromHalf(bits) {
  const exponent = bits >> 10 & 31, fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

// A parameter as a matrix with `rows` rows.
const asMatrix = ({ values }, rows) => ({ rows, columns: values.length / rows, data: values });

// The transposed matrix of a kernel [..., D]: products read their weights in the order of memory.
function asKernel(parameter, rows) {
  const { columns, data } = asMatrix(parameter, rows), transposed = new Float32Array(data.length);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) transposed[column * rows + row] = data[row * columns + column];
  return { rows: columns, columns: rows, data: transposed };
}

// x W.
function times(vector, { rows, columns, data }) {
  const product = new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    const factor = vector[row], start = row * columns;
    if (factor === 0) continue;
    for (let column = 0; column < columns; column++) product[column] += factor * data[start + column];
  }
  return product;
}

// W x, four rows at once: twice as fast as one.
function timesTransposed(vector, { rows, columns, data }) {
  const product = new Float32Array(rows);
  let row = 0;
  for (; row + 3 < rows; row += 4) {
    const start = row * columns, second = start + columns, third = second + columns, fourth = third + columns;
    let a = 0, b = 0, c = 0, d = 0;
    for (let column = 0; column < columns; column++) {
      const factor = vector[column];
      a += factor * data[start + column];
      b += factor * data[second + column];
      c += factor * data[third + column];
      d += factor * data[fourth + column];
    }
    product[row] = a;
    product[row + 1] = b;
    product[row + 2] = c;
    product[row + 3] = d;
  }
  for (; row < rows; row++) product[row] = dot(vector, 0, data, row * columns, columns);
  return product;
}

// The dot product of `count` numbers from two offsets.
function dot(left, leftStart, right, rightStart, count) {
  let sum = 0;
  for (let index = 0; index < count; index++) sum += left[leftStart + index] * right[rightStart + index];
  return sum;
}

function plus(left, right) {
  const sum = new Float32Array(left.length);
  for (let index = 0; index < sum.length; index++) sum[index] = left[index] + right[index];
  return sum;
}

const scaled = (vector, factor) => vector.map((value) => value * factor);

// scale (x - mean) / sqrt(variance + epsilon) + bias.
function layerNorm(vector, scale, bias, epsilon) {
  const mean = vector.reduce((sum, value) => sum + value, 0) / vector.length;
  const variance = vector.reduce((sum, value) => sum + (value - mean) ** 2, 0) / vector.length;
  const inverse = 1 / Math.sqrt(variance + epsilon);
  return vector.map((value, index) => (value - mean) * inverse * scale[index] + bias[index]);
}

// scale x / sqrt(mean of x² + epsilon).
function rmsNorm(vector, scale, epsilon) {
  const inverse = 1 / Math.sqrt(dot(vector, 0, vector, 0, vector.length) / vector.length + epsilon);
  return vector.map((value, index) => value * inverse * scale[index]);
}

// Vectors one after the other.
function joined(...vectors) {
  const whole = new Float32Array(vectors.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const vector of vectors) {
    whole.set(vector, offset);
    offset += vector.length;
  }
  return whole;
}

// Zeros where all scores are -Infinity.
function softmax(scores) {
  const powers = new Float32Array(scores.length);
  let largest = -Infinity, sum = 0;
  for (let index = 0; index < scores.length; index++) if (scores[index] > largest) largest = scores[index];
  if (largest === -Infinity) return powers;
  for (let index = 0; index < scores.length; index++) sum += powers[index] = Math.exp(scores[index] - largest);
  for (let index = 0; index < scores.length; index++) powers[index] /= sum;
  return powers;
}

// Log-probabilities of logits divided by a temperature.
function logSoftmax(logits, temperature = 1) {
  const result = new Float32Array(logits.length);
  let largest = -Infinity, sum = 0;
  for (let index = 0; index < logits.length; index++) if (logits[index] > largest) largest = logits[index];
  for (let index = 0; index < logits.length; index++) sum += Math.exp((logits[index] - largest) / temperature);
  const normalizer = Math.log(sum);
  for (let index = 0; index < logits.length; index++) result[index] = (logits[index] - largest) / temperature - normalizer;
  return result;
}

// The error function to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26).
function erf(value) {
  const t = 1 / (1 + 0.3275911 * Math.abs(value));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(value) * (1 - series * Math.exp(-value * value));
}

const sigmoid = (value) => 1 / (1 + Math.exp(-value));
const gelu = (value) => 0.5 * value * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3)));
const relu = (value) => Math.max(value, 0), silu = (value) => value * sigmoid(value);
// By the name of the feed-forward layer; gated ones have a third matrix.
const ACTIVATIONS = {
  relu, reglu: relu, relu_squared: (value) => relu(value) ** 2,
  gelu, geglu: gelu, exact_gelu: (value) => 0.5 * value * (1 + erf(value / Math.SQRT2)),
  silu, swiglu: silu,
};

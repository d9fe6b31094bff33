"use strict";
// Multi-head attention (Vaswani et al. 2017, section 3.2) of a few queries to keys and values that are kept from step to step. Heads may
// share keys and values (grouped-query attention, Ainslie et al. 2023); queries and keys may be normalized (Dehghani et al. 2023) and rotated
// by their position (Su et al. 2021).

class Attention {
  constructor(parameters, path, { heads, keySize, valueSize, width, isScaled, keyHeads, rope, epsilon }, isSelf) {
    const kernel = (name, rows) => asKernel(parameters.get(`${path}/${name}`), rows);
    const value = (name) => (parameters.get(`${path}/${name}`) || {}).values;
    Object.assign(this, { heads, keySize, valueSize, isScaled, epsilon, rope: isSelf ? rope : null, sharing: heads / keyHeads });
    this.kernels = { query: kernel("query", width), key: kernel("key", width), value: kernel("value", width) };
    this.output = kernel("output", heads * valueSize);
    this.biases = Object.fromEntries(["query", "key", "value", "output"].map((name) => [name, value(`${name}_bias`)]));
    this.gains = { query: value("changes_qk_norm/query_gain"), key: value("changes_qk_norm/key_gain") };
  }

  project(name, vector) {
    const product = timesTransposed(vector, this.kernels[name]);
    return this.biases[name] ? plus(product, this.biases[name]) : product;
  }

  // The query or key of every head at a position, one after the other.
  projectAt(name, vector, position, { hasPositions }) {
    const all = this.project(name, vector), gain = this.gains[name], zeros = new Float32Array(this.keySize);
    for (let start = 0; start < all.length; start += this.keySize) {
      const ofHead = all.subarray(start, start + this.keySize);
      if (gain) ofHead.set(layerNorm(ofHead, gain, zeros, this.epsilon));
      if (this.rope && hasPositions) rotate(ofHead, position, this.rope);
    }
    return all;
  }

  // Keys and values of a sequence that begins at a position.
  memoryOf(sequence, first, edit) {
    return { keys: sequence.map((each, index) => this.projectAt("key", each, first + index, edit)), values: sequence.map((each) => this.project("value", each)) };
  }

  scale(isScaled) { return this.isScaled && isScaled ? this.keySize ** -0.5 : 1; }

  // The first dimension of a head in keys or values of `size` dimensions a head.
  startOfShared(head, size) { return Math.floor(head / this.sharing) * size; }

  // The output for one query vector, which sees the first `visible` keys but the `hidden` ones. `edit`: see `Edits.ofAttention`. `record`:
  // { weights, queries } gets the query and its weights, a Float32Array [heads * visible].
  attend(vector, position, { keys, values }, visible, edit, record, hidden = null) {
    const query = this.projectAt("query", vector, position, edit), merged = new Float32Array(this.heads * this.valueSize);
    const factor = this.scale(edit.isScaled), weights = new Float32Array(this.heads * visible);
    for (let head = 0; head < this.heads; head++) {
      const scores = new Float32Array(visible), ofKeys = this.startOfShared(head, this.keySize), ofValues = this.startOfShared(head, this.valueSize);
      for (let column = 0; column < visible; column++) {
        scores[column] = hidden && hidden.has(column) ? -1e9 : factor * dot(query, head * this.keySize, keys[column], ofKeys, this.keySize);
      }
      const ofHead = softmax(scores), start = head * this.valueSize;
      weights.set(ofHead, head * visible);
      if (edit.isOff(head)) continue;
      for (let column = 0; column < visible; column++) {
        const weight = ofHead[column], value = values[column];
        for (let index = 0; index < this.valueSize; index++) merged[start + index] += weight * value[ofValues + index];
      }
    }
    if (record) {
      record.weights.push(weights);
      record.queries.push(query);
    }
    const output = timesTransposed(merged, this.output);
    return this.biases.output ? plus(output, this.biases.output) : output;
  }

  // A value vector of a head times its part of the output matrix (Kobayashi et al. 2020).
  transformed(value, head) {
    const { rows, columns, data } = this.output, start = head * this.valueSize, ofValues = this.startOfShared(head, this.valueSize);
    return Float32Array.from({ length: rows }, (_, row) => dot(value, ofValues, data, row * columns + start, this.valueSize));
  }

  // How a query and a key of a head make a score, by dimension, and all scores of the query: { columns, terms, factor, scores, weights, isVisible }.
  pair({ queries, keys }, head, row, column, isCausal, isScaled) {
    if (!queries) return null;
    const factor = this.scale(isScaled), query = queries[row].slice(head * this.keySize, (head + 1) * this.keySize), ofKeys = this.startOfShared(head, this.keySize);
    const visible = isCausal ? row + 1 : keys.length, key = keys[column].slice(ofKeys, ofKeys + this.keySize);
    const scores = keys.slice(0, visible).map((each) => factor * dot(query, 0, each, ofKeys, this.keySize));
    return {
      columns: [["query", query], ["key", key]], terms: query.map((value, index) => value * key[index]),
      factor, scores, weights: softmax(Float32Array.from(scores)), isVisible: column < visible,
    };
  }
}

// Rotates the pairs of dimensions (0, 1), (2, 3), ... of a vector by angles that grow with the position (Su et al. 2021, equation 34).
function rotate(vector, position, { base, pairs }) {
  for (let pair = 0; pair < pairs; pair++) {
    const angle = position * base ** (-pair / pairs), first = vector[2 * pair], second = vector[2 * pair + 1];
    vector[2 * pair] = first * Math.cos(angle) - second * Math.sin(angle);
    vector[2 * pair + 1] = first * Math.sin(angle) + second * Math.cos(angle);
  }
}

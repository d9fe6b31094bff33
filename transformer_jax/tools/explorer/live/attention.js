"use strict";
// Multi-head attention (Vaswani et al. 2017, section 3.2) of a few queries to keys and values that are kept from step to step.

class Attention {
  constructor(parameters, path, { heads, keySize, valueSize, width, isScaled }) {
    const kernel = (name, rows) => asKernel(parameters.get(`${path}/${name}`), rows);
    const bias = (name) => parameters.get(`${path}/${name}_bias`);
    Object.assign(this, { heads, keySize, valueSize, isScaled });
    this.kernels = { query: kernel("query", width), key: kernel("key", width), value: kernel("value", width) };
    this.output = kernel("output", heads * valueSize);
    this.biases = Object.fromEntries(["query", "key", "value", "output"].map((name) => [name, bias(name)]));
  }

  project(name, vector) {
    const product = timesTransposed(vector, this.kernels[name]);
    return this.biases[name] ? plus(product, this.biases[name].values) : product;
  }

  // Keys and values of a sequence.
  memoryOf(sequence) {
    return { keys: sequence.map((each) => this.project("key", each)), values: sequence.map((each) => this.project("value", each)) };
  }

  // The output for one query vector, which sees the first `visible` keys but the `hidden` ones. `edit`: { isOff(head), isScaled }.
  // `record`: { weights, queries } gets the query and its weights, a Float32Array [heads * visible].
  attend(vector, { keys, values }, visible, edit, record, hidden = null) {
    const query = this.project("query", vector), merged = new Float32Array(this.heads * this.valueSize);
    const factor = this.isScaled && edit.isScaled ? this.keySize ** -0.5 : 1, weights = new Float32Array(this.heads * visible);
    for (let head = 0; head < this.heads; head++) {
      const scores = new Float32Array(visible), first = head * this.keySize;
      for (let place = 0; place < visible; place++) {
        scores[place] = hidden && hidden.has(place) ? -1e9 : factor * dot(query, first, keys[place], first, this.keySize);
      }
      const ofHead = softmax(scores);
      weights.set(ofHead, head * visible);
      if (edit.isOff(head)) continue;
      for (let place = 0; place < visible; place++) {
        for (let index = head * this.valueSize; index < (head + 1) * this.valueSize; index++) merged[index] += ofHead[place] * values[place][index];
      }
    }
    if (record) {
      record.weights.push(weights);
      record.queries.push(query);
    }
    const output = timesTransposed(merged, this.output);
    return this.biases.output ? plus(output, this.biases.output.values) : output;
  }

  // A value vector of a head times its part of the output matrix (Kobayashi et al. 2020).
  transformed(value, head) {
    const start = head * this.valueSize, { rows, columns, data } = this.output;
    return Float32Array.from({ length: rows }, (_, row) => dot(value, start, data, row * columns + start, this.valueSize));
  }
}

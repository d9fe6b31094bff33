"use strict";
// The recurrent encoder-decoder with attention (Bahdanau et al. 2015; Luong et al. 2015) for one sentence, with edits.

// A layer of cells. The state of a GRU is { hidden }, of an LSTM { hidden, memory }; leaves in the order of Python.
class RecurrentLayer {
  constructor(parameters, path, { cell, hiddenSize }) {
    const bias = (name) => parameters.get(`${path}/${name}_bias`).values, { shape } = parameters.get(`${path}/input_kernel`);
    Object.assign(this, { size: hiddenSize, isLstm: cell === "lstm", biases: { input: bias("input"), recurrent: bias("recurrent") } });
    this.kernels = { input: asKernel(parameters.get(`${path}/input_kernel`), shape[0]), recurrent: asKernel(parameters.get(`${path}/recurrent_kernel`), hiddenSize) };
  }

  get zeros() { return { hidden: new Float32Array(this.size), ...this.isLstm ? { memory: new Float32Array(this.size) } : {} }; }

  step(input, { hidden, memory }) {
    const x = plus(timesTransposed(input, this.kernels.input), this.biases.input), h = plus(timesTransposed(hidden, this.kernels.recurrent), this.biases.recurrent);
    const size = this.size, next = new Float32Array(size), kept = new Float32Array(size);
    for (let unit = 0; unit < size; unit++) {
      const gate = (number) => x[number * size + unit] + h[number * size + unit];
      if (this.isLstm) {
        // Gates: input, forget, candidate, output (Gers et al. 2000).
        kept[unit] = sigmoid(gate(1)) * memory[unit] + sigmoid(gate(0)) * Math.tanh(gate(2));
        next[unit] = sigmoid(gate(3)) * Math.tanh(kept[unit]);
      } else {
        // Gates: reset, update, candidate (Cho et al. 2014).
        const update = sigmoid(gate(1)), candidate = Math.tanh(x[2 * size + unit] + sigmoid(gate(0)) * h[2 * size + unit]);
        next[unit] = update * hidden[unit] + (1 - update) * candidate;
      }
    }
    return this.isLstm ? { hidden: next, memory: kept } : { hidden: next };
  }

  // The states after every vector of a sequence.
  run(sequence) {
    let state = this.zeros;
    return sequence.map((vector) => (state = this.step(vector, state)));
  }
}

// `edits`: see `Edits`. Its one attention is "cross", with one head.
class RnnSeq2Seq extends SequenceModel {
  constructor(settings, parameters) {
    super(settings, parameters);
    const layers = (path, count) => counted(count).map((index) => new RecurrentLayer(parameters, `${path}_${index}`, settings));
    this.forward = layers("encoder/forward_layers", settings.encoderLayers);
    this.backward = settings.isBidirectional ? layers("encoder/backward_layers", settings.encoderLayers) : [];
    this.layers = layers("decoder/stack/layers", settings.decoderLayers);
    this.attention = new RnnAttention(settings, parameters);
    const name = settings.wiring === "luong" ? "decoder/combine_kernel" : "decoder/readout_kernel";
    this.output = asKernel(parameters.get(name), parameters.get(name).shape[0]);
    this.bridge = settings.decoderStart === "bridge" ? { kernel: asKernel(parameters.get("bridge/kernel"), settings.memorySize), bias: parameters.get("bridge/bias").values } : null;
    this.kinds = { cross: 1 };
  }

  // Values of an RNN pass through no matrix of their own.
  valueThroughOutput(kind, layer, value) { return value; }

  // The source read in both directions: { length, hidden, annotations, keys, states }. Source tokens in `hidden` are read as zeros, and masked.
  encode(ids, edits, record = null, hidden = null) {
    const zeros = new Float32Array(this.tables.source.columns), reads = (id, index) => hidden && hidden.has(index) ? zeros : this.embedding("source", id);
    let sequence = mirrored(ids.map(reads), this.settings.reversesSource);
    const states = this.forward.map((layer, index) => {
      const ahead = layer.run(sequence), last = { ...ahead[ahead.length - 1] };
      if (!this.backward.length) {
        sequence = ahead.map((state) => state.hidden);
        return last;
      }
      const back = this.backward[index].run([...sequence].reverse()).map((state) => edits.isOn("backward") ? state : this.backward[index].zeros);
      sequence = ahead.map((state, position) => joined(state.hidden, back[ids.length - 1 - position].hidden));
      for (const leaf of Object.keys(last)) last[leaf] = joined(last[leaf], back[ids.length - 1][leaf]);
      return last;
    });
    const annotations = mirrored(sequence, this.settings.reversesSource);
    if (record) record.states = { source: annotations, target: [] };
    return { length: ids.length, hidden, annotations, keys: this.attention.keysOf(annotations), states };
  }

  // Before the first token: states of the layers, what is fed, and the weights before.
  start(encoded, edits) {
    const { hiddenSize, decoderStart } = this.settings, zeros = this.layers.map((layer) => layer.zeros);
    const layers = !edits.isOn("start") || decoderStart === "zeros" ? zeros : decoderStart === "last" ? encoded.states : this.bridged(encoded.states, zeros);
    return { length: 0, layers, feed: new Float32Array(hiddenSize), before: new Float32Array(encoded.length) };
  }

  // tanh(W h) of the last encoder state for every leaf of every layer (Bahdanau et al. 2015, appendix A.2.2).
  bridged(states, like) {
    const { hiddenSize } = this.settings, { kernel, bias } = this.bridge;
    const made = plus(timesTransposed(states[states.length - 1].hidden, kernel), bias).map(Math.tanh);
    let leaf = 0;
    return like.map((state) => Object.fromEntries(Object.keys(state).map((name) => [name, made.subarray(leaf * hiddenSize, ++leaf * hiddenSize)])));
  }

  stack(input, states) {
    let below = input;
    return states.map((state, index) => {
      const after = this.layers[index].step(below, state);
      below = after.hidden;
      return after;
    });
  }

  // See `SequenceModel`. Tokens of the prefix in `erased` are read as zeros.
  decode(ids, cache, encoded, edits, record = null, erased = null) {
    const kept = record && (record.cross[0] = { ...emptyRecord(), keys: encoded.keys, values: encoded.annotations, before: [] });
    const hidden = ids.map((id, index) => {
      const zeros = new Float32Array(this.tables.target.columns), token = erased && erased.has(cache.length) ? zeros : this.embedding("target", id);
      const { query, attended, output, after } = this.settings.wiring === "luong" ? this.luong(token, cache, encoded, edits) : this.bahdanau(token, cache, encoded, edits);
      if (kept) {
        kept.weights.push(attended.weights);
        kept.queries.push(query);
        kept.before.push(cache.before);
        record.states.target[index] = after[after.length - 1].hidden;
      }
      cache = { length: cache.length + 1, layers: after, feed: output, before: attended.after };
      return output;
    });
    return { hidden, cache };
  }

  // Attends with the new state: tanh(W [c; h]), which may be an input of the next token (Luong et al. 2015, section 3).
  luong(token, { length, layers, feed, before }, encoded, edits) {
    const fed = edits.isOn("feeding") ? feed : new Float32Array(feed.length);
    const after = this.stack(this.settings.feedsInput ? joined(token, fed) : token, layers), query = after[after.length - 1].hidden;
    const attended = this.attention.attend(query, length, encoded, before, edits);
    return { query, attended, after, output: timesTransposed(joined(attended.context, query), this.output).map(Math.tanh) };
  }

  // Attends with the state before; the output is the maxout of a layer of that state, the token and the context (Bahdanau et al. 2015, A.2.2).
  bahdanau(token, { length, layers, before }, encoded, edits) {
    const query = layers[layers.length - 1].hidden, attended = this.attention.attend(query, length, encoded, before, edits);
    const readout = timesTransposed(joined(query, token, attended.context), this.output);
    const output = Float32Array.from({ length: readout.length / 2 }, (_, pair) => Math.max(readout[2 * pair], readout[2 * pair + 1]));
    return { query, attended, after: this.stack(joined(token, attended.context), layers), output };
  }

  // See `Attention.pair`; location features are a third column.
  pair(record, kind, layer, head, row, column, edits) {
    const { queries, keys, values, before } = record.cross[0], { attention } = this;
    const scores = attention.scores(queries[row], row, { keys, annotations: values, length: keys.length, hidden: null }, before[row], edits);
    if (!keys[column]) return null;
    const { query, key, features, terms } = attention.parts(attention.score.query(queries[row]), keys[column], before[row], column, edits);
    const weights = attention.weightsOf(scores), columns = [["query", query], ["key", key], ...features ? [["location", features]] : []];
    return { columns, terms, factor: 1, scores: Array.from(scores, (score) => Math.max(score, -1e9)), weights, isVisible: weights[column] > 0 };
  }
}

// A sequence reversed but for its last vector, EOS (Sutskever et al. 2014, section 3.3); its own inverse.
const mirrored = (sequence, isReversed) => isReversed ? [...sequence.slice(0, -1).reverse(), ...sequence.slice(-1)] : sequence;

"use strict";
// Parts of the models: special tokens, edits (parts that are switched off), positions, feed-forward layers, and the interface of a model.

const PAD = 0, BOS = 1, EOS = 2, UNK = 3;

// Which parts are off. Of a Transformer: "positions", "causal", "padding", "scale"; "encoder.1" a layer; "encoder.1.residual" its
// residual connections; "encoder.1.head.3", "decoder.1.head.3", "cross.1.head.3" a head; layers and heads count from 1. Of an RNN:
// "cross.1.head.1" its attention, "location", "feeding", "start", "backward".
class Edits {
  constructor(names = []) { this.names = new Set(names); }
  isOn(name) { return !this.names.has(name); }
  with(name) { return new Edits([...this.names, name]); }
  ofAttention(kind, layer) {
    return { isOff: (head) => this.names.has(`${kind}.${layer + 1}.head.${head + 1}`), isScaled: this.isOn("scale"), hasPositions: this.isOn("positions") };
  }
}

function sinusoid(position, width) {
  return Float32Array.from({ length: width }, (_, index) => {
    const angle = position / 10000 ** (2 * Math.floor(index / 2) / width);
    return index % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// Sines, then cosines, from position 2, as in fairseq.
function fairseqSinusoid(position, width) {
  const half = width / 2;
  return Float32Array.from({ length: width }, (_, index) => {
    const angle = (position + 2) * Math.exp(-(index % half) * Math.log(10000) / (half - 1));
    return index < half ? Math.sin(angle) : Math.cos(angle);
  });
}

class FeedForward {
  constructor(parameters, path, { width, inner, activation }) {
    const kernel = (name, rows) => parameters.has(`${path}/${name}`) && asKernel(parameters.get(`${path}/${name}`), rows);
    this.activation = ACTIVATIONS[activation];
    [this.gate, this.wide, this.narrow] = [kernel("gate_kernel", width), kernel("wide_kernel", width), kernel("narrow_kernel", inner)];
    [this.wideBias, this.narrowBias] = ["wide_bias", "narrow_bias"].map((name) => parameters.get(`${path}/${name}`));
  }
  run(vector) {
    const product = timesTransposed(vector, this.wide), wide = this.wideBias ? plus(product, this.wideBias.values) : product;
    const active = (this.gate ? timesTransposed(vector, this.gate) : wide).map(this.activation);
    const output = timesTransposed(this.gate ? active.map((value, index) => value * wide[index]) : active, this.narrow);
    return this.narrowBias ? plus(output, this.narrowBias.values) : output;
  }
}

// Of a whole model: by kind of attention a record of every layer; of a Transformer the points of its residual streams.
const modelRecord = () => ({ encoder: [], decoder: [], cross: [], points: [] });
const emptyRecord = () => ({ weights: [], queries: [], keys: null, values: null });

// The common part of all models. `settings`: as live.py writes them. `kinds`: the number of layers of every kind of attention. A
// model also has encode(ids, edits, record, hidden), start(encoded, edits), a cache before the first token, decode(ids, cache, encoded,
// edits, record, erased), the hidden states { hidden, cache } of more tokens, and of every attention valueThroughOutput and pair. A
// cache is never changed, so that prefixes may share one. `record[kind][layer]` gets weights, queries, keys and values.
class SequenceModel {
  constructor(settings, parameters) {
    Object.assign(this, { settings, parameters });
    const table = (name) => asMatrix(parameters.get(`${name}/table`), parameters.get(`${name}/table`).shape[0]);
    const isAlone = settings.kind === "decoder_only", projection = settings.hasLogitsBias ? "projection/embedding" : "projection";
    const [source, target] = isAlone ? ["", "embedding"] : ["source_embedding", "target_embedding"];
    const [ofSource, ofTarget, ofOutput] = {
      all: [source, source, source], embeddings: [source, source, projection], output: [source, target, target], none: [source, target, projection],
    }[settings.tying];
    this.tables = { ...isAlone ? {} : { source: table(ofSource) }, target: table(ofTarget), output: table(ofOutput) };
    this.logitsBias = settings.hasLogitsBias ? parameters.get("projection/logits_bias").values : null;
  }

  embedding(side, id) {
    const { embedding } = this.settings, { data, columns } = this.tables[side];
    const factor = embedding === "unscaled" ? 1 : embedding === "zero_padding" && id === PAD ? 0 : Math.sqrt(columns);
    return scaled(data.subarray(id * columns, (id + 1) * columns), factor);
  }

  logits(hidden) {
    const product = timesTransposed(hidden, this.tables.output);
    return this.logitsBias ? plus(product, this.logitsBias) : product;
  }

  // Logits after one more token of a prefix, and the cache with it.
  step(id, cache, encoded, edits) {
    const { hidden, cache: after } = this.decode([id], cache, encoded, edits);
    return { logits: this.logits(hidden[0]), cache: after };
  }

  // Hidden states at every token of a target, teacher-forced: the input is the target shifted right.
  hiddenStates(target, encoded, edits, record = null, erased = null) {
    return this.decode([BOS, ...target.slice(0, -1)], this.start(encoded, edits), encoded, edits, record, erased).hidden;
  }

  teacherForced(...asked) { return this.hiddenStates(...asked).map((hidden) => this.logits(hidden)); }
}

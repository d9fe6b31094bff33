"use strict";
// The Transformer (Vaswani et al. 2017) for one sentence, with edits: parts that are switched off.

const PAD = 0, BOS = 1, EOS = 2, UNK = 3;

// Which parts are off. Names: "positions", "causal", "padding", "scale"; "encoder.1" a layer; "encoder.1.residual" its residual
// connections; "encoder.1.head.3", "decoder.1.head.3", "cross.1.head.3" a head; layers and heads count from 1.
class Edits {
  constructor(names = []) { this.names = new Set(names); }
  isOn(name) { return !this.names.has(name); }
  with(name) { return new Edits([...this.names, name]); }
  ofAttention(kind, layer) {
    return { isOff: (head) => this.names.has(`${kind}.${layer + 1}.head.${head + 1}`), isScaled: this.isOn("scale") };
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

const emptyRecord = () => ({ weights: [], queries: [], keys: null, values: null });

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

class Transformer {
  // `settings`: as live.py writes them.
  constructor(settings, parameters) {
    this.settings = settings;
    this.parameters = parameters;
    const { tying, width } = settings, table = (name) => asMatrix(parameters.get(name), parameters.get(name).shape[0]);
    const [source, target, output] = {
      all: ["source", "source", "source"], embeddings: ["source", "source", "projection"],
      output: ["source", "target", "target"], none: ["source", "target", "projection"],
    }[tying];
    const named = { source: "source_embedding", target: "target_embedding", projection: settings.hasLogitsBias ? "projection/embedding" : "projection" };
    this.tables = { source: table(named[source] + "/table"), target: table(named[target] + "/table"), output: table(named[output] + "/table") };
    this.logitsBias = settings.hasLogitsBias ? parameters.get("projection/logits_bias").values : null;
    const attention = (path) => new Attention(parameters, path, settings);
    const layer = (stack, index) => ({
      path: `${stack}_layers_${index}`,
      self: attention(`${stack}_layers_${index}/self_attention`),
      cross: stack === "decoder" ? attention(`${stack}_layers_${index}/cross_attention`) : null,
      feedForward: new FeedForward(parameters, `${stack}_layers_${index}/feed_forward`, { width, inner: settings.inner, activation: settings.feedForward }),
    });
    this.encoder = Array.from({ length: settings.encoderLayers }, (_, index) => layer("encoder", index));
    this.decoder = Array.from({ length: settings.decoderLayers }, (_, index) => layer("decoder", index));
  }

  norm(path, vector) {
    const [scale, bias] = ["scale", "bias"].map((name) => this.parameters.get(`${path}/${name}`).values);
    return layerNorm(vector, scale, bias, this.settings.epsilon);
  }

  embed(side, id, position, edits) {
    const { width, embedding } = this.settings, row = this.tables[side].data.subarray(id * width, (id + 1) * width);
    const factor = embedding === "unscaled" ? 1 : embedding === "zero_padding" && id === PAD ? 0 : Math.sqrt(width);
    return plus(scaled(row, factor), edits.isOn("positions") ? this.positionOf(side, position) : new Float32Array(width));
  }

  positionOf(side, position) {
    const { width, positions } = this.settings;
    if (positions === "none") return new Float32Array(width);
    if (positions === "sinusoidal") return sinusoid(position, width);
    if (positions === "fairseq") return fairseqSinusoid(position, width);
    const table = this.parameters.get(`${side}_positions/table`);
    if (position >= table.shape[0]) throw new Error(`the model has only ${table.shape[0]} positions`);
    return table.values.subarray(position * width, (position + 1) * width);
  }

  // One sublayer for a sequence: x + f(norm(x)), or norm(x + f(x)) as published. `run` maps a sequence to a sequence.
  sublayer(path, sequence, hasResidual, run) {
    const isPre = this.settings.normalization === "pre", norm = (vector) => this.norm(`${path}_residual/norm`, vector);
    const outputs = run(isPre ? sequence.map(norm) : sequence);
    const sums = hasResidual ? outputs.map((output, index) => plus(sequence[index], output)) : outputs;
    return isPre ? sums : sums.map(norm);
  }

  final(stack, sequence) {
    return this.settings.normalization === "pre" ? sequence.map((vector) => this.norm(`${stack}_norm`, vector)) : sequence;
  }

  // The encoded source: { keys, values } of every decoder layer. `record.encoder[layer]` gets weights, queries, keys and values. The source tokens
  // in `hidden` (a Set of positions) are masked for every position.
  encode(ids, edits, record = null, hidden = null) {
    let sequence = ids.map((id, position) => this.embed("source", id, position, edits));
    this.encoder.forEach((layer, index) => {
      const kept = record && (record.encoder[index] = emptyRecord());
      if (!edits.isOn(`encoder.${index + 1}`)) return void (kept && this.recordSkipped(kept, layer.self, sequence, ids.length));
      const hasResidual = edits.isOn(`encoder.${index + 1}.residual`), edit = edits.ofAttention("encoder", index);
      sequence = this.sublayer(`${layer.path}/self_attention`, sequence, hasResidual, (inputs) => {
        const memory = layer.self.memoryOf(inputs);
        if (kept) Object.assign(kept, memory);
        return inputs.map((vector) => layer.self.attend(vector, memory, ids.length, edit, kept, hidden));
      });
      sequence = this.sublayer(`${layer.path}/feed_forward`, sequence, hasResidual, (inputs) => inputs.map((vector) => layer.feedForward.run(vector)));
    });
    const encoded = this.final("encoder", sequence);
    return { length: ids.length, hidden, layers: this.decoder.map((layer) => layer.cross.memoryOf(encoded)) };
  }

  // A layer that is off attends to nothing: zero weights and values.
  recordSkipped(kept, attention, sequence, columns) {
    kept.weights = sequence.map(() => new Float32Array(attention.heads * columns));
    kept.values = Array.from({ length: columns }, () => new Float32Array(attention.heads * attention.valueSize));
    kept.queries = kept.keys = null;
  }

  // Nothing decoded so far. A cache is never changed, so that prefixes may share one.
  emptyCache() { return { ids: [], layers: this.decoder.map(() => ({ keys: [], values: [] })) }; }

  // Decodes more input tokens after those of a cache; { hidden, cache }, the last hidden state of every new token. Without the
  // causal mask the whole prefix is computed again, since all its positions see the new tokens. The prefix positions in `erased`
  // are masked, the same way as hidden source tokens.
  decode(ids, cache, encoded, edits, record = null, erased = null) {
    const isCausal = edits.isOn("causal");
    if (!isCausal && cache.ids.length) {
      const { hidden } = this.decode([...cache.ids, ...ids], this.emptyCache(), encoded, edits, record, erased);
      return { hidden: hidden.slice(cache.ids.length), cache: { ids: [...cache.ids, ...ids], layers: cache.layers } };
    }
    const before = cache.ids.length, layers = [];
    let sequence = ids.map((id, index) => this.embed("target", id, before + index, edits));
    this.decoder.forEach((layer, index) => {
      const own = record && (record.decoder[index] = emptyRecord()), across = record && (record.cross[index] = emptyRecord());
      if (!edits.isOn(`decoder.${index + 1}`)) {
        layers.push(cache.layers[index]);
        if (record) {
          this.recordSkipped(own, layer.self, sequence, before + ids.length);
          this.recordSkipped(across, layer.cross, sequence, encoded.length);
        }
        return;
      }
      const hasResidual = edits.isOn(`decoder.${index + 1}.residual`);
      sequence = this.sublayer(`${layer.path}/self_attention`, sequence, hasResidual, (inputs) => {
        const added = layer.self.memoryOf(inputs), old = cache.layers[index], edit = edits.ofAttention("decoder", index);
        const memory = { keys: [...old.keys, ...added.keys], values: [...old.values, ...added.values] };
        layers.push(memory);
        if (own) Object.assign(own, memory);
        return inputs.map((vector, row) => layer.self.attend(vector, memory, isCausal ? before + row + 1 : memory.keys.length, edit, own, erased));
      });
      sequence = this.sublayer(`${layer.path}/cross_attention`, sequence, hasResidual, (inputs) => {
        const memory = encoded.layers[index], edit = edits.ofAttention("cross", index);
        if (across) Object.assign(across, memory);
        return inputs.map((vector) => layer.cross.attend(vector, memory, encoded.length, edit, across, encoded.hidden));
      });
      sequence = this.sublayer(`${layer.path}/feed_forward`, sequence, hasResidual, (inputs) => inputs.map((vector) => layer.feedForward.run(vector)));
    });
    return { hidden: this.final("decoder", sequence), cache: { ids: [...cache.ids, ...ids], layers } };
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

  // Logits of every token of a target, teacher-forced: its input is the target shifted right.
  teacherForced(target, encoded, edits, record = null, erased = null) {
    const inputs = [BOS, ...target.slice(0, -1)];
    return this.decode(inputs, this.emptyCache(), encoded, edits, record, erased).hidden.map((hidden) => this.logits(hidden));
  }
}

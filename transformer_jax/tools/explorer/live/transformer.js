"use strict";
// The Transformer (Vaswani et al. 2017) for one sentence, with edits; without an encoder it is a language model (Radford et al. 2019).

// The residual stream at a point of a stack, for the logit lens.
const keepPoint = (record, name, vectors) => { if (record) record.points.push({ name, vectors }); };

class Transformer extends SequenceModel {
  constructor(settings, parameters) {
    super(settings, parameters);
    const layer = (stack, index) => {
      const path = `${stack}_layers_${index}`, attention = (name) => new Attention(parameters, `${path}/${name}`, settings, name === "self_attention");
      return {
        path, self: attention("self_attention"), cross: stack === "decoder" && settings.encoderLayers ? attention("cross_attention") : null,
        feedForward: new FeedForward(parameters, `${path}/feed_forward`, { width: settings.width, inner: settings.inner, activation: settings.feedForward }),
      };
    };
    this.encoder = counted(settings.encoderLayers).map((index) => layer("encoder", index));
    this.decoder = counted(settings.decoderLayers).map((index) => layer("decoder", index));
    this.kinds = settings.encoderLayers ? { encoder: this.encoder.length, decoder: this.decoder.length, cross: this.decoder.length } : { decoder: this.decoder.length };
  }

  attention(kind, layer) { return kind === "encoder" ? this.encoder[layer].self : kind === "cross" ? this.decoder[layer].cross : this.decoder[layer].self; }

  valueThroughOutput(kind, layer, value, head) { return this.attention(kind, layer).transformed(value, head); }

  // The query and the key of a pair of tokens in a head, see `Attention.pair`; null in a layer that is off.
  pair(record, kind, layer, head, row, column, edits) {
    const isCausal = kind === "decoder" && edits.isOn("causal");
    return this.attention(kind, layer).pair(record[kind][layer], head, row, column, isCausal, edits.isOn("scale"));
  }

  norm(path, vector) {
    const { norm, epsilon } = this.settings, scale = this.parameters.get(`${path}/scale`).values;
    return norm === "rmsnorm" ? rmsNorm(vector, scale, epsilon) : layerNorm(vector, scale, this.parameters.get(`${path}/bias`).values, epsilon);
  }

  embed(side, id, position, edits) {
    return edits.isOn("positions") ? plus(this.embedding(side, id), this.positionOf(side, position)) : this.embedding(side, id);
  }

  positionOf(side, position) {
    const { width, positions, encoderLayers } = this.settings;
    if (positions === "none" || positions === "rope") return new Float32Array(width);
    if (positions === "sinusoidal") return sinusoid(position, width);
    if (positions === "fairseq") return fairseqSinusoid(position, width);
    const table = this.parameters.get(`${encoderLayers ? side + "_" : ""}positions/table`);
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

  // Logits of a point of the decoder's residual stream, as if the remaining layers were not there.
  logitsAt(vector) { return this.logits(this.final("decoder", [vector])[0]); }

  final(stack, sequence) {
    return this.settings.normalization === "pre" ? sequence.map((vector) => this.norm(`${stack}_norm`, vector)) : sequence;
  }

  // The encoded source: { keys, values } of every decoder layer. The source tokens in `hidden` (a Set of positions) are masked for every
  // position.
  encode(ids, edits, record = null, hidden = null) {
    let sequence = ids.map((id, position) => this.embed("source", id, position, edits));
    keepPoint(record, "encoder.embedding", sequence);
    this.encoder.forEach((layer, index) => {
      const kept = record && (record.encoder[index] = emptyRecord());
      const hasResidual = edits.isOn(`encoder.${index + 1}.residual`), edit = edits.ofAttention("encoder", index);
      if (!edits.isOn(`encoder.${index + 1}`)) return void (kept && this.recordSkipped(kept, layer.self, sequence, ids.length));
      if (kept) kept.hasResidual = hasResidual;
      sequence = this.sublayer(`${layer.path}/self_attention`, sequence, hasResidual, (inputs) => {
        const memory = layer.self.memoryOf(inputs, 0, edit);
        if (kept) Object.assign(kept, memory);
        return inputs.map((vector, position) => layer.self.attend(vector, position, memory, ids.length, edit, kept, hidden));
      });
      keepPoint(record, `encoder.${index + 1}.self`, sequence);
      sequence = this.sublayer(`${layer.path}/feed_forward`, sequence, hasResidual, (inputs) => inputs.map((vector) => layer.feedForward.run(vector)));
      keepPoint(record, `encoder.${index + 1}.feed_forward`, sequence);
    });
    const encoded = this.final("encoder", sequence);
    return { length: ids.length, hidden, layers: this.decoder.map((layer, index) => layer.cross.memoryOf(encoded, 0, edits.ofAttention("cross", index))) };
  }

  // A layer that is off attends to nothing: zero weights and values, and no query or key.
  recordSkipped(kept, attention, sequence, columns) {
    kept.weights = sequence.map(() => new Float32Array(attention.heads * columns));
    kept.values = Array.from({ length: columns }, () => new Float32Array(attention.heads * attention.valueSize));
    Object.assign(kept, { queries: null, isSkipped: true });
  }

  start() { return { ids: [], layers: this.decoder.map(() => ({ keys: [], values: [] })) }; }

  // Decodes more input tokens after those of a cache; { hidden, cache }, the last hidden state of every new token. Without the
  // causal mask the whole prefix is computed again, since all its positions see the new tokens. The prefix positions in `erased`
  // are masked, the same way as hidden source tokens.
  decode(ids, cache, encoded, edits, record = null, erased = null) {
    const isCausal = edits.isOn("causal");
    if (!isCausal && cache.ids.length) {
      const { hidden } = this.decode([...cache.ids, ...ids], this.start(), encoded, edits, record, erased);
      return { hidden: hidden.slice(cache.ids.length), cache: { ids: [...cache.ids, ...ids], layers: cache.layers } };
    }
    const before = cache.ids.length, layers = [];
    let sequence = ids.map((id, index) => this.embed("target", id, before + index, edits));
    keepPoint(record, "decoder.embedding", sequence);
    this.decoder.forEach((layer, index) => {
      const own = record && (record.decoder[index] = emptyRecord()), across = record && layer.cross && (record.cross[index] = emptyRecord());
      if (!edits.isOn(`decoder.${index + 1}`)) {
        layers.push(cache.layers[index]);
        if (record) {
          this.recordSkipped(own, layer.self, sequence, before + ids.length);
          if (layer.cross) this.recordSkipped(across, layer.cross, sequence, encoded.length);
        }
        return;
      }
      const hasResidual = edits.isOn(`decoder.${index + 1}.residual`);
      for (const kept of [own, across]) if (kept) kept.hasResidual = hasResidual;
      sequence = this.sublayer(`${layer.path}/self_attention`, sequence, hasResidual, (inputs) => {
        const edit = edits.ofAttention("decoder", index), added = layer.self.memoryOf(inputs, before, edit), old = cache.layers[index];
        const memory = { keys: [...old.keys, ...added.keys], values: [...old.values, ...added.values] };
        layers.push(memory);
        if (own) Object.assign(own, memory);
        return inputs.map((vector, row) => layer.self.attend(vector, before + row, memory, isCausal ? before + row + 1 : memory.keys.length, edit, own, erased));
      });
      keepPoint(record, `decoder.${index + 1}.self`, sequence);
      if (layer.cross) sequence = this.sublayer(`${layer.path}/cross_attention`, sequence, hasResidual, (inputs) => {
        const memory = encoded.layers[index], edit = edits.ofAttention("cross", index);
        if (across) Object.assign(across, memory);
        return inputs.map((vector, row) => layer.cross.attend(vector, before + row, memory, encoded.length, edit, across, encoded.hidden));
      });
      if (layer.cross) keepPoint(record, `decoder.${index + 1}.cross`, sequence);
      sequence = this.sublayer(`${layer.path}/feed_forward`, sequence, hasResidual, (inputs) => inputs.map((vector) => layer.feedForward.run(vector)));
      keepPoint(record, `decoder.${index + 1}.feed_forward`, sequence);
    });
    return { hidden: this.final("decoder", sequence), cache: { ids: [...cache.ids, ...ids], layers } };
  }
}

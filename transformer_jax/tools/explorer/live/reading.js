"use strict";
// What the page shows of one text: translation, attention, search, and how much every head and token matters.

// A reading in the form of page.py, with arrays of plain numbers: { values } in place of packed blocks.
function readText(live, { text, edits, search, forced }) {
  const { model, source, target } = live, changed = new Edits(edits), sourceIds = sourceOf(live, text, changed);
  const encoded = model.encode(sourceIds, changed), pieceOf = (token) => target.pieces[token];
  const started = performance.now();
  const { hypotheses, search: tree } = beamSearch((id, cache) => model.step(id, cache, encoded, changed), model.emptyCache(), {
    ...search, forced, pieceOf, limit: limitOf(live, text),
  });
  const seconds = (performance.now() - started) / 1000, best = hypotheses[0], ids = best ? best.ids : [EOS];
  const record = { encoder: [], decoder: [], cross: [] };
  const logits = model.teacherForced(ids, model.encode(sourceIds, changed, record), changed, record);
  const tokens = {
    source: sourceIds.map((id) => source.pieces[id]), target: ids.map(pieceOf), input: ["<s>", ...ids.slice(0, -1).map(pieceOf)],
  };
  const logProbs = logits.map((each) => logSoftmax(each, search.temperature));
  return {
    source: text, translation: target.decode(ids), tokens, targetIds: ids, seconds, score: best ? best.score : null,
    logProbs: logProbs.map((each, row) => each[ids[row]]),
    options: logProbs.map((each) => bestTokens(each, NUM_BEST).map((token) => [token, pieceOf(token), each[token]])),
    attentions: withRollouts(attentionsOf(live.model, record, tokens)), gradients: {}, tree: [], search: tree,
  };
}

// Source ids, with padding where its mask is off: as much as a batch of this width has.
function sourceOf({ source, model }, text, edits) {
  const ids = [...source.encode(text), EOS], { maxSourceTokens } = model.settings;
  if (ids.length > maxSourceTokens) throw new Error(`${ids.length} source tokens; the limit is ${maxSourceTokens}`);
  return edits.isOn("padding") ? ids : [...ids, ...Array(Math.max(8, 16 * Math.ceil(ids.length / 16) - ids.length)).fill(PAD)];
}

// The maximum number of tokens of a translation.
const limitOf = (live, text) => Math.min(sourceOf(live, text, new Edits()).length + live.model.settings.maxExtraTokens, live.model.settings.longest);

const SIDES = { encoder: ["source", "source"], decoder: ["target", "input"], cross: ["target", "source"] };

function attentionsOf(model, record, tokens) {
  return Object.entries(SIDES).map(([kind, [rows, columns]]) => {
    const layers = record[kind], { heads } = model.settings, numRows = tokens[rows].length, numColumns = tokens[columns].length;
    const attention = (layer) => kind === "encoder" ? model.encoder[layer].self : kind === "cross" ? model.decoder[layer].cross : model.decoder[layer].self;
    const valueNorms = new Float32Array(layers.length * heads * numColumns);
    const valueCosines = layers.map(({ values }, layer) => {
      const cosines = new Float32Array(heads * (heads - 1) / 2 * numColumns);
      values.forEach((value, column) => {
        const vectors = Array.from({ length: heads }, (_, head) => attention(layer).transformed(value, head));
        const norms = vectors.map((vector) => Math.sqrt(dot(vector, 0, vector, 0, vector.length)));
        norms.forEach((norm, head) => {
          valueNorms[(layer * heads + head) * numColumns + column] = norm;
          for (let other = 0; other < head; other++) {
            const product = dot(vectors[head], 0, vectors[other], 0, vectors[head].length);
            cosines[(head * (head - 1) / 2 + other) * numColumns + column] = product / Math.max(norm * norms[other], 1e-30);
          }
        });
      });
      return { values: cosines };
    });
    return { kind, rows, columns, layers: layers.length, heads, weights: layers.map((layer) => ({ values: stacked(layer.weights, heads, numRows, numColumns) })), valueNorms: { values: valueNorms }, valueCosines };
  });
}

// Weights of every query as one array [heads, rows, columns]; a causal row has zeros for the keys that it does not see.
function stacked(weights, heads, numRows, numColumns) {
  const whole = new Float32Array(heads * numRows * numColumns);
  weights.forEach((ofRow, row) => {
    const visible = ofRow.length / heads;
    for (let head = 0; head < heads; head++) whole.set(ofRow.subarray(head * visible, (head + 1) * visible), (head * numRows + row) * numColumns);
  });
  return whole;
}

// Attention rollout (Abnar and Zuidema 2020) of the encoder, and of the decoder to both sides, as readings.py.
function withRollouts(attentions) {
  const [encoder, decoder, cross] = attentions;
  const mean = (attention, layer) => {
    const { values } = attention.weights[layer], size = values.length / attention.heads;
    return Float32Array.from({ length: size }, (_, place) => counted(attention.heads).reduce((sum, head) => sum + values[head * size + place], 0) / attention.heads);
  };
  const width = (attention) => Math.round(Math.sqrt(mean(attention, 0).length));
  const identity = (size) => Float32Array.from({ length: size * size }, (_, place) => place % (size + 1) ? 0 : 1);
  const half = (left, right) => left.map((value, place) => (value + right[place]) / 2);
  const product = (left, right, inner) => {
    const rows = left.length / inner, columns = right.length / inner, result = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row++) result.set(times(left.subarray(row * inner, (row + 1) * inner), { rows: inner, columns, data: right }), row * columns);
    return result;
  };
  const source = width(encoder), target = width(decoder), own = { encoder: [], decoder: [], cross: [] };
  let toSource = identity(source);
  for (const layer of counted(encoder.layers)) own.encoder.push(toSource = product(half(mean(encoder, layer), identity(source)), toSource, source));
  let toTarget = identity(target), across = new Float32Array(target * source);
  for (const layer of counted(decoder.layers)) {
    const mixing = half(mean(decoder, layer), identity(target));
    toTarget = scaled(product(mixing, toTarget, target), 0.5);
    across = half(product(mixing, across, target), product(mean(cross, layer), toSource, source));
    own.decoder.push(toTarget);
    own.cross.push(across);
  }
  return attentions.map((each) => ({ ...each, rollout: own[each.kind].map((values) => ({ values })) }));
}

const counted = (count) => Array.from({ length: count }, (_, index) => index);

// Log-probabilities of the tokens `ids` under `edits`; tokens of the source and inputs of the decoder can be hidden.
function scoreTokens(live, text, ids, edits, hidden = null, erased = null) {
  const { model } = live, encoded = model.encode(sourceOf(live, text, edits), edits, null, hidden);
  return model.teacherForced(ids, encoded, edits, null, erased).map((logits) => logSoftmax(logits));
}

// The change of the log-probability of every target token without each head: [{ kind, layer, head, changes }]. `pause` is awaited
// after each head with the share that is done; it may throw to stop.
async function headEffects(live, { text, targetIds, edits }, pause) {
  const { model } = live, base = new Edits(edits), before = scoreTokens(live, text, targetIds, base), found = [];
  const depths = { encoder: model.encoder.length, decoder: model.decoder.length, cross: model.decoder.length };
  const names = Object.entries(depths).flatMap(([kind, layers]) => counted(layers).flatMap((layer) => counted(model.settings.heads).map((head) => ({ kind, layer: layer + 1, head: head + 1 }))));
  for (const name of names) {
    const after = scoreTokens(live, text, targetIds, base.with(`${name.kind}.${name.layer}.head.${name.head}`));
    found.push({ ...name, changes: after.map((each, row) => each[targetIds[row]] - before[row][targetIds[row]]) });
    await pause(found.length / names.length);
  }
  return found;
}

// Why `chosen` and not `other` at a position: how much the difference of their log-probabilities falls when a token of the source,
// or of the prefix, is masked everywhere.
async function contrast(live, { text, prefix, chosen, other, edits }, pause) {
  const base = new Edits(edits), ids = [...prefix, chosen], sourceIds = sourceOf(live, text, base);
  const difference = (hidden, erased) => {
    const last = scoreTokens(live, text, ids, base, hidden, erased)[prefix.length];
    return last[chosen] - last[other];
  };
  const whole = difference(null, null), total = sourceIds.length + ids.length, source = [], target = [];
  for (const place of counted(sourceIds.length)) {
    source.push(whole - difference(new Set([place]), null));
    await pause(source.length / total);
  }
  for (const place of counted(ids.length)) {
    target.push(whole - difference(null, new Set([place])));
    await pause((source.length + target.length) / total);
  }
  return { difference: whole, source, target };
}

// Query and key of a head for a pair of tokens, and all its scores in that row: { query, key, scores, factor }.
function neurons(live, { text, targetIds, edits, kind, layer, head, row, column }) {
  const { model } = live, changed = new Edits(edits), record = { encoder: [], decoder: [], cross: [] };
  model.teacherForced(targetIds, model.encode(sourceOf(live, text, changed), changed, record), changed, record);
  const { queries, keys } = record[kind][layer - 1], { keySize, isScaled } = model.settings;
  if (!queries) return null;
  const ofHead = (vector) => vector.subarray((head - 1) * keySize, head * keySize), factor = isScaled && changed.isOn("scale") ? keySize ** -0.5 : 1;
  const visible = kind === "decoder" && changed.isOn("causal") ? row + 1 : keys.length, query = ofHead(queries[row]);
  const scores = keys.slice(0, visible).map((key) => factor * dot(query, 0, ofHead(key), 0, keySize));
  return { query: query.slice(), key: ofHead(keys[column]).slice(), scores, weights: softmax(Float32Array.from(scores)), factor, isVisible: column < visible };
}

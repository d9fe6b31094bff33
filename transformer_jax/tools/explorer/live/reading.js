"use strict";
// The reading of a text: its translation or continuation, attention and search.

// `live`: { model, task, source, target }: the model, what it does, and the tokenizers. Of a text a task says its source ids, null without a
// source, and how it begins: { given, forced, limit }, the target tokens before the search, the tokens that the search begins with, and its
// largest number of tokens.

// Translates a source.
class Translation {
  constructor({ settings }, source) { Object.assign(this, { settings, source }); }

  // Without its mask, the source has as much padding as in a batch of this width.
  sourceIds(text, edits) {
    if (!/[^\p{C}\p{Z}]/u.test(text)) throw new Error("the text says nothing: it has no visible character");
    const ids = [...this.source.encode(text), EOS], { maxSourceTokens } = this.settings;
    if (ids.length > maxSourceTokens) throw new Error(`${ids.length} source tokens; the limit is ${maxSourceTokens}`);
    return edits.isOn("padding") ? ids : [...ids, ...Array(Math.max(8, 16 * Math.ceil(ids.length / 16) - ids.length)).fill(PAD)];
  }

  begin(text, forced) {
    const { maxExtraTokens, longest } = this.settings;
    return { given: [], forced, limit: Math.min(this.source.encode(text).length + 1 + maxExtraTokens, longest) };
  }
}

// Continues a prompt by `length` tokens. Forced tokens replace the prompt, but continue a `prompt` of ids.
class Continuation {
  constructor({ settings }, source) { Object.assign(this, { settings, source }); }

  sourceIds() { return null; }

  begin(text, forced, length, prompt = null) {
    const isOver = forced[forced.length - 1] === EOS, { contextLength } = this.settings;
    const given = prompt || (isOver ? forced.slice(0, -1) : forced.length ? forced : this.source.encode(text));
    if (given.length >= contextLength) throw new Error(`the prompt has ${given.length} tokens; at most ${contextLength - 1} leave room for a new one`);
    return { given, forced: prompt ? forced : isOver ? [EOS] : [], limit: Math.min(length, contextLength - given.length) };
  }
}

// The encoded source of a text, null without one.
function encodeText({ model, task }, text, edits, record = null, hidden = null) {
  const ids = task.sourceIds(text, edits);
  return ids && model.encode(ids, edits, record, hidden);
}

// The best translation or continuation of an encoded text: { ids, given, hypotheses, search }.
function searchText({ model, target, task }, { text, edits, search, forced, prompt }, encoded) {
  const changed = new Edits(edits), { given, forced: first, limit } = task.begin(text, forced, search.length, prompt), empty = model.start(encoded, changed);
  if (first.length >= limit && first[limit - 1] !== EOS) throw new Error(`${first.length} forced tokens leave no room for the end: at most ${limit - 1}`);
  const cache = given.length ? model.decode([BOS, ...given.slice(0, -1)], empty, encoded, changed).cache : empty;
  const found = beamSearch((id, before) => model.step(id, before, encoded, changed), cache, {
    ...search, forced: first, limit, begin: given.length ? given[given.length - 1] : BOS, pieceOf: (token, before) => shownPieces(target, [...before.slice(-3), token]).pop(),
  });
  return { ...found, given, ids: found.hypotheses.length ? found.hypotheses[0].ids : [EOS] };
}

// What the model never saw in training, as tasks/remarks.py.
function remarksOn({ source, training: { longest, limit, unseen } }, text) {
  const parts = unseenParts(source, text, unseen), { length } = source.encode(text);
  const isLong = longest === null ? `has over ${limit} tokens, and how long the sources in training were is not known` : `is longer than every source in training, ${longest} tokens`;
  return [
    ...parts.length ? [`this text has characters or words that the model never saw in training: ${parts.slice(0, 12).join(" ")}`] : [],
    ...length > limit ? [`this text ${isLong}: it has ${length}; split it into sentences`] : [],
  ];
}

// A reading in the form of page.py, with arrays of plain numbers: { values } instead of packed blocks.
function readText(live, asked) {
  const { model, task, source, target } = live, { text, search } = asked, edits = new Edits(asked.edits), started = performance.now();
  const record = modelRecord(), encoded = encodeText(live, text, edits, record);
  const found = searchText(live, asked, encoded), [best] = found.hypotheses, seconds = (performance.now() - started) / 1000, ids = [...found.given, ...found.ids];
  const logits = model.teacherForced(ids, encoded, edits, record);
  const sourceIds = task.sourceIds(text, edits), pieceOf = (token, before = []) => shownPieces(target, [...before.slice(-3), token]).pop();
  const tokens = { ...sourceIds ? { source: shownPieces(source, sourceIds) } : {}, target: shownPieces(target, ids), input: ["<s>", ...shownPieces(target, ids).slice(0, -1)] };
  const logProbs = logits.map((each) => logSoftmax(each, search.temperature)), flat = (vectors) => ({ values: joined(...vectors), size: vectors[0].length });
  return {
    source: text, remarks: remarksOn(live, text), translation: target.decode(found.ids), tokens, targetIds: ids, given: found.given.length, seconds, score: best ? best.score : null,
    logProbs: logProbs.map((each, row) => each[ids[row]]),
    options: logProbs.map((each, row) => bestTokens(each, NUM_BEST).map((token) => [token, pieceOf(token, ids.slice(0, row)), each[token]])),
    attentions: withRollouts(attentionsOf(model, record, tokens, edits), record, edits), gradients: {}, tree: [], search: found.search,
    states: Object.fromEntries(statesOf(record).map(([side, vectors]) => [side, flat(vectors)])),
  };
}

// The vectors of both sides: the states of an RNN, the embeddings of a Transformer with their positions. The target's are those of the input.
function statesOf({ states, points }) {
  if (states) return Object.entries(states);
  return points.filter(({ name }) => name.endsWith("embedding")).map(({ name, vectors }) => [name.startsWith("encoder") ? "source" : "input", vectors]);
}

const SIDES = { encoder: ["source", "source"], decoder: ["target", "input"], cross: ["target", "source"] };

// A head that is off adds nothing: its norms are zero.
function attentionsOf(model, record, tokens, edits) {
  return Object.keys(model.kinds).map((kind) => {
    const [rows, columns] = SIDES[kind], layers = record[kind], { heads } = model.settings, numRows = tokens[rows].length, numColumns = tokens[columns].length;
    const valueNorms = new Float32Array(layers.length * heads * numColumns);
    const valueCosines = layers.map(({ values }, layer) => {
      const cosines = new Float32Array(heads * (heads - 1) / 2 * numColumns), { isOff } = edits.ofAttention(kind, layer);
      values.forEach((value, column) => {
        const vectors = counted(heads).map((head) => model.valueThroughOutput(kind, layer, value, head));
        const norms = vectors.map((vector) => Math.sqrt(dot(vector, 0, vector, 0, vector.length)));
        norms.forEach((norm, head) => {
          valueNorms[(layer * heads + head) * numColumns + column] = isOff(head) ? 0 : norm;
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

// Attention rollout (Abnar and Zuidema 2020) of self-attention, and of a decoder to both sides, as readings.py; none of an RNN. A layer keeps
// half of its state; all of it where it or all of its heads are off, nothing where its residual connections are.
function withRollouts(attentions, record, edits) {
  const { encoder, decoder, cross } = Object.fromEntries(attentions.map((each) => [each.kind, each]));
  const found = { encoder: [], decoder: [], cross: [] };
  const headsOn = ({ kind, heads }, layer) => counted(heads).filter((head) => !edits.ofAttention(kind, layer).isOff(head));
  const kept = (attention, layer) => {
    const { isSkipped, hasResidual } = record[attention.kind][layer];
    return isSkipped ? 1 : !hasResidual ? 0 : headsOn(attention, layer).length ? 0.5 : 1;
  };
  const mean = (attention, layer) => {
    const { values } = attention.weights[layer], size = values.length / attention.heads, heads = headsOn(attention, layer);
    return Float32Array.from({ length: size }, (_, index) => heads.reduce((sum, head) => sum + values[head * size + index] / heads.length, 0));
  };
  const identity = (size) => Float32Array.from({ length: size * size }, (_, index) => index % (size + 1) ? 0 : 1);
  const mixed = (share, left, right) => left.map((value, index) => share * value + (1 - share) * right[index]);
  const product = (left, right, inner) => {
    const rows = left.length / inner, columns = right.length / inner, result = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row++) result.set(times(left.subarray(row * inner, (row + 1) * inner), { rows: inner, columns, data: right }), row * columns);
    return result;
  };
  const width = (attention) => Math.round(Math.sqrt(attention.weights[0].values.length / attention.heads));
  const mixing = (attention, layer) => mixed(kept(attention, layer), identity(width(attention)), mean(attention, layer));
  let toSource = encoder && identity(width(encoder));
  for (const layer of counted(encoder ? encoder.layers : 0)) found.encoder.push(toSource = product(mixing(encoder, layer), toSource, width(encoder)));
  let toTarget = decoder && identity(width(decoder)), across = encoder && new Float32Array(width(decoder) * width(encoder));
  for (const layer of counted(decoder ? decoder.layers : 0)) {
    toTarget = product(mixing(decoder, layer), toTarget, width(decoder));
    if (cross) {
      const share = kept(cross, layer);
      toTarget = scaled(toTarget, share);
      across = mixed(share, product(mixing(decoder, layer), across, width(decoder)), product(mean(cross, layer), toSource, width(encoder)));
      found.cross.push(across);
    }
    found.decoder.push(toTarget);
  }
  return attentions.map((each) => ({ ...each, rollout: found[each.kind].map((values) => ({ values })) }));
}

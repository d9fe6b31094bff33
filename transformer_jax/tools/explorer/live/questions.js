"use strict";
// Questions about a reading: the effect of removing a head or a token, how a query and a key make a score, and which token each layer would write.

// Log-probabilities at every one of the tokens `ids` under `edits`, at a temperature.
const scoreTokens = ({ model }, encoded, ids, edits, temperature) => model.teacherForced(ids, encoded, edits).map((logits) => logSoftmax(logits, temperature));

// The change of the log-probability of every target token without each of the parts `names` (see `Edits`): a list for each part. `pause` is
// awaited after each with the share that is done; it may throw to stop.
async function effects(live, { text, targetIds, edits: others, names, temperature = 1 }, pause) {
  const base = new Edits(others), before = scoreTokens(live, encodeText(live, text, base), targetIds, base, temperature), found = [];
  for (const name of names) {
    const edits = base.with(name), after = scoreTokens(live, encodeText(live, text, edits), targetIds, edits, temperature);
    found.push(after.map((each, row) => each[targetIds[row]] - before[row][targetIds[row]]));
    await pause(found.length / names.length);
  }
  return found;
}

// Why `chosen` and not `other` at a position: how much the difference of their log-probabilities falls when a token of the source,
// or of the prefix, is masked for every position. A prefix of <s> alone cannot be masked: a decoder must see something.
async function contrast(live, { text, prefix, chosen, other, edits, temperature = 1 }, pause) {
  const base = new Edits(edits), ids = [...prefix, chosen], sourceIds = live.task.sourceIds(text, base) || [];
  const difference = (hidden, erased) => {
    const last = live.model.logits(live.model.hiddenStates(ids, encodeText(live, text, base, null, hidden), base, null, erased)[prefix.length]);
    return (last[chosen] - last[other]) / temperature;
  };
  const whole = difference(null, null), found = { source: [], target: [] };
  const masked = [...counted(sourceIds.length).map((index) => ["source", index]), ...counted(prefix.length ? ids.length : 0).map((index) => ["target", index])];
  for (const [number, [side, index]] of masked.entries()) {
    found[side].push(whole - (side === "source" ? difference(new Set([index]), null) : difference(null, new Set([index]))));
    await pause((number + 1) / masked.length);
  }
  return { difference: whole, ...found, input: ["<s>", ...shownPieces(live.target, prefix)] };
}

// Query and key of a head for a pair of tokens, see `Attention.pair`.
function neurons(live, { text, targetIds, edits, kind, layer, head, row, column }) {
  const changed = new Edits(edits), record = modelRecord();
  live.model.teacherForced(targetIds, encodeText(live, text, changed, record), changed, record);
  return live.model.pair(record, kind, layer - 1, head - 1, row, column, changed);
}

// The logit lens (nostalgebraist 2020): the tokens that each point of the decoder would write, in every row; { name, rows: [{ best, logProb }] }, where
// `best` has [token, piece, log-probability] and `logProb` is of the token that was written. Of the last point they are the model's.
function lens(live, { text, targetIds, edits, temperature = 1 }) {
  const changed = new Edits(edits), record = modelRecord(), { model, target } = live;
  model.teacherForced(targetIds, encodeText(live, text, changed, record), changed, record);
  return record.points.filter(({ name }) => name.startsWith("decoder")).map(({ name, vectors }) => ({
    name, rows: vectors.map((vector, row) => {
      const logProbs = logSoftmax(model.logitsAt(vector), temperature);
      return { best: bestTokens(logProbs, LENS_BEST).map((token) => [token, shownPieces(target, [...targetIds.slice(Math.max(0, row - 3), row), token]).pop(), logProbs[token]]), logProb: logProbs[targetIds[row]] };
    }),
  }));
}
const LENS_BEST = 5;

// The logits of the next token at a position: all of them, and the best as [token, piece].
function nextToken(live, { text, targetIds, edits, row }) {
  const changed = new Edits(edits), hidden = live.model.hiddenStates(targetIds, encodeText(live, text, changed), changed)[row], logits = live.model.logits(hidden);
  return { logits, best: bestTokens(logits, NUM_BEST).map((token) => [token, shownPieces(live.target, [...targetIds.slice(Math.max(0, row - 3), row), token]).pop()]) };
}

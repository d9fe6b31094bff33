"use strict";
// Beam search with a length penalty, as decoding/beam_search.py; one beam is greedy search.

const NUM_BEST = 10;
const NODE_FIELDS = ["parent", "position", "token", "piece", "log_prob", "rank", "status", "score", "divisor", "following"];
const penaltyDivisor = (length, alpha) => ((5 + length) / 6) ** alpha;

// The `count` best tokens of log-probabilities, best first; of equal ones the first. PAD and BOS are never among them.
function bestTokens(logProbs, count) {
  const best = [];
  for (let token = EOS; token < logProbs.length; token++) {
    if (best.length === count && logProbs[token] <= logProbs[best[count - 1]]) continue;
    let index = best.length;
    while (index && logProbs[token] > logProbs[best[index - 1]]) index--;
    best.splice(index, 0, token);
    if (best.length > count) best.pop();
  }
  return best;
}

// Searches from step(id, state) -> { logits, cache }. Returns finished hypotheses { ids, logProb, score }, best first, and the tree
// of all prefixes as page.py writes it. `begin`: the token before the first. `forced`: tokens that every hypothesis begins with.
function beamSearch(step, cache, { beamWidth, lengthPenalty, temperature = 1, limit, begin = BOS, forced = [], pieceOf }) {
  let alive = [{ ids: [], logProb: 0, cache, node: -1 }], finished = [], numFinished = 0;
  const nodes = [], first = [];
  for (let position = 0; position < limit; position++) {
    const candidates = [], only = position + 1 >= limit ? EOS : forced[position];
    alive.forEach((beam, parent) => {
      const { logits, cache: after } = step(beam.ids.length ? beam.ids[beam.ids.length - 1] : begin, beam.cache);
      const logProbs = logSoftmax(logits, temperature), best = bestTokens(logProbs, Math.max(2 * beamWidth, NUM_BEST));
      const following = beam.node < 0 ? first : nodes[beam.node].following;
      following.push(...best.slice(0, NUM_BEST).map((token) => [token, pieceOf(token, beam.ids), logProbs[token]]));
      for (const token of only === undefined ? best : [only]) candidates.push({ parent, token, logProb: beam.logProb + logProbs[token], after });
    });
    candidates.sort((a, b) => b.logProb - a.logProb || a.parent - b.parent || a.token - b.token);
    const divisor = penaltyDivisor(position + 1, lengthPenalty), next = [];
    candidates.slice(0, 2 * beamWidth).forEach(({ parent, token, logProb, after }, rank) => {
      const from = alive[parent], ids = [...from.ids, token], isEnd = token === EOS;
      const status = (isEnd ? rank : next.length) < beamWidth ? isEnd ? "finished" : "kept" : "dropped";
      const score = status === "finished" ? logProb / divisor : null;
      nodes.push({ parent: from.node, position, token, piece: pieceOf(token, from.ids), log_prob: logProb, rank, status, score, divisor: score === null ? null : divisor, following: [] });
      if (status === "kept") next.push({ ids, logProb, cache: after, node: nodes.length - 1 });
      if (status === "finished") finished.push({ ids, logProb, score, node: nodes.length - 1, order: numFinished++ });
    });
    finished.sort((a, b) => b.score - a.score || a.order - b.order);
    const worst = finished.length < beamWidth ? -Infinity : finished[beamWidth - 1].score;
    if (!next.length || next[0].logProb / penaltyDivisor(limit, lengthPenalty) <= worst || (beamWidth === 1 && finished.length)) break;
    alive = next;
  }
  const search = {
    beamWidth, lengthPenalty, fields: NODE_FIELDS, first, forced: {},
    nodes: nodes.map((node) => NODE_FIELDS.map((name) => node[name])), hypotheses: finished.map((each) => each.node),
  };
  return { hypotheses: finished.slice(0, beamWidth), search };
}

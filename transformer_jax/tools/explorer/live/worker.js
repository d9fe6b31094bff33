"use strict";
// The model in a worker. A request { id, action, ... } is answered with { id, result }, { id, error } or, before, { id, done }: the
// share that is computed. A new request with the same action and slot stops the one before.

let live = null;
const newest = {};

const ACTIONS = {
  load({ settings, entries, bytes, tokenizers }) {
    const [source, target] = tokenizers.map(makeTokenizer);
    live = { model: new Transformer(settings, unpackParameters(entries, bytes)), source, target: target || source };
    return { loaded: entries.length };
  },
  read: (request) => readText(live, request),
  encode: ({ text }) => live.target.encode(text),
  decode: ({ ids }) => live.target.decode(ids),
  force(request) {
    const { translation, search, score } = readText(live, request);
    const best = search.nodes[search.hypotheses[0]];
    return { text: translation, score, logProb: best ? best[search.fields.indexOf("log_prob")] : null };
  },
  effects: (request, pause) => headEffects(live, request, pause),
  contrast: (request, pause) => contrast(live, request, pause),
  neurons: (request) => neurons(live, request),
};

self.onmessage = async ({ data }) => {
  const { id, action, slot = 0 } = data, key = `${action} ${slot}`;
  newest[key] = id;
  const pause = async (done) => {
    self.postMessage({ id, done });
    // Lets newer requests in.
    await new Promise((resume) => setTimeout(resume));
    if (newest[key] !== id) throw new Error("stopped");
  };
  try {
    self.postMessage({ id, result: await ACTIONS[action](data, pause) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};

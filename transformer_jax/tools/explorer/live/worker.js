"use strict";
// The model in a worker. A request { id, action, ... } is answered with { id, result }, { id, error } or, before, { id, done }: the
// share that is computed. A new request with the same action and slot stops the one before.

let live = null;
const newest = {};

const MODELS = { transformer: Transformer, decoder_only: Transformer, rnn: RnnSeq2Seq };

const ACTIONS = {
  load({ settings, entries, bytes, tokenizers, training }) {
    const [source, target = source] = tokenizers.map(makeTokenizer), model = new MODELS[settings.kind](settings, unpackParameters(entries, bytes));
    live = { model, source, target, training: { ...training, unseen: new Set(training.unseen) }, task: new (settings.kind === "decoder_only" ? Continuation : Translation)(model, source) };
    return { loaded: entries.length };
  },
  async read(request, pause) {
    await pause(0);
    return readText(live, request);
  },
  encode: ({ text }) => live.target.encode(text),
  decode: ({ ids }) => live.target.decode(ids),
  force(request) {
    const { ids, hypotheses } = searchText(live, request, encodeText(live, request.text, new Edits(request.edits)));
    return hypotheses.length ? { text: live.target.decode(ids), score: hypotheses[0].score, logProb: hypotheses[0].logProb } : { text: "", score: null, logProb: null };
  },
  effects: (request, pause) => effects(live, request, pause),
  contrast: (request, pause) => contrast(live, request, pause),
  neurons: (request) => neurons(live, request),
  lens: (request) => lens(live, request),
  nextToken: (request) => nextToken(live, request),
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

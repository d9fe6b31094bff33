"use strict";
// The guided tour: from a word to its translation, or to the next word. Texts are in TOUR_TEXTS alone, so that they can be translated. `code` is
// a name of the package; page.py replaces it by file and line. `show`: the state of the page at the step. `off`: words where it switches parts off.

const TOUR_TEXTS = {
  embedding: { title: "A word becomes a vector", source: "Vaswani et al. 2017, section 3.4",
    text: "The text is cut into tokens, and every token is a row of the embedding matrix, which the paper multiplies by √d_model. The buttons above are tokens: change the text and see them change." },
  positions: { title: "Where it stands", source: "Vaswani et al. 2017, section 3.5",
    text: "Attention alone does not know the order of the tokens.",
    of: {
      sinusoidal: "A sinusoid of the position is added to every vector.", fairseq: "A sinusoid of the position is added to every vector.",
      learned: "A learned vector of the position is added to every vector.", none: "This model has no positions: only its causal mask tells the order.",
      rope: "Queries and keys are rotated by angles that grow with their position (Su et al. 2021), so that a score depends on the distance.",
    },
    off: "Here the positions are off: compare with the unchanged model." },
  head: { title: "One head looks around", source: "Vaswani et al. 2017, equation 1",
    text: "Each row is a token, each column a token that it looks at. Every head has its own idea of what to look at: use the arrow keys to see the others." },
  query: { title: "A query meets a key", source: "Vaswani et al. 2017, equation 1",
    text: `A head makes a query of one token and a key of another. Their dot product${settings.isScaled ? ", divided by √d_k," : ""} is the score of the pair. The bars show which dimensions made it.` },
  softmax: { title: "Scores become weights", source: "Vaswani et al. 2017, equation 1",
    text: "The softmax turns the scores of a row into weights that sum to 1. The output of the head is the sum of the values, times these weights.",
    off: "Without 1/√d_k the weights become sharper: it is off here." },
  mask: { title: "No look into the future", source: "Vaswani et al. 2017, section 3.2.3",
    text: "The decoder writes from left to right, so a token may see only the tokens before it. The upper right of this matrix is empty: that is the causal mask." },
  cross: { title: "The decoder reads the source", source: "Vaswani et al. 2017, section 3.2.3",
    text: "Each row is a token of the translation, each column a token of the source. In most runs some heads align words with their translations." },
  residual: { title: "Residual and norm", source: "Vaswani et al. 2017, section 3.1",
    text: "Every sublayer adds its output to its input.", off: "Without the residual connections of the first layer, as here, the input is lost: see how the text changes." },
  logits: { title: "A probability for every token", source: "Vaswani et al. 2017, section 3.4",
    text: "The last vector is compared with every row of the output matrix. A softmax over the vocabulary gives the probability of each token. The inspector lists the best: click one to force it, or ask why it was not chosen." },
  search: { title: "The search for the best sentence", source: "Vaswani et al. 2017, section 6.1",
    text: "Beam search keeps a few prefixes, extends each, and keeps the best. The orange path won. Click a box, then another token, to see how the sentence would continue." },
  annotations: { title: "The source is read", source: "Bahdanau et al. 2015, section 3.2",
    text: "A recurrent network reads the source, from both ends if it is bidirectional. Each row is its state at a token: the annotation of the token. Below are the states of the decoder." },
  first: { title: "The first state", source: "Bahdanau et al. 2015, appendix A.2.2",
    text: "The decoder begins with a state that is computed from the last state of the encoder.", off: "Here it begins with zeros: what is left comes through attention." },
  score: { title: "A state meets an annotation", source: "Bahdanau et al. 2015, section 3.1; Luong et al. 2015, section 3.1",
    text: "A state of the decoder is the query, an annotation the key. The bars show which dimensions made the score of the pair, and what the weights before add to it, where the model looks at them." },
  alignment: { title: "Scores become an alignment", source: "Bahdanau et al. 2015, equations 5 and 6",
    text: "The softmax turns the scores of a row into weights that sum to 1. The context is the sum of the annotations, times these weights. Follow the rows: the weights move through the source." },
  context: { title: "What attention is for", source: "Bahdanau et al. 2015, section 3.1",
    text: "The next state, or the output, reads the context.", off: "Here the context is zero: all about the source is in the first state." },
};

const TOUR_CODE = {
  embedding: "layers.embedding:Embedding.embed", head: "layers.attention:MultiHeadAttention",
  sinusoidal: "layers.positions:sinusoid_table", fairseq: "layers.positions:fairseq_table", learned: "layers.positions:LearnedPositions",
  none: "layers.positions:NoPositions", rope: "kit.rope:RotaryPositions",
  query: "layers.attention:project_heads", softmax: "layers.scaled_dot_product:scaled_dot_product_attention", mask: "layers.masks:causal_mask",
  cross: "models.transformer_layers:DecoderLayer", residual: "layers.residual:Residual", logits: "layers.embedding:Embedding.logits",
  search: "decoding.beam_search:beam_search", annotations: "models.rnn:RnnEncoder", first: "models.rnn:Bridge", score: "layers.rnn_attention:RnnAttention",
  alignment: "layers.rnn_attention:attend", context: "models.rnn_decoder:LuongDecoder",
};

const OFF_POSITIONS = settings.positions === "none" ? {} : { off: "positions" }, OFF_SCALE = settings.isScaled ? { off: "scale" } : {};
// The steps of each kind of model, in order.
const TOURS = {
  transformer: {
    embedding: { view: "grid", kind: "encoder" }, positions: { view: "matrix", kind: "cross", head: 0, ...OFF_POSITIONS },
    head: { view: "matrix", kind: "encoder", layer: 1, head: 1 }, query: { view: "neurons", kind: "cross", layer: 1, head: 1, row: 1, column: 1 },
    softmax: { view: "matrix", kind: "cross", layer: 1, head: 1, ...OFF_SCALE }, mask: { view: "matrix", kind: "decoder", layer: 1, head: 0 },
    cross: { view: "lines", kind: "cross", layer: 2, head: 0 }, residual: { view: "matrix", kind: "cross", head: 0, off: "encoder.1.residual" },
    logits: { view: "matrix", kind: "cross", head: 0, row: 1 }, search: { view: "search" },
  },
  decoder_only: {
    embedding: { view: "grid" }, positions: { view: "matrix", head: 0, ...OFF_POSITIONS }, head: { view: "matrix", layer: 1, head: 1 },
    query: { view: "neurons", layer: 1, head: 1, row: 2, column: 1 }, softmax: { view: "matrix", layer: 1, head: 1, ...OFF_SCALE },
    mask: { view: "matrix", layer: 1, head: 0 }, residual: { view: "matrix", head: 0, off: "decoder.1.residual" }, logits: { view: "matrix", head: 0, row: 1 },
    search: { view: "search" },
  },
  rnn: {
    embedding: { view: "matrix" }, annotations: { view: "states" }, first: { view: "matrix", off: "start" }, score: { view: "neurons", head: 1, row: 1, column: 1 },
    alignment: { view: "matrix" }, context: { view: "lines", off: "cross.1.head.1" }, logits: { view: "matrix", row: 1 }, search: { view: "search" },
  },
};
const TOUR = TOURS[settings.kind];

const STEPS = Object.keys(TOUR), tourBox = element("section", [], { className: "tour", ariaLabel: "guided tour", hidden: true });
let shownStep = "";

function settleTour() {
  const step = Number.parseInt(state.tour, 10);
  state.tour = step >= 1 ? String(Math.min(step, STEPS.length)) : "";
}

// Goes to a step: the state of the page that it describes, without other edits.
function goToStep(step) {
  edit({ tour: String(step), force: "", beam: "", penalty: "", temperature: "", length: "", off: "", measure: "weights", row: -1, column: -1, ...TOUR[STEPS[step - 1]] });
}

// Begins or ends the tour.
const tour = () => state.tour ? edit({ tour: "", off: "" }) : goToStep(1);

function showTour() {
  tourBox.hidden = !state.tour;
  if (state.tour === shownStep) return;
  shownStep = state.tour;
  if (!state.tour) return;
  const step = Number(state.tour), name = STEPS[step - 1], { title, text, of, off, source } = TOUR_TEXTS[name];
  const words = [text, of && of[settings.positions], TOUR[name].off && off].filter(Boolean).join(" ");
  const button = (words, to) => element("button", words, { type: "button", disabled: to < 1 || to > STEPS.length, onclick: () => goToStep(to) });
  tourBox.replaceChildren(
    element("h2", `${step} of ${STEPS.length}: ${title}`), element("p", words),
    element("p", [`${source}; code: `, element("code", model.code[of ? settings.positions : name])], { className: "words" }),
    button("back", step - 1), button("show", step), button("next", step + 1), element("button", "end", { type: "button", onclick: tour }),
  );
}

"use strict";
// The guided tour: ten steps from a word to its translation. Texts are in TOUR_TEXTS alone, so that they can be translated.
// `code` is a name of the package; page.py replaces it by file and line. `show`: the state of the page at the step.

const TOUR_TEXTS = {
  embedding: { title: "A word becomes a vector", equation: "section 3.4",
    text: "The source is cut into tokens, and every token is a row of the embedding matrix, times √d_model. The buttons above are tokens: change the source and see them change." },
  positions: { title: "Where it stands", equation: "section 3.5",
    text: "Attention alone does not know the order of the tokens. A sinusoid of the position is added to every vector. Here the positions are off: compare the translation with the unchanged one." },
  head: { title: "One head looks around", equation: "equation 1",
    text: "Each row is a token of the source, each column a token that it looks at. Every head has its own idea of what to look at: use the arrow keys to see the others." },
  query: { title: "A query meets a key", equation: "equation 1",
    text: "A head makes a query of one token and a key of another. Their dot product, divided by √d_k, is the score of the pair. The bars show which dimensions made it." },
  softmax: { title: "Scores become weights", equation: "equation 1",
    text: "The softmax turns the scores of a row into weights that sum to 1. The output of the head is the sum of the values, times these weights. Without 1/√d_k the weights become sharper: it is off here." },
  mask: { title: "No look into the future", equation: "section 3.2.3",
    text: "The decoder writes from left to right, so a token may see only the tokens before it. The upper right of this matrix is empty: that is the causal mask." },
  cross: { title: "The decoder reads the source", equation: "section 3.2.3",
    text: "Each row is a token of the translation, each column a token of the source. In most runs some heads align words with their translations." },
  residual: { title: "Residual and norm", equation: "section 3.1",
    text: "Every sublayer adds its output to its input. Without the residual connections of the first encoder layer, as here, the input is lost: see how the translation changes." },
  logits: { title: "A probability for every token", equation: "section 3.4",
    text: "The last vector is compared with every row of the output matrix. A softmax over the vocabulary gives the probability of each token. The inspector lists the best: click one to force it, or ask why it was not chosen." },
  search: { title: "The search for the best sentence", equation: "section 6.1",
    text: "Beam search keeps a few prefixes, extends each, and keeps the best. The orange path won. Click a box, then another token, to see how the sentence would continue." },
};

const TOUR_CODE = {
  embedding: "layers.embedding:Embedding.embed", positions: "layers.positions:sinusoid_table", head: "layers.attention:MultiHeadAttention",
  query: "layers.attention:project_heads", softmax: "layers.scaled_dot_product:scaled_dot_product_attention", mask: "layers.masks:causal_mask",
  cross: "models.transformer_layers:DecoderLayer", residual: "layers.residual:Residual", logits: "layers.embedding:Embedding.logits",
  search: "decoding.beam_search:beam_search",
};

const TOUR_STATES = {
  embedding: { view: "grid", kind: "encoder" }, positions: { view: "matrix", kind: "cross", head: 0, off: "positions" },
  head: { view: "matrix", kind: "encoder", layer: 1, head: 1 }, query: { view: "neurons", kind: "cross", layer: 1, head: 1, row: 1, column: 1 },
  softmax: { view: "matrix", kind: "cross", layer: 1, head: 1, off: "scale" }, mask: { view: "matrix", kind: "decoder", layer: 1, head: 0 },
  cross: { view: "lines", kind: "cross", layer: 2, head: 0 }, residual: { view: "matrix", kind: "cross", head: 0, off: "encoder.1.residual" },
  logits: { view: "matrix", kind: "cross", head: 0, row: 1 }, search: { view: "search" },
};

const STEPS = Object.keys(TOUR_TEXTS), tourBox = element("section", [], { className: "tour", ariaLabel: "guided tour", hidden: true });
let shownStep = "";

function settleTour() {
  const step = Number.parseInt(state.tour, 10);
  state.tour = step >= 1 ? String(Math.min(step, STEPS.length)) : "";
}

// Goes to a step: the state of the page that it describes, without other edits.
function goToStep(step) {
  edit({ tour: String(step), force: "", beam: "", penalty: "", temperature: "", off: "", measure: "weights", row: -1, column: -1, ...TOUR_STATES[STEPS[step - 1]] });
}

// Begins or ends the tour.
const tour = () => state.tour ? edit({ tour: "", off: "" }) : goToStep(1);

function showTour() {
  tourBox.hidden = !state.tour;
  if (state.tour === shownStep) return;
  shownStep = state.tour;
  if (!state.tour) return;
  const step = Number(state.tour), name = STEPS[step - 1], { title, text, equation } = TOUR_TEXTS[name];
  const button = (words, to) => element("button", words, { type: "button", disabled: to < 1 || to > STEPS.length, onclick: () => goToStep(to) });
  tourBox.replaceChildren(
    element("h2", `${step} of ${STEPS.length}: ${title}`), element("p", text),
    element("p", [`Vaswani et al. 2017, ${equation}; code: `, element("code", model.code[name])], { className: "words" }),
    button("back", step - 1), button("show", step), button("next", step + 1), element("button", "end", { type: "button", onclick: tour }),
  );
}

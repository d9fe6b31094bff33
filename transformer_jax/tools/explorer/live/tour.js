"use strict";
// The guided tour: from a word to its translation, or to the next word. Texts are in TOUR_TEXTS alone, so that they can be translated. `of`: words that depend on the
// positions; `off`: words where the step switches parts off.

const TOUR_TEXTS = {
  embedding: { title: "A word becomes a vector", source: "Vaswani et al. 2017, section 3.4",
    text: "The text is cut into tokens, and every token is a row of the embedding matrix, which the paper multiplies by √d_model. Here is the vector of the marked token, with its first numbers below. The buttons above are tokens: change the text and see them change." },
  positions: { title: "Where it stands", source: "Vaswani et al. 2017, section 3.5",
    text: "Attention alone does not know the order of the tokens.",
    of: {
      sinusoidal: "A sinusoid of the position is added to every vector.", fairseq: "A sinusoid of the position is added to every vector.",
      learned: "A learned vector of the position is added to every vector.", none: "This model has no positions: only its causal mask tells the order.",
      rope: "Queries and keys are rotated by angles that grow with their position (Su et al. 2021), so that a score depends on the distance.",
    },
    off: "Here the positions are off: compare with the unchanged model." },
  head: { title: "One head looks around", source: "Vaswani et al. 2017, equation 1",
    text: "Each row is a token, each column a token that it looks at. This head has the largest weight that a word of this sentence gives to another, in the marked cell. Every head has its own idea of what to look at: click others in the map." },
  query: { title: "A query meets a key", source: "Vaswani et al. 2017, equation 1",
    text: `A head makes a query of one token and a key of another. Their dot product${settings.isScaled ? ", divided by √d_k," : ""} is the score of the pair. The bars show which dimensions made it.` },
  softmax: { title: "Scores become weights", source: "Vaswani et al. 2017, equation 1",
    text: "The softmax turns the scores of a row into weights that sum to 1: it takes exp(score) and divides by the sum. Move the temperature. The output of the head is the sum of the values, times these weights." },
  mask: { title: "No look into the future", source: "Vaswani et al. 2017, section 3.2.3",
    text: "The decoder writes from left to right, so a token may see only the tokens before it. The upper right of this matrix is empty: that is the causal mask." },
  cross: { title: "The decoder reads the source", source: "Vaswani et al. 2017, section 3.2.3",
    text: "Each row is a token of the translation, each column a token of the source. In most runs some heads align words with their translations." },
  stream: { title: "Every layer adds to a vector", source: "Vaswani et al. 2017, section 3.1",
    text: "Every sublayer, attention or feed-forward, adds its output to its input. Each line here is the token that the vector would write after a sublayer, if the model ended there: follow the marked column down." },
  residual: { title: "Residual and norm", source: "Vaswani et al. 2017, section 3.1",
    text: "The sum keeps the input.", off: "Without the residual connections of the first layer, as here, the input is lost: see how the text changes." },
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
  cross: "models.transformer_layers:DecoderLayer", stream: "layers.feed_forward:FeedForward", residual: "layers.residual:Residual", logits: "layers.embedding:Embedding.logits",
  search: "decoding.beam_search:beam_search", annotations: "models.rnn:RnnEncoder", first: "models.rnn:Bridge", score: "layers.rnn_attention:RnnAttention",
  alignment: "layers.rnn_attention:attend", context: "models.rnn_decoder:LuongDecoder",
};

const OFF_POSITIONS = settings.positions === "none" ? {} : { off: "positions" };

// The cell with the largest weight of a kind of attention: of a live reading, between tokens with a letter or digit where there are any.
function sharpestCell(reading, kind) {
  const attention = reading.attentions.find((each) => each.kind === kind), rows = reading.tokens[attention.rows], columns = reading.tokens[attention.columns];
  const isWord = (piece) => /[\p{L}\p{N}]/u.test(piece) && !/^<.*>$/.test(piece);
  const search = (isUsed) => {
    let best = { weight: -1 };
    attention.weights.forEach(({ values }, layer) => values.forEach((weight, index) => {
      const row = Math.floor(index / columns.length) % rows.length, column = index % columns.length, head = Math.floor(index / columns.length / rows.length) + 1;
      // In self-attention a token that looks at itself shows little.
      if (weight > best.weight && isUsed(rows[row]) && isUsed(columns[column]) && (kind === "cross" || row !== column)) best = { weight, layer: layer + 1, head, row, column };
    }));
    return best;
  };
  const word = search(isWord), { weight, ...cell } = word.weight >= 0 ? word : search(() => true);
  return weight >= 0 ? { kind, ...cell } : { kind };
}

const SHARPEST = { encoder: (reading) => sharpestCell(reading, "encoder"), cross: (reading) => sharpestCell(reading, "cross"), decoder: (reading) => sharpestCell(reading, "decoder") };
const OUTPUT_PART = ["output"];

// The steps of each kind of model, in order: the state of the page, and `of` what is computed from the live reading. `lit`: parts of the map.
const TOURS = {
  transformer: {
    embedding: { view: "vectors", kind: "cross", column: 1, lit: ["encoder.embedding"] }, positions: { view: "matrix", kind: "cross", head: 0, lit: ["encoder.embedding", "decoder.embedding"], ...OFF_POSITIONS },
    head: { view: "matrix", of: SHARPEST.encoder }, query: { view: "neurons", of: SHARPEST.cross }, softmax: { view: "softmax", of: SHARPEST.cross },
    mask: { view: "matrix", kind: "decoder", layer: 1, head: 0 }, cross: { view: "lines", kind: "cross", layer: DEPTHS.cross, head: 0 },
    stream: { view: "layers", kind: "cross", row: 1, lit: counted(DEPTHS.decoder).map((layer) => `decoder.${layer + 1}.feed_forward`) },
    residual: { view: "matrix", kind: "cross", head: 0, off: "encoder.1.residual", lit: ["encoder.1.self", "encoder.1.feed_forward"] },
    logits: { view: "softmax", kind: "cross", row: 1, lit: OUTPUT_PART }, search: { view: "search", lit: OUTPUT_PART },
  },
  decoder_only: {
    embedding: { view: "vectors", row: 1, lit: ["decoder.embedding"] }, positions: { view: "matrix", head: 0, lit: ["decoder.embedding"], ...OFF_POSITIONS },
    head: { view: "matrix", of: SHARPEST.decoder }, query: { view: "neurons", of: SHARPEST.decoder }, softmax: { view: "softmax", of: SHARPEST.decoder },
    mask: { view: "matrix", layer: 1, head: 0 }, stream: { view: "layers", row: 1, lit: counted(DEPTHS.decoder).map((layer) => `decoder.${layer + 1}.feed_forward`) },
    residual: { view: "matrix", head: 0, off: "decoder.1.residual", lit: ["decoder.1.self", "decoder.1.feed_forward"] }, logits: { view: "softmax", row: 1, lit: OUTPUT_PART },
    search: { view: "search", lit: OUTPUT_PART },
  },
  rnn: {
    embedding: { view: "vectors", column: 1, lit: ["encoder.states"] }, annotations: { view: "vectors", lit: ["encoder.states"] }, first: { view: "matrix", off: "start", lit: ["decoder.states"] },
    score: { view: "neurons", of: SHARPEST.cross }, alignment: { view: "matrix" }, context: { view: "lines", off: "cross.1.head.1" },
    logits: { view: "softmax", row: 1, lit: OUTPUT_PART }, search: { view: "search", lit: OUTPUT_PART },
  },
};
const TOUR = TOURS[settings.kind], STEPS = Object.keys(TOUR);
const stepHere = () => STEPS[Number(state.tour) - 1];
const litByTour = () => state.tour ? TOUR[stepHere()].lit : null;

function settleTour() {
  const step = Number.parseInt(state.tour, 10);
  state.tour = step >= 1 ? String(Math.min(step, STEPS.length)) : "";
}

// Goes to a step: the state of the page that it describes, without other edits.
function goToStep(step) {
  const { lit, of, ...shown } = TOUR[STEPS[step - 1]], reading = liveReading(UNCHANGED);
  edit({ tour: String(step), force: "", beam: "", penalty: "", temperature: "", length: "", off: "", measure: "weights", run: UNCHANGED, ...shown, row: -1, column: -1, node: -1, ...shown, ...of && reading ? of(reading) : {} });
  openSheet("side", true);
}

// Begins or ends the tour.
const tour = () => state.tour ? edit({ tour: "", off: "" }) : goToStep(1);

// The box is built once, so that a button keeps the focus from step to step.
const tourTitle = element("h2"), tourText = element("p", "", { ariaLive: "polite" }), tourSource = element("p", "", { className: "words" });
const stepButton = (words, by) => element("button", words, { type: "button", onclick: () => goToStep(clamp(Number(state.tour) + by, 1, STEPS.length)) });
const tourButtons = [stepButton("back", -1), stepButton("show again", 0), stepButton("next", 1), element("button", "end", { type: "button", onclick: tour })];
const tourBox = element("section", [tourTitle, tourText, tourSource, element("div", tourButtons)], { className: "tour", ariaLabel: "guided tour", hidden: true });

function showTour() {
  tourBox.hidden = !state.tour;
  byId("tour").setAttribute("aria-pressed", String(Boolean(state.tour)));
  if (!state.tour) return;
  const step = Number(state.tour), name = stepHere(), { title, text, of, off, source } = TOUR_TEXTS[name];
  tourTitle.textContent = `${step} of ${STEPS.length}: ${title}`;
  tourText.textContent = [text, of && of[settings.positions], TOUR[name].off && off].filter(Boolean).join(" ");
  tourSource.replaceChildren(`${source}; code: `, element("code", model.code[of ? settings.positions : name]));
  for (const [button, isEnd, why] of [[tourButtons[0], step === 1, "this is the first step"], [tourButtons[2], step === STEPS.length, "this is the last step"]]) {
    button.ariaDisabled = isEnd ? "true" : null;
    button.title = isEnd ? why : "";
  }
}

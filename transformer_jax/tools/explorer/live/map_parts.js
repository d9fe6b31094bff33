// The parts of the map that a live page adds: embeddings, feed-forward layers, the output, the switches, the settings of the search, and the way of the
// chosen token.

const VECTORS = { view: "vectors" }, LAYERS = { view: "layers" };
// Rotary positions are of queries and keys.
const EMBEDDING = ["none", "rope"].includes(settings.positions) ? "embedding" : "embedding + position";

function partsOfStack(stack) {
  if (settings.kind === "rnn") {
    const states = { id: `${stack}.states`, title: stack === "encoder" ? "recurrent layers" : "recurrent state", open: VECTORS, hint: "the vectors of the tokens" };
    return stack === "encoder" ? { before: [states], after: [] } : { before: [], after: [states, OUTPUT] };
  }
  if (!DEPTHS[stack]) return { before: [], after: [] };
  const embedding = { id: `${stack}.embedding`, title: EMBEDDING, open: VECTORS, hint: "the vectors of the tokens" };
  return { before: [embedding], after: stack === "decoder" ? [OUTPUT] : [] };
}
const OUTPUT = { id: "output", title: "output: softmax, search", get open() { return { view: state.row < 0 ? "search" : "softmax" }; }, hint: "the probabilities of the chosen token, or the search" };

const partsOfLayer = (stack, layer) => settings.kind === "rnn" ? [] : [{ id: `${stack}.${layer}.feed_forward`, title: "feed-forward", open: stack === "decoder" ? LAYERS : VECTORS, hint: "the residual stream by layers" }];

const switchOf = (name, title) => element("button", title, { type: "button", value: name, title: `switch off: ${titleOf(name)}`, className: "switch", onclick: () => toggle(name) });
const switchesOfLayer = (name) => Object.keys(STACKS).length ? [switchOf(name, "layer"), switchOf(`${name}.residual`, "residual")] : [];

const numberInputs = {};

// Below the boxes: the switches of the whole model and the settings of the search.
function belowMap() {
  const inputs = Object.entries(NUMBERS).map(([name, { least, most, step, title }]) => {
    numberInputs[name] = element("input", "", { type: "number", min: least, max: most, step, value: numberOf(name), onchange: ({ target }) => { edit({ [name]: target.value }); target.value = numberOf(name); } });
    return element("label", [title, numberInputs[name]], { className: "number" });
  });
  return [element("div", [element("h2", "whole model"), ...Object.entries(CHOICES).map(([name, title]) => switchOf(name, title))], { className: "whole" }), element("h2", "search"), ...inputs];
}

function showSwitches() {
  const off = new Set(editsOn());
  for (const button of byId("map").querySelectorAll("button.switch")) {
    button.setAttribute("aria-pressed", String(off.has(button.value)));
    button.classList.toggle("off", off.has(button.value));
  }
  for (const [name, input] of Object.entries(numberInputs)) if (document.activeElement !== input) input.value = numberOf(name);
}

const bare = (piece) => `“${shown(piece).replace(/^\u2423(?=.)/, "")}”`;

// The token on its way: of the chosen row of the target, where each attention looks most and which token each point would write.
function says({ id, kind, layer }) {
  const { reading } = mainPanel() || {}, row = reading && reading.targetIds ? targetRow(reading) : -1;
  if (row < 0 || row >= reading.tokens.target.length || !id.startsWith("decoder") && id !== "output") return "";
  if (id === "output") return `${bare(reading.tokens.target[row])} ${Math.exp(reading.logProbs[row]).toFixed(2)}`;
  const attention = kind && reading.attentions.find((each) => each.kind === kind), matrix = attention && matrixOf(reading, attention, layer - 1, 0, "weights");
  const weights = matrix && matrix.values.subarray(row * matrix.columns.length, (row + 1) * matrix.columns.length);
  const read = weights ? `reads ${bare(matrix.columns[weights.indexOf(Math.max(...weights))])}` : "";
  if (settings.kind === "rnn") return read;
  const { points } = lensOf(reading), point = points && points.find(({ name }) => name === id);
  return [read, point ? `says ${bare(point.rows[row].best[0][1])} ${Math.exp(point.rows[row].best[0][2]).toFixed(2)}` : ""].filter(Boolean).join(", ");
}

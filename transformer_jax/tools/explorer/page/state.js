// The state of the page, in its address: `set` changes it and draws the page again.

const KEY_OF_KIND = { encoder: "e", decoder: "d", cross: "c" };
const MEASURES = {
  weights: { name: "weights", key: "w", source: "attention weights; each row of a softmax sums to 1" },
  rollout: { name: "rollout", key: "r", source: "attention rollout, from this layer back to the embeddings; Abnar and Zuidema 2020" },
  norms: { name: "norms", key: "n", source: "norm of weight times transformed value; Kobayashi et al. 2020" },
  gradient: { name: "gradient × input", key: "x", isSigned: true, source: "gradient x input of the log-probability of the row's token; Shrikumar et al. 2017" },
};
const state = {
  text: 0, run: 0, beside: -1, view: "matrix", kind: "", layer: 1, head: 1, ...page.opening, measure: "weights", zoom: 0,
  row: -1, column: -1, node: -1, palette: "blue", theme: "", shades: "linear",
};
const MOST_ZOOM = 24, THEMES = { "": true, light: true, dark: true }, SHADES = { linear: true, root: true };
const AS_TEXT = ["view", "kind", "measure", "palette", "theme", "shades"];
// In the address layers, heads, texts and runs count from 1; head 0 is the mean of all.
const FROM_ONE = ["text", "run", "beside", "row", "column", "node"];
// Changes that the browser's "back" undoes.
const UNDONE_BY_BACK = new Set(["text"]);
const initial = {}; // the state without an address
// Functions of other scripts to call when the page is drawn, and their keys.
const onRender = [], otherKeys = {};
let live = null; // of a live page, see live/views.js: { settle, show, inspect, force, why, isRead, isComputing, keys }

const readingOf = (run) => page.readings.find((each) => each.text === state.text && each.run === run);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// The number in the model of a layer of a kind of attention, from its position among these, from 1: other layers may be recurrent.
const layerNumber = (run, kind, layer) => (page.runs[run].layers[kind] || [])[layer - 1] || layer;

function attentionOf(reading) {
  return reading && (reading.attentions.find((each) => each.kind === state.kind) || reading.attentions[reading.attentions.length - 1]);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(state)) {
    const text = given.get(name);
    if (text === null) state[name] = name === "theme" || name === "palette" ? state[name] : initial[name];
    else if (AS_TEXT.includes(name)) state[name] = text;
    else state[name] = (Number.parseInt(text, 10) || 0) - (FROM_ONE.includes(name) ? 1 : 0);
  }
}

let written = {};
function writeAddress() {
  const parts = Object.keys(state).filter((name) => state[name] !== initial[name]).map((name) => {
    const value = FROM_ONE.includes(name) ? state[name] + 1 : state[name];
    return name + "=" + encodeURIComponent(value);
  });
  const address = "#" + parts.join("&"), isStep = [...UNDONE_BY_BACK].some((name) => name in written && written[name] !== state[name]);
  if (address !== (location.hash || "#")) history[isStep ? "pushState" : "replaceState"](null, "", address);
  written = { ...state };
}

// After the address has changed.
function followAddress() {
  readAddress();
  settle();
  written = { ...state };
  render();
}

// Makes the state valid: numbers out of range become the nearest valid one, unknown words the first choice, and a token or
// prefix that does not exist is deselected, of a live text once the model has read it.
function settle() {
  state.text = clamp(state.text, 0, Math.max(...page.readings.map((each) => each.text)));
  state.run = clamp(state.run, 0, page.runs.length - 1);
  state.zoom = clamp(state.zoom, -MOST_ZOOM, MOST_ZOOM);
  if (!Object.hasOwn(THEMES, state.theme)) state.theme = "";
  if (!Object.hasOwn(SHADES, state.shades)) state.shades = "linear";
  if (!Object.hasOwn(PALETTES, state.palette)) state.palette = "blue";
  if (!readingOf(state.run)) state.run = page.readings.find((each) => each.text === state.text).run;
  if (!readingOf(state.beside)) state.beside = -1;
  if (live) live.settle();
  if (!Object.hasOwn(VIEWS, state.view) || !VIEWS[state.view].isThere()) state.view = Object.keys(VIEWS).find((name) => VIEWS[name].isThere()) || "matrix";
  const reading = readingOf(state.run), attention = attentionOf(reading);
  const isRead = !live || live.isRead(reading);
  if (state.node < 0 || (isRead && state.node >= (reading.search ? reading.search.nodes.length : 0))) state.node = -1;
  if (!attention) return;
  state.kind = attention.kind;
  state.layer = clamp(state.layer, 1, attention.layers);
  state.head = clamp(state.head, 0, attention.heads);
  // A live page has a measure of changes before it has computed them.
  if (!Object.hasOwn(MEASURES, state.measure) || !(hasMeasure(reading, attention, state.measure) || (live && live.isComputing()))) state.measure = "weights";
  for (const side of ["row", "column"]) {
    if (state[side] < 0 || (isRead && state[side] >= reading.tokens[attention[side + "s"]].length)) state[side] = -1;
  }
}

function set(changes) {
  // A chosen run that has not read the text here shows the first that it has read.
  const { text, run } = { ...state, ...changes }, ofRun = page.readings.filter((each) => each.run === run);
  if ("run" in changes && ofRun.length && !ofRun.some((each) => each.text === text)) changes = { ...changes, text: ofRun[0].text };
  const isNew = (name) => name in changes && changes[name] !== state[name];
  if (isNew("text") || isNew("kind")) Object.assign(state, { row: -1, column: -1 });
  if (isNew("text") || isNew("run")) state.node = -1;
  Object.assign(state, changes);
  hovered = null;
  settle();
  writeAddress();
  render();
}


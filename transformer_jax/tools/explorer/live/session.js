"use strict";
// The live model in the page: its worker, the edits in the address, and two more runs, unchanged and changed, of one more text.

const model = page.model, { settings } = model, HEADS = counted(settings.heads).map((head) => head + 1);
// Parts of each kind of model that can be switched off, see `Edits`: in the whole model, and the kinds of attention of every layer of a stack.
const SWITCHES = {
  transformer: {
    whole: { positions: "positions", causal: "causal mask", padding: "padding mask", scale: "1/√d_k" },
    stacks: { encoder: ["encoder"], decoder: ["decoder", "cross"] },
  },
  decoder_only: { whole: { positions: "positions", causal: "causal mask", scale: "1/√d_k" }, stacks: { decoder: ["decoder"] } },
  rnn: {
    whole: {
      "cross.1.head.1": "attention", start: "first state", ...settings.isBidirectional ? { backward: "backward encoder" } : {},
      ...settings.wiring === "luong" && settings.feedsInput ? { feeding: "input feeding" } : {}, ...settings.filters ? { location: "location features" } : {},
    },
    stacks: {},
  },
};
const { whole: CHOICES, stacks: STACKS } = SWITCHES[settings.kind], isTranslation = settings.kind !== "decoder_only";
const DEPTHS = { encoder: settings.encoderLayers, decoder: settings.decoderLayers, cross: settings.decoderLayers };
const LIVE_TEXT = 1 + Math.max(...page.readings.map((each) => each.text));
const UNCHANGED = page.runs.length, CHANGED = UNCHANGED + 1;
const HEAD_NAMES = Object.values(STACKS).flat().flatMap((kind) => counted(DEPTHS[kind]).flatMap((layer) => HEADS.map((head) => `${kind}.${layer + 1}.head.${head}`)));
const EDIT_NAMES = new Set([
  ...Object.keys(CHOICES), ...HEAD_NAMES,
  ...Object.keys(STACKS).flatMap((stack) => counted(DEPTHS[stack]).flatMap((layer) => [`${stack}.${layer + 1}`, `${stack}.${layer + 1}.residual`])),
]);
const NUMBERS = {
  beam: { least: 1, most: Math.max(8, model.search.beamWidth), step: 1, usual: model.search.beamWidth, title: "beams" },
  penalty: { least: 0, most: 2, step: 0.1, usual: model.search.lengthPenalty, title: "length penalty" },
  temperature: { least: 0.1, most: 5, step: 0.1, usual: 1, title: "temperature" },
  ...isTranslation ? {} : { length: { least: 1, most: settings.contextLength, step: 1, usual: model.search.length, title: "new tokens" } },
};

// `source`: the text; `force`: ids of the first tokens; `off`: parts that are off. Empty: as in the run.
Object.assign(state, { source: "", force: "", off: "", beam: "", penalty: "", temperature: "", length: "", tour: "", text: LIVE_TEXT, run: UNCHANGED });
AS_TEXT.push("source", "force", "off", "beam", "penalty", "temperature", "length", "tour");
for (const name of ["source", "force", "off", "beam", "penalty", "temperature", "length", "tour"]) UNDONE_BY_BACK.add(name);
page.runs.push({ ...page.runs[0], detail: "live" }, { ...page.runs[0], detail: "live, changed" });
// Until the model has read it, the live text is as the first of the page.
const first = page.readings.find((each) => each.run === 0 && each.text === 0);
page.readings.push({ ...first, text: LIVE_TEXT, run: UNCHANGED });
page.statistics.push(...page.statistics.filter(({ run }) => run === 0).map((each) => ({ ...each, run: UNCHANGED })));

const liveSource = () => state.source || first.source;
const idsOf = (text) => text ? text.split(".").map(Number) : [];
const editsOn = () => state.off ? state.off.split(",") : [];
const numberOf = (name) => state[name] === "" ? NUMBERS[name].usual : Number(state[name]);
const liveReading = (run) => page.readings.find((each) => each.text === LIVE_TEXT && each.run === run && each.targetIds);
const isChanged = () => ["force", "off", "beam", "penalty", "temperature", "length"].some((name) => state[name]);

function settleLive() {
  const known = editsOn().filter((name) => EDIT_NAMES.has(name)), target = model.tokenizers[model.tokenizers.length - 1];
  // Half of a surrogate pair has no address.
  state.source = state.source.replace(/\p{Surrogate}/gu, "\ufffd");
  if (isTranslation && !/[^\p{C}\p{Z}]/u.test(state.source)) state.source = "";
  state.off = [...new Set(known)].sort().join(",");
  const ids = idsOf(state.force), isToken = (id, index) => Number.isInteger(id) && id >= 2 && id < target.pieces.length && (id !== 2 || index + 1 === ids.length);
  if (!ids.every(isToken)) state.force = "";
  if (isTranslation) state.length = "";
  for (const [name, { least, most, usual, step }] of Object.entries(NUMBERS)) {
    const given = Number.parseFloat(state[name]), value = Number(clamp(Math.round(given / step) * step, least, most).toFixed(1));
    state[name] = Number.isNaN(value) || given === usual || value === usual ? "" : String(value);
  }
  settleTour();
}

// ---------------------------------------------------------------- worker

const waiting = new Map(); // number of a request -> { resolve, reject, progress }
let requests = 0, loading = null;

function startWorker() {
  const script = new Blob([byId("worker").textContent], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script));
  worker.onmessage = ({ data: { id, result, error, done } }) => {
    const { resolve, reject, progress } = waiting.get(id);
    if (done !== undefined) return progress && progress(done);
    waiting.delete(id);
    if (error !== undefined) reject(new Error(error));
    else resolve(result);
  };
  worker.onerror = (event) => sayLive("the model failed: " + event.message);
  return worker;
}

function post(worker, action, fields, progress) {
  const id = ++requests;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, progress });
    worker.postMessage({ ...fields, id, action });
  });
}

// The model is loaded with the first request.
async function request(action, fields = {}, progress = null) {
  loading = loading || (async () => {
    const worker = startWorker(), { entries, tokenizers } = model;
    await post(worker, "load", { settings, entries, tokenizers, training: model.training, bytes: await inflate(model.block) });
    return worker;
  })();
  return post(await loading, action, fields, progress);
}

// ---------------------------------------------------------------- readings

const usualSearch = () => ({ ...model.search, temperature: 1 });
const changedSearch = () => ({ beamWidth: numberOf("beam"), lengthPenalty: numberOf("penalty"), temperature: numberOf("temperature"), length: isTranslation ? 0 : numberOf("length") });

function keepReading(run, reading) {
  page.readings = page.readings.filter((each) => each.text !== LIVE_TEXT || each.run !== run);
  if (reading) page.readings.push({ ...reading, text: LIVE_TEXT, run });
  // Their keys are indices of readings.
  matrices.clear();
  thumbnails.clear();
}

let asked = "", readSource = "";

// Replaces both readings together, so that what is shown always has a reading. `unchanged`: null to keep it.
function keepReadings(unchanged, changed) {
  if (unchanged) {
    keepReading(UNCHANGED, unchanged);
    readSource = unchanged.source;
  }
  keepReading(CHANGED, changed && { ...changed, edits: editsOn(), temperature: numberOf("temperature") });
  const isHere = state.text === LIVE_TEXT;
  set(!isHere ? {} : changed ? { run: CHANGED, beside: UNCHANGED } : { run: UNCHANGED, beside: -1 });
  if (!performance.getEntriesByName("live").length) performance.mark("live");
}

const isRead = (reading) => reading.text !== LIVE_TEXT || Boolean(reading.targetIds);
const isComputing = () => isChanged() && !liveReading(CHANGED);

// Reads the text with both models if an edit has changed; the page stays as it is until both readings are there.
async function refresh() {
  const question = [liveSource(), state.force, state.off, state.beam, state.penalty, state.temperature, state.length].join("\n");
  if (question === asked) return;
  asked = question;
  const text = liveSource();
  sayLive(loading ? "computing …" : "loading the model …");
  let unchanged = null;
  try {
    if (readSource !== text) unchanged = await request("read", { text, edits: [], search: usualSearch(), forced: [] });
    if (question !== asked) return;
    const changed = isChanged() ? await request("read", { text, edits: editsOn(), search: changedSearch(), forced: idsOf(state.force) }) : null;
    if (question !== asked) return;
    sayLive("");
    keepReadings(unchanged, changed);
  } catch (error) {
    // "stopped": a newer request took over.
    if (question !== asked || error.message === "stopped") return;
    sayLive(error.message);
    if (unchanged) keepReadings(unchanged, null);
  }
}

// An edit; the live text is shown.
const edit = (changes) => set(state.text === LIVE_TEXT ? changes : { ...changes, text: LIVE_TEXT });

// Switches parts off, or all of them on again if they are off.
function toggleAll(names) {
  const before = editsOn(), rest = before.filter((each) => !names.includes(each));
  edit({ off: (names.every((name) => before.includes(name)) ? rest : [...rest, ...names]).join(",") });
}
const toggle = (name) => toggleAll([name]);

// The name of a part, see `Edits`, in words.
function titleOf(name) {
  const [stack, layer, ...rest] = name.split(".");
  if (Object.hasOwn(CHOICES, name)) return CHOICES[name];
  if (rest[0] !== "head") return [`${stack} ${layer}`, ...rest].join(", ");
  return `${stack === "cross" ? "decoder" : stack} ${layer}, ${stack === "cross" ? "cross" : "self"}-attention head ${rest[1]}`;
}

// The changes of the changed model in words.
function changesInWords() {
  // Heads of one attention are named together.
  const groups = Map.groupBy(editsOn(), (name) => name.replace(/\.head\.\d+$/, "."));
  const off = [...groups].map(([group, names]) => names.length > 1 ? `${titleOf(names[0]).replace(/ \d+$/, "s ")}${names.map((name) => name.split(".").pop()).join(", ")}` : titleOf(names[0])), forced = idsOf(state.force).length;
  const numbers = Object.keys(NUMBERS).filter((name) => state[name]).map((name) => `${NUMBERS[name].title} ${numberOf(name)}`);
  return [...off.length ? [`${off.join("; ")} off`] : [], ...forced ? [`${forced} tokens forced`] : [], ...numbers].join(", ");
}

// ---------------------------------------------------------------- difference

// How many rows or columns of an axis can be compared: those before which both translations are the same.
function comparable(axis, reading, other) {
  const here = reading.tokens[axis], there = other.tokens[axis], shortest = Math.min(here.length, there.length);
  if (axis === "source") return shortest;
  let same = 0;
  while (same < shortest && reading.targetIds[same] === other.targetIds[same]) same++;
  return Math.min(same + 1, shortest);
}

MEASURES.difference = {
  name: "difference", key: "y", isSigned: true, source: "weights minus the weights of the unchanged model, up to the first token that differs",
  isThere: (reading) => reading.run === CHANGED,
  valuesOf(reading, attention, layer, head) {
    const other = liveReading(UNCHANGED), unchanged = other.attentions.find((each) => each.kind === attention.kind);
    const rows = reading.tokens[attention.rows].length, columns = reading.tokens[attention.columns].length, otherColumns = other.tokens[attention.columns].length;
    const [here, there] = [[reading, attention], [other, unchanged]].map(([each, own]) => matrixOf(each, own, layer, head, "weights").values);
    const values = new Float32Array(rows * columns), numColumns = comparable(attention.columns, reading, other);
    for (let row = 0; row < comparable(attention.rows, reading, other); row++) {
      for (let column = 0; column < numColumns; column++) values[row * columns + column] = here[row * columns + column] - there[row * otherColumns + column];
    }
    return values;
  },
};

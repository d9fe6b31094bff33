"use strict";
// The strip of a live page: source text, both translations token by token, and the switches.

const strip = element("section", [], { id: "live", ariaLabel: "live model" });
const WORDS = isTranslation ? { source: "source", run: "translate", result: "translation" } : { source: "prompt", run: "continue", result: "text" };
const sourceInput = element("textarea", "", { name: "source", dir: "auto", rows: 1, maxLength: 20000, title: isTranslation ? "" : "Shift+Enter: a new line", ariaLabel: `${WORDS.source} text` });
const liveWords = element("span", "", { className: "words", role: "status" });
const translations = element("div", [], { className: "translations" });
const switches = element("details", element("summary", "switches"));
const aboutModel = element("p", [], { className: "about" });
const numberInputs = {};

function sayLive(text) { liveWords.textContent = text; }

function buildStrip() {
  const form = element("form", [
    element("label", [WORDS.source, sourceInput], { className: "source" }), element("button", WORDS.run, { type: "submit" }),
    ...Object.entries(NUMBERS).map(([name, { least, most, step, title }]) => {
      numberInputs[name] = element("input", "", { type: "number", min: least, max: most, step, onchange: ({ target }) => { edit({ [name]: target.value }); target.value = numberOf(name); } });
      return element("label", [title + " ", numberInputs[name]]);
    }),
    element("button", "reset", { type: "button", title: "undo all edits (z)", onclick: reset }),
    element("button", "tour", { type: "button", title: `from a word to ${isTranslation ? "its translation" : "the next"} in ${STEPS.length} steps (u)`, onclick: tour }),
    liveWords,
  ], { noValidate: true }); // The numbers of a run need not be multiples of a step.
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = isTranslation ? sourceInput.value.trim().replace(/\s+/g, " ") : sourceInput.value;
    if (text.trim()) edit({ source: text === first.source ? "" : text, force: "" });
  });
  sourceInput.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  const table = element("table", [
    element("tr", [element("th", "model", { scope: "row" }), element("td", Object.entries(CHOICES).map(([name, title]) => switchOf(name, title)))]),
    ...Object.entries(STACKS).flatMap(([stack, kinds]) => counted(DEPTHS[stack]).map((layer) => element("tr", [
      element("th", `${stack} ${layer + 1}`, { scope: "row" }),
      element("td", [
        switchOf(`${stack}.${layer + 1}`, "layer"), switchOf(`${stack}.${layer + 1}.residual`, "residual"),
        ...kinds.flatMap((kind) => [` ${kind === "cross" ? "cross" : "self"}-attention heads `, ...HEADS.map((head) => switchOf(`${kind}.${layer + 1}.head.${head}`, String(head)))]),
      ]),
    ]))),
  ]);
  switches.append(table, aboutModel);
  const { bits, logitsError, entries } = model, count = entries.reduce((sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1), 0);
  aboutModel.textContent = `${count.toLocaleString("en")} parameters in ${bits} bits; on the texts of this page the largest difference of a logit to 32 bits is ${number(logitsError)}. ` +
    "A switch that is pressed is off." + ("padding" in CHOICES ? " Without the padding mask the source is padded and the padding is attended to." : "") +
    ("causal" in CHOICES ? ` Without the causal mask every token sees the whole ${WORDS.result}, later tokens too.` : "");
  strip.append(form, translations, switches, tourBox);
  document.querySelector("nav").before(strip);
}

const switchOf = (name, title) => element("button", title, { type: "button", value: name, title: name, ariaLabel: titleOf(name), className: "switch", onclick: () => toggle(name) });

const reset = () => edit({ source: "", force: "", off: "", beam: "", penalty: "", temperature: "", length: "" });

function showStrip() {
  if (document.activeElement !== sourceInput) sourceInput.value = state.text === LIVE_TEXT ? liveSource() : readingOf(state.run).source;
  byId("source").hidden = state.text === LIVE_TEXT;
  for (const [name, input] of Object.entries(numberInputs)) if (document.activeElement !== input) input.value = numberOf(name);
  const off = new Set(editsOn());
  for (const button of switches.querySelectorAll("button.switch")) button.setAttribute("aria-pressed", String(off.has(button.value)));
  switches.querySelector("summary").textContent = off.size ? `switches: ${[...off].join(", ")} off` : "switches";
  const [unchanged, changed] = [UNCHANGED, CHANGED].map(liveReading);
  const same = unchanged && changed ? commonTokens(unchanged.targetIds, changed.targetIds) : null;
  translations.replaceChildren(
    ...unchanged ? [translationRow(changed ? "unchanged" : WORDS.result, unchanged, same && same[0])] : [],
    ...changed ? [translationRow("changed", changed, same && same[1])] : [],
  );
  showTour();
  // The page is drawn before the model is unpacked.
  setTimeout(refresh);
}

// A row of tokens; the bar below a token is its probability, and the tokens outside of `same` differ between the models. The tokens of a
// prompt are given.
function translationRow(title, reading, same) {
  const forced = reading.run === CHANGED ? idsOf(state.force).length : 0, given = forced ? 0 : reading.given;
  const tokens = reading.tokens.target.map((piece, index) => {
    const probability = Math.exp(reading.logProbs[index]), isDifferent = same && !same.has(index);
    const chip = element("button", shown(piece), {
      type: "button", className: ["token", isDifferent ? "differs" : "", index < forced ? "forced" : index < given ? "given" : "", state.run === reading.run && targetRow(reading) === index ? "marked" : ""].join(" "),
      title: `token ${index + 1}, probability ${probability.toFixed(3)}${isDifferent ? ", differs" : ""}${index < forced ? ", forced" : index < given ? ", given" : ""}`,
      onclick: () => chooseToken(reading, index),
    });
    chip.style.setProperty("--share", 100 * probability + "%");
    return chip;
  });
  const total = reading.logProbs.slice(reading.given).reduce((sum, value) => sum + value, 0);
  return element("div", [element("b", title), ...tokens, element("span", ` log p ${fixed(total)}, ${Math.round(1000 * reading.seconds)} ms`, { className: "words" })], { className: "row", role: "group", ariaLabel: title });
}

// The position in the target that is pointed at or chosen; -1 where the rows of the matrix are tokens of the source.
const targetRow = (reading) => (hovered && state.view === "effects") || attentionOf(reading).rows === "target" ? (hovered || state).row : -1;

// A token of a translation, with its alternatives, in the inspector.
function chooseToken(reading, index) {
  const isThere = attentionOf(readingOf(state.run)).rows === "target" && ["matrix", "lines", "grid"].includes(state.view);
  edit({ run: reading.run, beside: liveReading(CHANGED) ? UNCHANGED + CHANGED - reading.run : -1, ...isThere ? {} : { kind: isTranslation ? "cross" : "decoder", view: state.view === "effects" ? "effects" : "matrix" }, row: index, column: -1 });
}

// The indices that belong to a longest common subsequence, on both sides.
function commonTokens(left, right) {
  const lengths = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let row = left.length - 1; row >= 0; row--) {
    for (let column = right.length - 1; column >= 0; column--) {
      lengths[row][column] = left[row] === right[column] ? lengths[row + 1][column + 1] + 1 : Math.max(lengths[row + 1][column], lengths[row][column + 1]);
    }
  }
  const found = [new Set(), new Set()];
  for (let row = 0, column = 0; row < left.length && column < right.length;) {
    if (left[row] === right[column]) {
      found[0].add(row++);
      found[1].add(column++);
    } else if (lengths[row + 1][column] >= lengths[row][column + 1]) row++;
    else column++;
  }
  return found;
}

// ---------------------------------------------------------------- inspector

// The alternatives at a position of a live translation: force one, or ask why it is not there.
function inspectLive(panel, row) {
  const { reading } = panel;
  if (!reading.options) return [];
  const prefix = reading.targetIds.slice(0, row), chosen = [reading.targetIds[row], reading.tokens.target[row]];
  const rows = reading.options[row].flatMap(([token, piece, logProb]) => {
    const bar = element("i");
    bar.style.width = 100 * Math.exp(logProb) + "%";
    const force = element("button", shown(piece), { type: "button", title: "force this token and let the search continue", onclick: () => edit({ force: [...prefix, token].join(".") }) });
    const why = token === chosen[0] ? "" : whyLive(reading, prefix, chosen, [token, piece]), isLong = why.tagName === "DETAILS";
    const line = element("tr", [element("td", force), cell(Math.exp(logProb).toFixed(3)), cell(bar, "bar"), element("td", isLong ? "" : why)]);
    return isLong ? [line, element("tr", element("td", why, { colSpan: 4 }))] : [line];
  });
  const word = element("input", "", { name: "word", dir: "auto", placeholder: "another word", ariaLabel: "force another word here" });
  const form = element("form", [word, element("button", "force", { type: "submit" })]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    document.activeElement.blur(); // The inspector is drawn again.
    // Tokenizers of words put a space before a text. With characters and bytes the word begins with one where the token that it replaces does.
    const isSpace = ["character", "byte"].includes(model.tokenizers[model.tokenizers.length - 1].kind) && /^( |<0x20>)/.test(chosen[1]);
    const ids = word.value.trim() ? await request("encode", { text: (isSpace ? " " : "") + word.value.trim() }) : [];
    if (ids.length) edit({ force: [...prefix, ...ids].join(".") });
  });
  return [
    element("h2", `instead of ${shown(chosen[1])} (${row + 1})`), element("table", rows), form,
    ...state.force ? [element("p", element("button", "stop forcing", { type: "button", onclick: () => edit({ force: "" }) }))] : [],
  ];
}

const contrasts = new Map(); // question -> { words } or { difference, source, target, input }

// A button that asks why `chosen` and not `other` (pairs of id and piece) follows a prefix; then the answer.
function whyLive(reading, prefix, chosen, other) {
  const fields = { text: reading.source, prefix, chosen: chosen[0], other: other[0], edits: reading.edits || [], temperature: reading.temperature }, key = JSON.stringify(fields);
  const found = contrasts.get(key), says = (answer) => { contrasts.set(key, answer); inspect(); };
  if (!found) {
    const ask = () => {
      says({ words: "computing …" });
      request("contrast", fields, (done) => says({ words: `${Math.round(100 * done)} %` })).then(says, (error) => error.message === "stopped" ? contrasts.delete(key) : says({ words: error.message }));
    };
    return element("button", "why not?", { type: "button", title: `why ${shown(chosen[1])} and not ${shown(other[1])}`, onclick: ask });
  }
  if (found.words) return element("span", found.words);
  const largest = Math.max(...[...found.source, ...found.target].map(Math.abs));
  const none = () => {};
  return element("details", [
    element("summary", "why"),
    element("p", `log p(${shown(chosen[1])}) − log p(${shown(other[1])}) = ${number(found.difference)}. With a token masked for every position this falls by`),
    ...found.source.length ? [ranking(reading.tokens.source, Float32Array.from(found.source), largest, none)] : [],
    element("p", !found.target.length ? "The prefix is <s> alone, which cannot be masked." : found.source.length ? "and with a token of the prefix masked by" : ""),
    ...found.target.length ? [ranking(found.input, Float32Array.from(found.target), largest, none)] : [],
  ], { open: true });
}

// The tokens before the first of the search tree: a prompt.
const givenTo = (reading) => (reading.targetIds || []).slice(0, reading.given || 0);

const whyInTree = (reading, tokens, chosen, other) => whyLive(reading, [...givenTo(reading), ...tokens], chosen, other);

function forceLive(search, key, prefix) {
  const reading = readingOf(state.run), settings = reading.run === CHANGED ? changedSearch() : usualSearch();
  search.forced[key] = { words: "computing …" };
  request("force", { text: reading.source, edits: reading.edits || [], search: settings, prompt: givenTo(reading), forced: prefix })
    .then((answer) => { search.forced[key] = answer; }, (error) => { search.forced[key] = { words: error.message + ".", failed: true }; }).then(inspect);
}

// The strip of a live page: the text, and the tokens of the source and of both results.

const strip = element("section", [], { id: "live", ariaLabel: "live model" });
const WORDS = isTranslation ? { source: "source", run: "translate", result: "translation" } : { source: "prompt", run: "continue", result: "text" };
const sourceInput = element("textarea", "", { name: "source", dir: "auto", rows: 1, maxLength: 20000, title: isTranslation ? "" : "Shift+Enter: a new line", ariaLabel: `${WORDS.source} text` });
const liveWords = element("span", "", { className: "words", role: "status" });
const staleWords = element("span", "", { className: "stale", role: "status" });
const tokenRows = element("div", [], { className: "tokens" });
const reset = () => edit({ source: "", force: "", off: "", beam: "", penalty: "", temperature: "", length: "" });
const resetButton = element("button", "reset", { type: "button", title: "undo all edits (z)", onclick: reset });

function sayLive(text) { liveWords.textContent = text; }

// The text in the box as the model would read it.
const typedSource = () => isTranslation ? sourceInput.value.replace(/[\n\r\t]/g, " ").replace(/^ +| +$/g, "") : sourceInput.value;

function buildStrip() {
  const form = element("form", [
    element("label", [WORDS.source, sourceInput], { className: "source" }), element("button", WORDS.run, { type: "submit" }), ...examplesPopup(), resetButton, staleWords, liveWords,
  ]);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (typedSource().trim()) readSourceText(typedSource());
  });
  sourceInput.addEventListener("input", showStale);
  sourceInput.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") sourceInput.value = liveSource();
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key !== "Escape") return;
    showStale();
    mainPanel().canvas.focus({ preventScroll: true });
  });
  strip.append(form, tokenRows);
  byId("text-read").before(strip);
  document.querySelector("header .gap").after(element("button", "tour", { type: "button", id: "tour", title: `from a word to ${isTranslation ? "its translation" : "the next"} in ${STEPS.length} steps (u)`, onclick: tour }));
  const { bits, logitsError, entries } = model, count = entries.reduce((sum, { shape }) => sum + shape.reduce((product, length) => product * length, 1), 0);
  byId("menu").lastElementChild.append(element("p", `${count.toLocaleString("en")} parameters in ${bits} bits; on the texts of this page the largest difference of a logit to 32 bits is ${number(logitsError)}.` +
    ("padding" in CHOICES ? " Without the padding mask the source is padded and the padding is attended to." : "") + ("causal" in CHOICES ? ` Without the causal mask every token sees the whole ${WORDS.result}, later tokens too.` : "")));
  byId("side").prepend(tourBox);
}

const readSourceText = (text) => edit({ source: text === first.source ? "" : text, force: "" });

// Sentences of the validation data, to click.
function examplesPopup() {
  const texts = [...new Set([...page.readings.filter(({ run }) => run === 0).map(({ source }) => source), ...page.examples || []])];
  if (texts.length < 2) return [];
  const popup = element("details", element("summary", "examples"), { className: "popup" });
  popup.append(element("div", texts.map((text) => element("button", text, { type: "button", onclick: () => { popup.open = false; readSourceText(text); } }))));
  return [popup];
}

// Marks results that are not of the text in the box.
function showStale() {
  const reading = liveReading(UNCHANGED), isStale = Boolean(reading) && state.text === LIVE_TEXT && typedSource() !== reading.source;
  strip.classList.toggle("isStale", isStale);
  staleWords.textContent = isStale && document.activeElement === sourceInput ? `Enter: ${WORDS.run}; Esc: back` : "";
}

function showStrip() {
  if (document.activeElement !== sourceInput) sourceInput.value = state.text === LIVE_TEXT ? liveSource() : readingOf(state.run).source;
  byId("source").hidden = state.text === LIVE_TEXT;
  tokenRows.hidden = state.text !== LIVE_TEXT;
  resetButton.hidden = !isChanged() && !state.source;
  const [unchanged, changed] = [UNCHANGED, CHANGED].map(liveReading);
  const same = unchanged && changed ? commonTokens(unchanged.targetIds, changed.targetIds) : null;
  tokenRows.replaceChildren(
    ...unchanged && isTranslation ? [sourceRow()] : [],
    ...unchanged ? [resultRow(changed ? "unchanged" : WORDS.result, unchanged, same && same[0])] : [],
    ...changed ? [resultRow("changed", changed, same && same[1])] : [],
  );
  showStale();
  showSwitches();
  showTour();
  // The page is drawn before the model is unpacked.
  setTimeout(refresh);
}

function tokenRow(title, chips, words = "") {
  return element("div", [element("b", title), element("span", chips, { className: "chips" }), element("span", words, { className: "words" })], { className: "row", role: "group", ariaLabel: title });
}

// The tokens of the source; the bar below a token is the weight with which the chosen token of the translation reads it.
function sourceRow() {
  const reading = readingOf(state.run).targetIds ? readingOf(state.run) : liveReading(UNCHANGED), cross = reading.attentions.find(({ kind }) => kind === "cross"), row = targetRow(reading);
  const isCross = state.kind === "cross", matrix = row >= 0 && cross ? matrixOf(reading, cross, isCross ? state.layer - 1 : cross.layers - 1, isCross ? state.head : 0, "weights") : null;
  return tokenRow(WORDS.source, reading.tokens.source.map((piece, index) => {
    const weight = matrix ? matrix.values[row * matrix.columns.length + index] : 0, isChosen = state.kind !== "decoder" && state.column === index;
    const chip = element("button", shown(piece), {
      type: "button", className: `token${isChosen ? " marked" : ""}`, ariaPressed: String(isChosen), title: `source token ${index + 1}${matrix ? `, read with weight ${weight.toFixed(3)}` : ""}`,
      onclick: () => edit({ ...state.kind === "decoder" || !VIEWS[state.view].hasHeads && state.view !== "vectors" ? { kind: "cross", view: state.view === "vectors" ? "vectors" : "matrix" } : {}, column: isChosen ? -1 : index, row: -1 }),
    });
    chip.style.setProperty("--share", `${100 * weight}%`);
    return chip;
  }));
}

// A row of tokens; the bar below a token is its probability, and the tokens outside of `same` differ between the models. The tokens of a
// prompt are given.
function resultRow(title, reading, same) {
  const forced = reading.run === CHANGED ? idsOf(state.force).length : 0, given = forced ? 0 : reading.given;
  const chips = reading.tokens.target.map((piece, index) => {
    const probability = Math.exp(reading.logProbs[index]), isDifferent = same && !same.has(index), isChosen = state.run === reading.run && targetRow(reading) === index;
    const chip = element("button", shown(piece), {
      type: "button", className: ["token", isDifferent ? "differs" : "", index < forced ? "forced" : index < given ? "given" : "", isChosen ? "marked" : ""].join(" "), ariaPressed: String(isChosen),
      title: `token ${index + 1}, probability ${probability.toFixed(3)}${isDifferent ? ", differs" : ""}${index < forced ? ", forced" : index < given ? ", given" : ""}`,
      onclick: () => chooseToken(reading, index),
    });
    chip.style.setProperty("--share", 100 * probability + "%");
    return chip;
  });
  const total = reading.logProbs.slice(reading.given).reduce((sum, value) => sum + value, 0);
  return tokenRow(title, chips, ` log p ${fixed(total)}, ${Math.round(1000 * reading.seconds)} ms`);
}

// The position in the target that is pointed at or chosen; -1 where the rows of the matrix are tokens of the source.
const targetRow = (reading) => (hovered && ["effects", "layers"].includes(state.view)) || attentionOf(reading).rows === "target" ? (hovered && hovered.row !== undefined ? hovered : state).row : -1;

const TARGET_VIEWS = ["matrix", "lines", "grid", "layers", "softmax", "effects", "vectors"];

// A token of a result: its row in the picture, and its alternatives in the inspector.
function chooseToken(reading, index) {
  const isOfTarget = attentionOf(readingOf(state.run)).rows === "target", isChosen = state.run === reading.run && state.row === index && isOfTarget;
  edit({ run: reading.run, beside: liveReading(CHANGED) ? UNCHANGED + CHANGED - reading.run : -1, ...isOfTarget ? {} : { kind: isTranslation ? "cross" : "decoder" }, ...TARGET_VIEWS.includes(state.view) ? {} : { view: "matrix" }, row: isChosen ? -1 : index, column: -1 });
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

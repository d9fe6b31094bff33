// The alternatives at a position of a live text: force a token, or ask why it is not there.

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

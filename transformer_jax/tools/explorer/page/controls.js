// The bar, the menu and the keys.

const KEYS = [
  ["← →", "head"], ["↑ ↓", "layer"], ["0", "all heads together"],
  ["m b g t h", "matrix, lines, all heads, search tree, head statistics"],
  ["e d c", "encoder, decoder, cross attention"],
  ["w r n x", "weights, rollout, norms, gradient × input"],
  ["[ ]", "text before, after"], ["s", "another run beside this one"], ["+ - =", "larger, smaller, fitted"], ["/", "find a token; Enter: the next"],
  ["Esc", "let go of a token"], ["k", "light or dark"], ["l", "colors"], ["v", "shades by the value or by its square root, for faint ones"], ["o p", "save as SVG, PNG"], ["?", "these keys"],
];

// A group of buttons; one that can be used elsewhere says why it cannot be used here.
function choice(id, options, name) {
  const group = byId(id);
  if (group.children.length !== Object.keys(options).length) {
    group.replaceChildren(...Object.keys(options).map((value) => element("button", options[value].name, { type: "button", value, onclick: () => !options[value].isThere() || set({ [name]: value }) })));
  }
  for (const button of group.children) {
    const { name: title, key, isThere, needs } = options[button.value];
    button.setAttribute("aria-pressed", String(button.value === state[name]));
    button.ariaDisabled = isThere() ? null : "true";
    button.title = isThere() ? `${title} (${key})` : `${title}: ${needs}`;
  }
  roving(group);
}

// Options are [value, title, why it cannot be chosen]; a select of one is gone, with its label.
function fill(id, options, value) {
  const select = byId(id), wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.replaceChildren(...options.map(([key, title, why]) => Object.assign(new Option(why ? `${title} (${why})` : title, key), { disabled: Boolean(why) })));
    select.dataset.options = wanted;
  }
  select.value = value;
  (select.closest("label") || select).hidden = options.length < 2;
}

const counted = (count) => Array.from({ length: count }, (_, index) => index);

const NEEDS = { rollout: "not of this attention", gradient: "of the texts that Python has read" };

// The measures that this page has, with the reason where one is not there.
function measuresHere(reading, attention) {
  const isEver = (measure) => measure === "weights" || (measure === "difference" ? MEASURES.difference.isThere(reading) : page.readings.some((each) => each.attentions.some((own) => hasMeasure(each, own, measure))));
  return Object.keys(MEASURES).filter(isEver).map((measure) => [measure, MEASURES[measure].name, attention && !hasMeasure(reading, attention, measure) ? NEEDS[measure] || "not here" : ""]);
}

// Every head in one list, for a narrow window.
const headsHere = (reading) => reading.attentions.flatMap(({ kind, layers, heads }) => counted(layers).flatMap((layer) =>
  (heads > 1 ? counted(heads + 1) : [1]).map((head) => [[kind, layer + 1, head].join(), `${kind} ${layerNumber(state.run, kind, layer + 1)}, ${head && heads > 1 ? `head ${head}` : "all heads"}`])));

function showControls() {
  const reading = readingOf(state.run), attention = attentionOf(reading), view = VIEWS[state.view];
  const texts = counted(1 + Math.max(...page.readings.map((each) => each.text)));
  const short = (text) => text.length > 60 ? text.slice(0, 59) + "…" : text;
  fill("text", texts.map((index) => [index, `${live && index === texts.length - 1 ? "live" : index + 1}: ${short(page.readings.find((each) => each.text === index).source)}`]), state.text);
  const runs = page.runs.map((run, index) => [index, `${run.name} (${run.detail})`]).filter(([index]) => readingOf(index) || !live);
  fill("run", runs, state.run);
  fill("beside", [[-1, "nothing"], ...(runs.length > 1 ? runs : [])], state.beside);
  fill("palette", Object.keys(PALETTES).map((name) => [name, name]), state.palette);
  const views = Object.fromEntries(Object.entries(VIEWS).filter(([, each]) => each.isEver === undefined || each.isEver()));
  choice("view", views, "view");
  fill("views", Object.entries(views).map(([name, { name: title, isThere, needs }]) => [name, title, isThere() ? "" : needs]), state.view);
  fill("attention", headsHere(reading), [state.kind, state.layer, state.head].join());
  fill("measure", measuresHere(reading, attention), state.measure);
  if (!view.hasHeads && !view.hasMeasures) byId("measure").hidden = true;
  byId("zoom").hidden = !view.hasZoom;
  byId("source").textContent = reading.source;
  byId("remarks").textContent = (reading.remarks || []).join("; ");
  byId("remarks").hidden = !byId("remarks").textContent;
  showScale();
}

function showScale() {
  const matrix = mainPanel() && attentionOf(mainPanel().reading) ? currentMatrix(mainPanel()) : null;
  const [canvas, words] = scaleBox.children;
  scaleBox.hidden = !matrix || VIEWS[state.view].hasNoScale || (VIEWS[state.view].hasColorsOfHeads && !state.head);
  if (!matrix) return;
  const image = new ImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer), table = colorTable(matrix.isSigned);
  const scale = { largest: 1, isSigned: matrix.isSigned }, least = matrix.isSigned ? -1 : 0, largest = largestBeside(matrix);
  pixels.forEach((_, index) => { pixels[index] = table[stepOf(least + (1 - least) * (index % canvas.width) / (canvas.width - 1), scale)]; });
  canvas.getContext("2d").putImageData(image, 0, 0);
  words.textContent = VIEWS[state.view].hasOwnScales ? `${least ? "−largest" : 0} … largest` : `${least ? number(-largest) : 0} … ${number(largest)}`;
}

function find(text, forward) {
  const matrix = currentMatrix(mainPanel()), wanted = text.trim().toLowerCase();
  if (!matrix || !wanted) return void (byId("said").textContent = "");
  const hits = ["row", "column"].flatMap((side) => matrix[side + "s"].flatMap((piece, index) => shown(piece).toLowerCase().includes(wanted) ? [{ side, index }] : []));
  const here = hits.findIndex(({ side, index }) => state[side] === index);
  const next = !hits.length ? -1 : here < 0 ? 0 : (here + (forward ? 1 : 0)) % hits.length;
  byId("said").textContent = hits.length ? `${next + 1} of ${hits.length}` : "no such token";
  if (next < 0) return;
  const { side, index } = hits[next];
  set({ row: -1, column: -1, [side]: index });
  if (VIEWS[state.view].show) VIEWS[state.view].show(mainPanel(), side, index);
}

function press(key) {
  const attention = attentionOf(readingOf(state.run)), { layer, head } = state, palettes = Object.keys(PALETTES);
  const runs = counted(page.runs.length), next = [...runs.slice(state.run + 1), ...runs.slice(0, state.run)].find(readingOf);
  const cyclic = (value, by, low, high) => value + by > high ? low : value + by < low ? high : value + by;
  const actions = {
    ArrowLeft: () => attention && set({ head: cyclic(head, -1, 0, attention.heads) }),
    ArrowRight: () => attention && set({ head: cyclic(head, 1, 0, attention.heads) }),
    ArrowUp: () => attention && set({ layer: cyclic(layer, -1, 1, attention.layers) }),
    ArrowDown: () => attention && set({ layer: cyclic(layer, 1, 1, attention.layers) }),
    0: () => set({ head: 0 }),
    "[": () => set({ text: state.text - 1 }), "]": () => set({ text: state.text + 1 }),
    s: () => set({ beside: state.beside >= 0 || next === undefined ? -1 : next }),
    "+": () => set({ zoom: state.zoom + 1 }), "-": () => set({ zoom: state.zoom - 1 }), "=": () => set({ zoom: 0 }),
    "/": () => byId("search").focus(),
    Escape: () => byId("map").classList.contains("open") || byId("side").classList.contains("open") ? openSheet("side", false) : set({ row: -1, column: -1, node: -1 }),
    k: () => set({ theme: isDark() ? "light" : "dark" }),
    l: () => set({ palette: palettes[(palettes.indexOf(state.palette) + 1) % palettes.length] }),
    v: () => set({ shades: state.shades === "root" ? "linear" : "root" }),
    o: saveSvg, p: savePng,
    "?": () => byId("keys").open ? byId("keys").close() : byId("keys").showModal(),
  };
  for (const [name, view] of Object.entries(VIEWS)) actions[view.key] = () => view.isThere() && set({ view: name });
  for (const [name, letter] of Object.entries(KEY_OF_KIND)) actions[letter] = () => set({ kind: name });
  for (const [name, measure] of Object.entries(MEASURES)) actions[measure.key] = () => set({ measure: name });
  Object.assign(actions, otherKeys, live ? live.keys : {});
  if (!actions[key]) return false;
  actions[key]();
  return true;
}

// Opens a sheet of a narrow window, or closes it.
function openSheet(id, isOpen = !byId(id).classList.contains("open")) {
  for (const each of ["map", "side"]) byId(each).classList.toggle("open", each === id && isOpen);
  for (const tab of byId("tabs").children) tab.ariaExpanded = String(byId(tab.value).classList.contains("open"));
}

function listen() {
  document.querySelector("h1").textContent = page.runs[0].name;
  for (const name of ["text", "run", "beside"]) byId(name).addEventListener("change", (event) => set({ [name]: Number(event.target.value) }));
  for (const [id, name] of [["views", "view"], ["measure", "measure"]]) byId(id).addEventListener("change", (event) => set({ [name]: event.target.value }));
  byId("attention").addEventListener("change", ({ target }) => {
    const [kind, layer, head] = target.value.split(",");
    set({ kind, layer: Number(layer), head: Number(head), ...VIEWS[state.view].hasHeads ? {} : { view: "matrix" } });
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // The address holds the state.
    mainPanel().canvas.focus();
  });
  byId("tabs").replaceChildren(...[["map", "model"], ["side", "explanation"]].map(([id, title]) => element("button", title, { type: "button", value: id, ariaExpanded: "false", onclick: () => openSheet(id) })));
  document.addEventListener("click", (event) => {
    for (const opened of document.querySelectorAll("details[open]:is(#menu, .popup)")) if (!opened.contains(event.target)) opened.open = false;
  });
  byId("palette").addEventListener("change", (event) => set({ palette: event.target.value }));
  byId("theme").addEventListener("click", () => press("k"));
  byId("smaller").addEventListener("click", () => press("-"));
  byId("larger").addEventListener("click", () => press("+"));
  byId("svg").addEventListener("click", saveSvg);
  byId("png").addEventListener("click", savePng);
  byId("help").addEventListener("click", () => press("?"));
  byId("search").addEventListener("input", (event) => find(event.target.value, false));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target === byId("search")) {
      if (event.key === "Enter") find(event.target.value, true);
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const group = event.target.closest(".choice, #map");
    if (group && event.target.tagName === "BUTTON" && event.key.startsWith("Arrow")) {
      event.preventDefault();
      return moveFocus(event.target.closest("#map") || group, event.key);
    }
    const opened = event.target.closest("details[open]:is(#menu, .popup)");
    if (opened && event.key === "Escape") {
      opened.open = false;
      return opened.querySelector("summary").focus();
    }
    // A slider has the arrow keys only.
    const { tagName, type } = event.target, isTaken = type === "range" ? event.key.startsWith("Arrow") : ["SELECT", "INPUT", "TEXTAREA", "SUMMARY"].includes(tagName);
    if (isTaken || (byId("keys").open && event.key !== "?")) return;
    if (press(event.key)) event.preventDefault();
  });
  window.addEventListener("beforeprint", showSheet);
  window.addEventListener("afterprint", hideSheet);
  for (const moved of ["hashchange", "popstate"]) window.addEventListener(moved, followAddress);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  new ResizeObserver(() => panels.forEach((panel) => panel.reading && drawPanel(panel))).observe(byId("panels"));
  byId("keys").append(element("table", KEYS.map(([keys, meaning]) => element("tr", [element("td", element("kbd", keys)), element("td", meaning)]))), element("button", "close", { type: "button", onclick: () => byId("keys").close() }));
}

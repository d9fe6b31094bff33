// The map of the model: a box for every sublayer, which opens its picture. A live page adds the other parts of the model, the switches, and beside
// the boxes the way of the chosen token.

const mapBoxes = new Map(); // id of a part -> { box, says, part }
let mapShape = "", mapMode = "look", litBefore = "";

// The parts of a stack by layer. `id`: as of the points of the logit lens. `open`: the state that shows the part.
function stacksOfMap(reading) {
  const layersOf = (kind) => { const found = reading.attentions.find((each) => each.kind === kind); return found ? found.layers : 0; };
  const heads = (kind) => reading.attentions.find((each) => each.kind === kind).heads;
  const attention = (stack, kind, layer) => layer > layersOf(kind) ? [] : [{ id: `${stack}.${layer}.${kind === "cross" ? "cross" : "self"}`, title: kind === "cross" ? "cross-attention" : "self-attention", kind, layer, heads: heads(kind) }];
  const layer = (stack, kinds, number) => ({
    name: `${stack}.${number}`, number: layerNumber(state.run, kinds[0], number),
    parts: [...kinds.flatMap((kind) => attention(stack, kind, number)), ...live ? live.partsOfLayer(stack, number) : []],
  });
  const stack = (name, kinds) => ({ name, ...live ? live.partsOfStack(name) : { before: [], after: [] }, layers: counted(Math.max(...kinds.map(layersOf))).map((index) => layer(name, kinds, index + 1)) });
  return [stack("encoder", ["encoder"]), stack("decoder", ["decoder", "cross"])].filter(({ layers, before }) => layers.length || before.length);
}

function mapPart(part) {
  const open = () => {
    if (mapMode === "switch" && part.kind) return live.toggleAll(counted(part.heads).map((head) => headName(part, head + 1)));
    set({ ...part.kind ? { kind: part.kind, layer: part.layer, head: 0, ...VIEWS[state.view].hasHeads ? {} : { view: "matrix" } } : part.open });
  };
  const says = element("span", "", { className: "says" }), heads = part.kind && part.heads > 1 ? counted(part.heads).map((head) => mapHead(part, head + 1)) : [];
  const box = element("div", [element("button", part.title, { type: "button", title: part.hint || "all heads", onclick: open }), ...heads, says], { className: `part ${part.kind ? "attends" : ""}` });
  mapBoxes.set(part.id, { box, says, part, heads });
  return box;
}

const headName = ({ kind, layer }, head) => `${kind}.${layer}.head.${head}`;

function mapHead(part, head) {
  const look = () => set({ kind: part.kind, layer: part.layer, head, ...VIEWS[state.view].hasHeads || VIEWS[state.view].showsHead ? {} : { view: "matrix" } });
  return element("button", String(head), {
    type: "button", className: "head", ariaLabel: `${part.id.replaceAll(".", " ")}, head ${head}`, onclick: () => mapMode === "switch" ? live.toggle(headName(part, head)) : look(),
  });
}

function buildMap(stacks) {
  mapBoxes.clear();
  const layer = ({ name, number, parts }) => element("div", [element("h2", [`layer ${number} `, ...live ? live.switchesOfLayer(name) : []]), ...parts.map(mapPart)], { className: "layer" });
  const top = live && live.hasSwitches ? [element("div", ["look", "switch"].map((mode) => element("button", mode === "look" ? "look at" : "switch off", { type: "button", value: mode, onclick: () => { mapMode = mode; render(); } })), { className: "choice", role: "group", ariaLabel: "a click on the map" })] : [];
  byId("map").replaceChildren(...top, ...stacks.flatMap(({ name, before, layers, after }) =>
    [element("h2", name), ...name === "decoder" && stacks.length > 1 ? [element("p", "↳ cross-attention reads the encoder")] : [], ...before.map(mapPart), ...layers.map(layer), ...after.map(mapPart)]), ...live ? live.belowMap() : []);
}

// The parts that are lit: the step of the tour, or the parts that the view shows.
function litParts() {
  const ofTour = live && live.lit();
  if (ofTour) return new Set(ofTour);
  const view = VIEWS[state.view], stack = state.kind === "encoder" ? "encoder" : "decoder", sublayer = state.kind === "cross" ? "cross" : "self";
  if (state.view === "grid") return new Set([...mapBoxes.values()].filter(({ part }) => part.kind === state.kind).map(({ part }) => part.id));
  return new Set([...view.lights || [], ...view.hasHeads || view.showsHead ? [`${stack}.${state.layer}.${sublayer}`] : []]);
}

function showMap() {
  const reading = readingOf(state.run), stacks = stacksOfMap(reading), shape = JSON.stringify(stacks), nav = byId("map");
  nav.hidden = !stacks.length;
  if (shape !== mapShape) buildMap(stacks);
  mapShape = shape;
  nav.dataset.mode = mapMode;
  const lit = litParts(), isHeadShown = VIEWS[state.view].hasHeads || VIEWS[state.view].showsHead, off = new Set(live ? live.off() : []);
  for (const { box, says, part, heads } of mapBoxes.values()) {
    box.classList.toggle("lit", lit.has(part.id));
    says.textContent = live ? live.says(part) : "";
    heads.forEach((button, index) => {
      const isOff = off.has(headName(part, index + 1));
      button.classList.toggle("off", isOff);
      button.title = isOff ? "is off" : mapMode === "switch" ? "switch off" : "look at";
      button.setAttribute("aria-pressed", String(mapMode === "switch" ? isOff : isHeadShown && part.kind === state.kind && part.layer === state.layer && index + 1 === state.head));
      button.style.borderBottom = state.view === "lines" && !state.head && part.kind === state.kind && part.layer === state.layer ? `3px solid ${headColor(index)}` : "";
    });
  }
  if (litBefore !== (litBefore = [...lit].join()) && mapBoxes.has([...lit][0])) mapBoxes.get([...lit][0]).box.scrollIntoView({ block: "nearest" });
  for (const button of nav.querySelectorAll(".choice button")) button.setAttribute("aria-pressed", String(button.value === mapMode));
  roving(nav);
}

// One stop of the tab key for a group of buttons: the one that has the focus, is pressed, or is the first.
function roving(group) {
  const buttons = [...group.querySelectorAll("button")].filter((each) => each.offsetParent);
  const chosen = buttons.find((each) => each === document.activeElement) || buttons.find((each) => each.getAttribute("aria-pressed") === "true" && !each.closest("#map .choice")) || buttons[0];
  for (const button of buttons) button.tabIndex = button === chosen ? 0 : -1;
}

// Moves the focus in a group of buttons by an arrow key; in the map up and down go to the next line.
function moveFocus(group, key) {
  const buttons = [...group.querySelectorAll("button")].filter((each) => each.offsetParent), here = buttons.indexOf(document.activeElement);
  const isBack = key === "ArrowLeft" || key === "ArrowUp", line = (button) => button.parentElement;
  let to = here + (isBack ? -1 : 1);
  if (group.id === "map" && (key === "ArrowUp" || key === "ArrowDown")) while (buttons[to] && line(buttons[to]) === line(buttons[here])) to += isBack ? -1 : 1;
  if (group.id === "map" && key === "ArrowUp") while (buttons[to - 1] && line(buttons[to - 1]) === line(buttons[to])) to--;
  const next = buttons[(to + buttons.length) % buttons.length];
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next.focus();
}

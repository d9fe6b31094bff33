// The panels: a canvas for each run that is shown.

const VIEWS = { matrix: matrixView, lines: linesView, grid: gridView, search: treeView, statistics: statisticsView };
const paint = () => [state.palette, isDark() ? "dark" : "light", state.shades].join();

const scaleBox = element("span", [element("canvas", "", { width: 60, height: 10, ariaHidden: "true" }), element("span")], { id: "scale" });
let panels = [], hovered = null, inspectedReading = null;

function makePanel(run, index) {
  const canvas = element("canvas", "", { tabIndex: 0 });
  const extent = element("div", canvas), scroller = element("div", extent, { className: "scroller" });
  const caption = element("figcaption"), figure = element("figure", [caption, scroller]);
  const panel = { run, figure, caption, scroller, extent, canvas, context: canvas.getContext("2d"), reading: null, width: 0, height: 0 };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const found = VIEWS[state.view].at(panel, event.clientX - box.left, event.clientY - box.top);
    return found && { row: -1, column: -1, node: -1, ...found, panel: index };
  };
  canvas.addEventListener("pointermove", (event) => point(event.pointerType === "touch" ? null : at(event)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => {
    const found = at(event), view = VIEWS[state.view];
    if (found && view.choose) return view.choose(found, panel);
    set(found && !(found.row === state.row && found.column === state.column) ? { row: found.row, column: found.column } : { row: -1, column: -1 });
  });
  scroller.addEventListener("scroll", () => requestAnimationFrame(() => drawPanel(panel)));
  return panel;
}

function point(found) {
  if (JSON.stringify(found) === JSON.stringify(hovered)) return;
  hovered = found;
  panels.forEach(drawPanel);
  inspect();
}

function arrangePanels() {
  const runs = [state.run, ...(state.beside >= 0 ? [state.beside] : [])].sort((a, b) => a - b);
  if (runs.join() !== panels.map((panel) => panel.run).join()) {
    panels = runs.map(makePanel);
    byId("panels").replaceChildren(...panels.map((panel) => panel.figure));
  }
  for (const panel of panels) {
    panel.reading = readingOf(panel.run);
    const run = page.runs[panel.run], name = nameOfRun(panel.run), what = VIEWS[state.view].hasHeads && panel.reading && panel === panels[0] ? nameOfHead(panel) : "";
    panel.caption.replaceChildren(element("span", [...name ? [element("b", name), what && ": "] : [], what]), ...panel === panels[0] ? [scaleBox] : []);
    panel.caption.title = [name, what].filter(Boolean).join(": ");
    panel.caption.hidden = !name && !what;
    panel.canvas.setAttribute("aria-label", `${VIEWS[state.view].name} of ${run.name}, ${run.detail}`);
  }
}

// The panel of the run that is chosen.
const mainPanel = () => panels.find(({ run }) => run === state.run);

// The name of a run beside others.
const nameOfRun = (run) => live && live.nameOf(run) !== null ? live.nameOf(run) : page.runs.length > 1 && panels.length > 1 ? `${page.runs[run].name} ${page.runs[run].detail}` : "";

const openingText = page.readings.length && page.readings[0].source;

const nameOfPart = (run, kind, layer) => `${kind === "encoder" ? "encoder" : "decoder"} layer ${layerNumber(run, kind, layer)}, ${kind === "cross" ? "cross" : "self"}-attention`;

// The head that is shown, in words, and why the page opens with it.
function nameOfHead({ run, reading }) {
  const attention = attentionOf(reading);
  if (!attention) return "";
  const { layer, head, kind, measure } = state, all = attention.heads < 2 ? "" : VIEWS[state.view].hasColorsOfHeads && measure === "weights" ? `its ${attention.heads} heads, each in a color` : `${measure === "norms" ? "sum" : "mean"} of its ${attention.heads} heads`;
  // The measure is of the first text.
  const isOpening = panels.length === 1 && page.opening && page.opening.why && reading.source === openingText && ["kind", "layer", "head"].every((name) => state[name] === page.opening[name]);
  const isWhole = measure === "rollout" || measure === "gradient";
  return [nameOfPart(run, kind, layer), isWhole ? "" : head && attention.heads > 1 ? `head ${head}` : all, measure === "weights" ? "" : MEASURES[measure].name].filter(Boolean).join(", ") + (isOpening && measure === "weights" ? `: ${page.opening.why}` : "");
}

const frameOf = (panel) => ({ x: panel.scroller.scrollLeft, y: panel.scroller.scrollTop, width: panel.width, height: panel.height });

function measure(panel) {
  panel.width = panel.scroller.clientWidth;
  panel.height = panel.scroller.clientHeight;
}

// Draws the visible part of the view; returns false while its arrays are being unpacked.
function drawPanel(panel) {
  measure(panel);
  const size = VIEWS[state.view].extent(panel), ratio = window.devicePixelRatio || 1;
  if (!size) return false;
  panel.extent.style.width = Math.max(size.width, panel.width) + "px";
  panel.extent.style.height = Math.max(size.height, panel.height) + "px";
  measure(panel); // A scroll bar may have come or gone.
  const [width, height] = [Math.round(panel.width * ratio), Math.round(panel.height * ratio)];
  if (panel.canvas.width !== width || panel.canvas.height !== height) {
    [panel.canvas.width, panel.canvas.height] = [width, height];
    panel.canvas.style.width = panel.width + "px";
    panel.canvas.style.height = panel.height + "px";
  }
  panel.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  panel.context.clearRect(0, 0, panel.width, panel.height);
  VIEWS[state.view].draw(new CanvasPen(panel.context), panel, frameOf(panel));
  return true;
}

function render() {
  document.documentElement.dataset.theme = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  arrangePanels();
  showControls();
  showMap();
  panels.forEach(measure);
  for (const show of onRender) show();
  if (live) live.show();
  const drawn = panels.map((panel) => panel.reading && drawPanel(panel));
  inspect();
  if (drawn.every(Boolean) && !performance.getEntriesByName("first view").length) performance.mark("first view");
}

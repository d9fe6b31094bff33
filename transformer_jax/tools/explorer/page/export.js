// Pictures of a view: SVG, PNG and paper.

const LARGEST_PICTURE = 6000, CAPTION = 24;

// Waits until all arrays of the view are unpacked.
async function unpackView() {
  do {
    await Promise.all(unpacking.values());
    for (const panel of drawnPanels()) VIEWS[state.view].draw(new SvgPen(), panel, partOf(panel));
  } while (unpacking.size);
}

const drawnPanels = () => panels.filter((panel) => panel.reading && VIEWS[state.view].extent(panel));

// The whole view if it is not too large, else its visible part.
function partOf(panel) {
  const size = VIEWS[state.view].extent(panel);
  return size.width <= LARGEST_PICTURE && size.height <= LARGEST_PICTURE ? { x: 0, y: 0, ...size } : frameOf(panel);
}

// The panels of the view side by side, with the names of the runs if there are several.
function layoutOfPicture() {
  const top = panels.length > 1 ? CAPTION : 0;
  let width = 0, height = 0;
  const parts = drawnPanels().map((panel) => {
    const frame = partOf(panel), left = width;
    width += Math.ceil(frame.width);
    height = Math.max(height, Math.ceil(frame.height) + top);
    return { panel, frame, left };
  });
  return { parts, width, height, top };
}

function drawPicture(pen, { parts, width, height, top }) {
  pen.rect(0, 0, width, height, ink("ground"));
  for (const { panel, frame, left } of parts) {
    const run = page.runs[panel.run];
    if (top) pen.inside(left, 0, frame.width, top, (inner) => inner.text(clipped(`${run.name} ${run.detail}`, frame.width - 12), 6, top / 2, { color: ink("ink"), bold: true }));
    pen.inside(left, top, frame.width, frame.height, (inner) => VIEWS[state.view].draw(inner, panel, frame));
  }
}

function save(blob, ending) {
  const name = [state.view, state.kind, "layer", layerNumber(state.run, state.kind, state.layer), "head", state.head, state.measure].join("-") + ending;
  const link = element("a", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function drawnSvg() {
  const pen = new SvgPen(), layout = layoutOfPicture();
  drawPicture(pen, layout);
  return pen.svg(layout.width, layout.height);
}

async function svgPicture() {
  await unpackView();
  return drawnSvg();
}

// Paper shows the whole view in light colors, not the part in the window.
function showSheet() {
  document.documentElement.dataset.theme = "light";
  byId("sheet").replaceChildren(new DOMParser().parseFromString(drawnSvg(), "image/svg+xml").documentElement);
}

function hideSheet() {
  byId("sheet").replaceChildren();
  render();
}

async function saveSvg() { save(new Blob([await svgPicture()], { type: "image/svg+xml" }), ".svg"); }

async function pngPicture() {
  await unpackView();
  const layout = layoutOfPicture(), canvas = document.createElement("canvas");
  const scale = Math.min(2, LARGEST_PICTURE / Math.max(layout.width, layout.height));
  [canvas.width, canvas.height] = [Math.ceil(layout.width * scale), Math.ceil(layout.height * scale)];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  drawPicture(new CanvasPen(context), layout);
  return canvas;
}

async function savePng() { (await pngPicture()).toBlob((blob) => save(blob, ".png")); }

// The view of all heads of a kind of attention.

const thumbnails = new Map();
const THUMBNAILS_KEPT = 400;

function thumbnail(panel, attention, layer, head) {
  const key = [page.readings.indexOf(panel.reading), attention.kind, layer, head, state.measure, paint()].join();
  if (!thumbnails.has(key)) {
    const matrix = matrixOf(panel.reading, attention, layer, head, state.measure);
    if (!matrix) return null;
    if (thumbnails.size > THUMBNAILS_KEPT) thumbnails.clear();
    thumbnails.set(key, bitmapOf(matrix, 128));
  }
  return thumbnails.get(key);
}

const gridView = {
  name: "all heads", key: "g", hasOwnScales: true, hasMeasures: true, hasZoom: true,
  isEver: () => page.readings.some(({ attentions }) => attentions.some(({ heads, layers }) => heads * layers > 1)), needs: matrixView.needs, isThere: matrixView.isThere,
  // Rollout and gradients have no heads: one image per layer, or one in all.
  layout(panel) {
    const attention = attentionOf(panel.reading), measure = hasMeasure(panel.reading, attention, state.measure) ? state.measure : "weights";
    const heads = { rollout: 1, gradient: 1 }[measure] || attention.heads;
    const isWhole = measure === "gradient", layers = isWhole ? 1 : attention.layers;
    const pad = 6, side = Math.min((panel.width - 40) / heads, (panel.height - 40) / layers);
    return { attention, isWhole, heads, layers, pad, side: clamp(clamp(side, 56, 320) * 1.25 ** state.zoom, 24, 900) };
  },
  extent(panel) {
    const { layers, heads, side } = this.layout(panel);
    return { width: 40 + heads * side, height: 40 + layers * side };
  },
  draw(pen, panel, frame) {
    const { attention, isWhole, layers, heads, pad, side } = this.layout(panel), [faint, mark, line] = ["faint", "mark", "line"].map(ink);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const x = 34 + head * side - frame.x, y = 30 + layer * side - frame.y;
        if (x > frame.width || y > frame.height || x + side < 0 || y + side < 0) continue;
        const image = thumbnail(panel, attention, layer, head + 1);
        if (image) pen.bitmap(image, x, y, side - pad, side - pad);
        const isHere = hovered && hovered.layer === layer + 1 && hovered.head === head + 1;
        const isChosen = layer + 1 === state.layer && (heads === 1 || head + 1 === state.head);
        pen.frame(x - 0.5, y - 0.5, side - pad + 1, side - pad + 1, isHere || isChosen ? mark : line, isHere || isChosen ? 2 : 1);
      }
    }
    for (let layer = 0; layer < layers; layer++) pen.text(isWhole ? "model" : "layer " + layerNumber(panel.run, attention.kind, layer + 1), 14, 30 + (layer + 0.45) * side - frame.y, { color: faint, align: "center", rotated: true });
    for (let head = 0; head < heads; head++) pen.text(heads > 1 ? "head " + (head + 1) : MEASURES[state.measure].name, 34 + (head + 0.48) * side - frame.x, 15 - frame.y, { color: faint, align: "center" });
  },
  at(panel, x, y) {
    const { layers, heads, side } = this.layout(panel), frame = frameOf(panel);
    const head = Math.floor((x + frame.x - 34) / side) + 1, layer = Math.floor((y + frame.y - 30) / side) + 1;
    return head >= 1 && head <= heads && layer >= 1 && layer <= layers ? { layer, head, row: -1, column: -1 } : null;
  },
  choose(item) { set({ layer: item.layer, head: item.head, view: "matrix" }); },
};


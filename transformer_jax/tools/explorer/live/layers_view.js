// The view of the residual stream by a logit lens (nostalgebraist 2020): a line for every point of the decoder, with the token that it would write.

const LENS_LINE = 30, LENS_TOP = 46, LENS_LEFT = 132;
const lenses = new WeakMap(); // reading -> { points } or { words }

// The points of a live reading; computed when they are first looked at.
function lensOf(reading) {
  if (!reading || !reading.targetIds) return { words: "the model has not read the text yet" };
  if (!lenses.has(reading)) {
    lenses.set(reading, { words: "computing …" });
    request("lens", { slot: reading.run, text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], temperature: reading.temperature })
      .then((points) => lenses.set(reading, { points }), (error) => error.message === "stopped" ? lenses.delete(reading) : lenses.set(reading, { words: error.message })).then(render);
  }
  return lenses.get(reading);
}

const POINT_TITLES = { embedding: "embedding", self: "self-attention", cross: "cross-attention", feed_forward: "feed-forward" };

function pointTitle(name) {
  const parts = name.split("."), title = POINT_TITLES[parts[parts.length - 1]];
  return parts.length > 2 ? `${parts[1]} ${title}` : title;
}

const layersView = {
  name: "layers", key: "j", hasNoScale: true, hasZoom: true,
  needs: "of the live text", isThere: () => state.text === LIVE_TEXT,
  layout(panel, points) {
    const tokens = panel.reading.tokens.target, width = clamp((panel.width - LENS_LEFT - 8) / tokens.length, 58, 130) * 1.25 ** Math.min(state.zoom, 2);
    const line = clamp((panel.height - LENS_TOP - 8) / points.length, 20, 44);
    return { tokens, column: width, line, width: LENS_LEFT + width * tokens.length + 8, height: LENS_TOP + line * points.length + 8 };
  },
  extent(panel) {
    const { points } = lensOf(panel.reading);
    return points ? this.layout(panel, points) : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const { points, words } = lensOf(panel.reading), [plain, faint, mark, ground, blank] = ["ink", "faint", "mark", "ground", "line"].map(ink);
    if (words) return pen.text(words, 12, 30, { color: faint });
    const { tokens, column, line } = this.layout(panel, points), item = hovered || state, matrix = { largest: 1, isSigned: false };
    points.forEach(({ rows }, index) => rows.forEach(({ best: [[id, piece, logProb]] }, row) => {
      const x = LENS_LEFT + row * column - frame.x, y = LENS_TOP + index * line - frame.y, share = Math.exp(logProb), isWritten = id === panel.reading.targetIds[row];
      if (x + column < LENS_LEFT || x > frame.width) return;
      const [red, green, blue] = rgbOf(0.75 * share, matrix), isBright = 0.299 * red + 0.587 * green + 0.114 * blue > 140;
      pen.rect(x, y, column - 2, line - 2, `rgb(${red},${green},${blue})`);
      if (isWritten) pen.rect(x, y + line - 5, column - 2, 3, mark);
      if (hovered && hovered.point === index && hovered.row === row) pen.frame(x, y, column - 2, line - 2, mark, 2);
      pen.text(clipped(shown(piece), column - 10), x + 4, y + line / 2 - 1, { color: isBright ? "#10161c" : "#ffffff", size: 12, bold: isWritten });
    }));
    pen.rect(0, 0, LENS_LEFT, frame.height, ground);
    pen.rect(0, 0, frame.width, LENS_TOP, ground);
    points.forEach(({ name }, index) => pen.text(pointTitle(name), LENS_LEFT - 8, LENS_TOP + (index + 0.5) * line - frame.y, { color: plain, align: "right" }));
    tokens.forEach((piece, row) => {
      const x = LENS_LEFT + row * column - frame.x, strong = item.row === row;
      if (x >= LENS_LEFT - 1) pen.text(clipped(shown(piece), column - 8), x + 4, LENS_TOP - 14, { color: strong ? mark : plain, bold: true });
      if (strong && x >= LENS_LEFT - 1) pen.frame(x - 1, LENS_TOP - frame.y - 1, column, line * points.length, mark, 1.5);
    });
    pen.rect(0, LENS_TOP - 3, frame.width, 1, blank);
    pen.text("writes →", LENS_LEFT - 8, LENS_TOP - 14, { color: faint, align: "right" });
    pen.text(clipped("the token that each layer would write now; a strong color is sure, underlined is the token that was written", frame.width - 12), 8, 12, { color: faint });
  },
  at(panel, x, y) {
    const { points } = lensOf(panel.reading);
    if (!points) return null;
    const { column, line, tokens } = this.layout(panel, points), frame = frameOf(panel);
    const row = Math.floor((x + frame.x - LENS_LEFT) / column), point = Math.floor((y + frame.y - LENS_TOP) / line);
    return x > LENS_LEFT && row < tokens.length ? { row, column: -1, point: points[point] ? point : -1 } : null;
  },
  inspect(panel, item) {
    const { points } = lensOf(panel.reading), index = item.point >= 0 ? item.point : points ? points.length - 1 : -1;
    if (!points || item.row < 0 || !points[index].rows[item.row]) {
      return [element("h2", "the residual stream"), element("p", "Every sublayer adds to the vector of a position. Here the vector after each sublayer is compared with the output matrix, as if the rest of the model were not there (the logit lens). Click a column to follow one token.")];
    }
    const { best, logProb } = points[index].rows[item.row];
    return [
      element("h2", `after ${pointTitle(points[index].name)}`), element("p", `position ${item.row + 1}, which writes ${shown(panel.reading.tokens.target[item.row])}: its probability here is ${number(Math.exp(logProb))}`),
      ranking(best.map(([, piece]) => piece), Float32Array.from(best, ([, , value]) => Math.exp(value)), 1, () => {}),
      element("h2", "the way of this token"),
      element("table", points.map(({ name, rows }) => element("tr", [element("td", pointTitle(name)), element("td", shown(rows[item.row].best[0][1])), cell(Math.exp(rows[item.row].best[0][2]).toFixed(2))]))),
    ];
  },
};

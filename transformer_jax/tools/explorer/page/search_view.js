// The view of the beam search as a tree.

// The tree of a search: a column per token, with the candidates of a step from the most probable down.
const COLUMN = 118, ROW = 24, TREE_TOP = 30;

// Nodes as objects, with the tokens of their prefix, and whether they lead to the best hypothesis.
function treeOf(reading) {
  const search = reading && reading.search;
  if (!search || search.tree) return search && search.tree;
  const nodes = search.nodes.map((values) => Object.fromEntries(values.map((value, index) => [search.fields[index], value])));
  nodes.forEach((node) => {
    node.tokens = node.parent < 0 ? [node.token] : [...nodes[node.parent].tokens, node.token];
    node.text = node.parent < 0 ? node.piece : nodes[node.parent].text + node.piece;
  });
  for (let index = search.hypotheses.length ? search.hypotheses[0] : -1; index >= 0; index = nodes[index].parent) nodes[index].isBest = true;
  const depth = 1 + nodes.reduce((most, node) => Math.max(most, node.position), 0);
  const height = 1 + nodes.reduce((most, node) => Math.max(most, node.rank), 0);
  search.opened = new Set();
  search.tree = { search, nodes, depth, height };
  return search.tree;
}

const treeView = {
  name: "search", key: "t", hasNoScale: true, hasZoom: true,
  lights: ["output"], isEver: () => Boolean(live) || page.readings.some((each) => each.search), needs: "no search of this text and run",
  isThere: () => Boolean((readingOf(state.run) || {}).search),
  scale: () => 1.25 ** Math.min(state.zoom, 3),
  extent(panel) {
    const tree = treeOf(panel.reading);
    return tree ? { width: 20 + tree.depth * COLUMN * this.scale(), height: TREE_TOP + tree.height * ROW * this.scale() + 10 } : { width: 0, height: 0 };
  },
  boxOf(node) {
    const scale = this.scale();
    return { x: 10 + node.position * COLUMN * scale, y: TREE_TOP + node.rank * ROW * scale, width: (COLUMN - 26) * scale, height: (ROW - 5) * scale };
  },
  draw(pen, panel, frame) {
    const tree = treeOf(panel.reading), [plain, faint, mark, ground, line, blue] = ["ink", "faint", "mark", "ground", "line", "chosen"].map(ink);
    if (!tree) return pen.text("no search was traced for this run", 20, 40, { color: faint });
    const isSeen = ({ x, width }) => x + width + COLUMN > frame.x && x - COLUMN < frame.x + frame.width;
    const size = 11 * Math.min(this.scale(), 1.3);
    for (const node of tree.nodes) {
      const to = this.boxOf(node);
      if (node.parent < 0 || !isSeen(to)) continue;
      const from = this.boxOf(tree.nodes[node.parent]);
      pen.curve(from.x + from.width - frame.x, from.y + from.height / 2 - frame.y, to.x - frame.x, to.y + to.height / 2 - frame.y,
        node.isBest ? mark : node.status === "dropped" ? line : blue, node.isBest ? 1 : 0.7, node.isBest ? 2.5 : 1);
    }
    tree.nodes.forEach((node, index) => {
      const box = this.boxOf(node), x = box.x - frame.x, y = box.y - frame.y;
      if (!isSeen(box)) return;
      const isPointed = hovered && hovered.node >= 0;
      const isChosen = isPointed ? panels[hovered.panel] === panel && hovered.node === index : panel.run === state.run && state.node === index;
      pen.rect(x, y, box.width, box.height, node.status === "finished" ? ink("shade") : ground);
      pen.frame(x, y, box.width, box.height, isChosen || node.isBest ? mark : node.status === "kept" ? blue : node.status === "finished" ? plain : line, isChosen ? 3 : node.status === "finished" ? 2 : 1);
      const color = node.status === "dropped" ? faint : plain, value = node.log_prob.toFixed(2);
      ruler.font = `${size}px ${FONT}`;
      const room = box.width - ruler.measureText(value).width - 16;
      pen.text(clipped(shown(node.piece), room), x + 5, y + box.height / 2, { color, size, bold: node.status === "finished" });
      pen.text(value, x + box.width - 5, y + box.height / 2, { color: faint, size: size - 1, align: "right" });
    });
    for (let position = 0; position < tree.depth; position++) {
      const x = this.boxOf({ position, rank: 0 }).x - frame.x;
      if (x > -COLUMN && x < frame.width) pen.text("token " + (position + 1), x, 13 - frame.y, { color: faint });
    }
  },
  at(panel, x, y) {
    const tree = treeOf(panel.reading), frame = frameOf(panel);
    const node = tree ? tree.nodes.findIndex((each) => {
      const box = this.boxOf(each);
      return x + frame.x >= box.x && x + frame.x <= box.x + box.width && y + frame.y >= box.y && y + frame.y <= box.y + box.height;
    }) : -1;
    return node >= 0 ? { node } : null;
  },
  choose(item, panel) {
    const isHere = panel.run === state.run;
    set({ run: panel.run, ...isHere ? {} : { beside: state.run }, node: isHere && item.node === state.node ? -1 : item.node });
  },
  inspect(panel, item) {
    const tree = treeOf(panel.reading), node = tree && tree.nodes[item.node >= 0 ? item.node : state.node];
    return node ? inspectNode(tree, node) : tree ? inspectSearch(tree) : [];
  },
};

const cell = (content, kind = "number") => element("td", content, { className: kind });
const fixed = (value) => value.toFixed(2);

// The finished hypotheses, and their rank without the length penalty.
function inspectSearch(tree) {
  const { search, nodes } = tree, finished = search.hypotheses.map((index) => ({ index, node: nodes[index] }));
  const unpenalized = [...finished].sort((a, b) => b.node.log_prob - a.node.log_prob);
  const counts = ["kept", "dropped", "finished"].map((status) => `${nodes.filter((node) => node.status === status).length} ${status}`).join(", ");
  const rows = finished.flatMap(({ index, node }, rank) => [
    element("tr", [
      cell(String(rank + 1)), cell(String(unpenalized.findIndex((each) => each.index === index) + 1)), cell(String(node.position + 1)),
      cell(fixed(node.log_prob)), cell(fixed(node.divisor)), cell(fixed(node.score)),
    ]),
    element("tr", element("td", element("button", textOf(node), { type: "button", onclick: () => set({ node: index }) }), { colSpan: 6 })),
  ]);
  return [
    element("h2", `beam search, ${search.beamWidth} beams`), element("p", `prefixes: ${counts}. Best path in orange; click a box for what may follow it.`),
    element("h2", "finished"),
    element("p", `score = log-probability / penalty, the penalty ((5 + tokens) / 6)^${search.lengthPenalty} (Wu et al. 2016); "without" is the rank without it`),
    element("table", [element("tr", ["#", "without", "len", "log p", "pen.", "score"].map((text) => element("th", text, { className: "number" }))), ...rows]),
  ];
}

const textOf = (node) => shown(node.text.replace(/<\/s>$/, "")).replaceAll("\u2423", " ").trim() || "(empty)";

function inspectNode(tree, node) {
  const before = node.parent < 0 ? 0 : tree.nodes[node.parent].log_prob, parts = [
    element("h2", textOf(node)),
    element("p", `${{ kept: "kept in the beam", dropped: "dropped", finished: "finished" }[node.status]} at token ${node.position + 1}, rank ${node.rank + 1} of its step`),
    element("p", `this token: probability ${Math.exp(node.log_prob - before).toFixed(3)}; log-probability of all ${fixed(node.log_prob)}` +
      (node.score === null ? "" : `; / ${fixed(node.divisor)} = score ${fixed(node.score)}`)),
  ];
  if (node.status === "dropped") parts.push(...forcedParts(tree.search, node.tokens.join()));
  // The live model has read only its own texts.
  const { search } = tree, isLive = live && readingOf(state.run).targetIds, siblings = node.parent < 0 ? search.first : tree.nodes[node.parent].following;
  for (const [title, options, tokens] of [["what may follow", node.following, node.tokens], ["instead of this token", siblings, node.tokens.slice(0, -1)]]) {
    if (!options.length) continue;
    parts.push(element("h2", title), element("table", options.flatMap(([token, piece, logProb]) => {
      const bar = element("i"), key = [...tokens, token].join(), isKnown = key in search.forced;
      bar.style.width = 100 * Math.exp(logProb) + "%";
      const open = () => {
        const isToAsk = !isKnown || search.forced[key].failed;
        if (isToAsk || !search.opened.delete(key)) search.opened.add(key);
        if (isToAsk) live.force(search, key, [...tokens, token]);
        inspect();
      };
      const canOpen = isKnown || isLive;
      const button = element("button", shown(piece), { type: "button", onclick: open, disabled: !canOpen, title: canOpen ? "what the search finds with it" : "not computed ahead" });
      const below = search.opened.has(key) ? forcedParts(search, key) : [];
      if (isLive && below.length && token !== node.token && options === siblings) below.push(live.why(readingOf(state.run), tokens, [node.token, node.piece], [token, piece]));
      const row = element("tr", [element("td", button), cell(Math.exp(logProb).toFixed(3)), cell(bar, "bar")]);
      return [row, ...below.map((part) => element("tr", element("td", part, { colSpan: 3 })))];
    })));
  }
  return parts;
}

// The result of the search forced to begin with the tokens of a key: precomputed, or by the live model.
function forcedParts(search, key) {
  const found = search.forced[key];
  if (!found) return [];
  if (found.words) return [element("p", found.words + (found.failed ? " Click again to ask again." : ""))];
  return [element("p", ["forced: ", element("b", found.text || "(empty)"), ` log p ${fixed(found.logProb)}, score ${fixed(found.score)}`])];
}


// The view of averages of every head over a split.

// Head statistics: a table of layers and heads for each statistic.
const NUMBER = 48, LINE = 22, GAP = 26;

const statisticsView = {
  name: "statistics", key: "h", hasNoScale: true,
  isEver: () => page.statistics.length > 0, needs: "no statistics of this run", isThere: () => page.statistics.some((each) => each.run === state.run),
  // The tables of the current kind, if any, side by side under their source.
  layout(panel) {
    const own = page.statistics.filter((each) => each.run === panel.run), tables = [], headings = [];
    const ofKind = own.filter((each) => each.kind === state.kind), seen = ofKind.length ? ofKind : own.filter((each) => each.kind === own[0].kind);
    let y = 0;
    for (const source of new Set(seen.map((each) => each.source))) {
      headings.push({ text: `${seen[0].kind} attention, ${source}`, y: y + 16 });
      let x = 10, tallest = 0;
      y += 34;
      for (const { title, values } of seen.filter((each) => each.source === source)) {
        const width = Math.max(34 + values[0].length * NUMBER, 210), height = 46 + values.length * LINE;
        if (x > 10 && x + width > panel.width) [x, y, tallest] = [10, y + tallest, 0];
        tables.push({ kind: seen[0].kind, title, values, x, y, width, height });
        x += width + GAP;
        tallest = Math.max(tallest, height + 14);
      }
      y += tallest;
    }
    return { tables, headings: own.length ? headings : [{ text: "no statistics for this run", y: 16 }], height: y };
  },
  extent(panel) {
    const { tables, height } = this.layout(panel);
    return { width: Math.max(300, ...tables.map((each) => each.x + each.width + 10)), height: Math.max(34, height) };
  },
  draw(pen, panel, frame) {
    const [plain, faint, mark] = ["ink", "faint", "mark"].map(ink), { tables, headings } = this.layout(panel);
    for (const { text, y } of headings) pen.text(text, 10 - frame.x, y - frame.y, { color: faint, size: 13 });
    for (const table of tables) {
      const x = table.x - frame.x, y = table.y - frame.y, all = table.values.flat(), largest = Math.max(...all, 1e-9);
      pen.text(table.title, x, y + 8, { color: plain, bold: true });
      table.values[0].forEach((_, head) => pen.text("h" + (head + 1), x + 30 + (head + 0.5) * NUMBER, y + 26, { color: faint, size: 11, align: "center" }));
      table.values.forEach((heads, layer) => {
        const top = y + 36 + layer * LINE;
        pen.text("l" + layerNumber(panel.run, table.kind, layer + 1), x + 4, top + LINE / 2, { color: faint, size: 11 });
        heads.forEach((value, head) => {
          const left = x + 30 + head * NUMBER, share = value / largest;
          pen.rect(left, top, NUMBER - 2, LINE - 2, cssColor(value, { largest, isSigned: false }));
          const onDark = state.palette === "cividis" ? share < 0.55 : isDark() ? share < 0.6 : share > 0.55;
          pen.text(value.toFixed(largest >= 10 ? 1 : 2), left + NUMBER / 2 - 1, top + LINE / 2 - 1, { color: onDark ? "#ffffff" : "#10161c", size: 11, align: "center" });
          if (layer + 1 === state.layer && head + 1 === state.head) pen.frame(left - 1, top - 1, NUMBER, LINE, mark, 2);
        });
      });
    }
  },
  at(panel, x, y) {
    const frame = frameOf(panel);
    for (const table of this.layout(panel).tables) {
      const head = Math.floor((x + frame.x - table.x - 30) / NUMBER), layer = Math.floor((y + frame.y - table.y - 36) / LINE);
      if (table.values[layer] && table.values[layer][head] !== undefined) return { kind: table.kind, layer: layer + 1, head: head + 1, title: table.title, value: table.values[layer][head] };
    }
    return null;
  },
  choose(item) { set({ kind: item.kind, layer: item.layer, head: item.head, view: "matrix" }); },
  inspect(panel, item) {
    return item.title ? [element("h2", `layer ${layerNumber(panel.run, item.kind, item.layer)}, head ${item.head}`), element("p", `${item.title}: ${item.value}`), element("p", "click to open it")]
      : [element("h2", "head statistics"), element("p", "Averages over all queries; padding never counts. Click a number to open the head.")];
  },
};


// A run through training: a slider over its checkpoints, which are runs of the page, and curves of every head over them.

const RUNS_OF_CHECKPOINTS = Object.keys(page.checkpoints.updates).map(Number), UPDATES = Object.values(page.checkpoints.updates);
const checkpointHere = () => RUNS_OF_CHECKPOINTS.indexOf(state.run);

const goToCheckpoint = (index) => set({ run: RUNS_OF_CHECKPOINTS[clamp(index, 0, RUNS_OF_CHECKPOINTS.length - 1)] });

const slider = element("input", "", { type: "range", min: 0, max: UPDATES.length - 1, step: 1, ariaLabel: "checkpoint", title: "checkpoint (, and .)", oninput: (event) => goToCheckpoint(Number(event.target.value)) });
const sliderWords = element("span", "", { className: "words" });
byId("side").prepend(element("div", element("label", ["checkpoint ", slider, " ", sliderWords]), { id: "checkpoints" }));

onRender.push(() => {
  const index = checkpointHere();
  if (index >= 0) slider.value = index;
  sliderWords.textContent = index >= 0 ? `update ${UPDATES[index].toLocaleString("en")}` : live && live.nameOf(state.run) !== null ? "the live model" : "";
  slider.setAttribute("aria-valuetext", sliderWords.textContent || "none");
});

const CHART = { width: 420, height: 240, left: 46, top: 34, right: 12, bottom: 34 };

const trainingView = {
  name: "training", key: "f", hasNoScale: true,
  isThere: () => true,
  // The charts of the kind of attention, side by side: of the text, or of the first where the text is none of the checkpoints'.
  charts(panel) {
    const own = page.checkpoints.curves.filter(({ kind }) => kind === state.kind), seen = own.some(({ text }) => text === state.text) ? state.text : 0;
    const nameOf = (text) => text === null ? "all sentences: " : text === state.text ? "" : "text 1: ";
    const curves = own.filter(({ text }) => text === null || text === seen).map((curve) => ({ ...curve, title: nameOf(curve.text) + curve.title }));
    const width = Math.min(CHART.width, panel.width), columns = Math.floor(panel.width / width) || 1;
    return curves.map((curve, index) => {
      const all = curve.values.flat(2), low = Math.min(0, ...all), high = Math.max(1e-9, ...all);
      const x = (index % columns) * width, y = Math.floor(index / columns) * CHART.height;
      const first = UPDATES[0], span = UPDATES[UPDATES.length - 1] - first, room = width - CHART.left - CHART.right, height = CHART.height - CHART.top - CHART.bottom;
      return {
        ...curve, x, y, width, low, high, across: (update) => x + CHART.left + (update - first) / span * room,
        up: (value) => y + CHART.top + (1 - (value - low) / (high - low)) * height,
      };
    });
  },
  extent(panel) {
    const charts = this.charts(panel);
    return { width: Math.max(0, ...charts.map(({ x, width }) => x + width)), height: Math.max(60, ...charts.map(({ y }) => y + CHART.height)) };
  },
  draw(pen, panel, frame) {
    const [plain, faint, line, mark] = ["ink", "faint", "line", "mark"].map(ink), charts = this.charts(panel), here = checkpointHere();
    for (const { title, values, x, y, width, low, high, across, up } of charts) {
      const at = (update, value) => [across(update) - frame.x, up(value) - frame.y], last = UPDATES.length - 1;
      pen.text(clipped(title, width - 40), x + 10 - frame.x, y + 16 - frame.y, { color: plain, bold: true });
      for (const value of [low, high]) pen.text(number(value), x + CHART.left - 6 - frame.x, up(value) - frame.y, { color: faint, size: 10, align: "right" });
      for (const value of low < 0 ? [low, 0, high] : [low, high]) pen.line([at(UPDATES[0], value), at(UPDATES[last], value)], line, 1);
      UPDATES.forEach((update, index) => {
        pen.line([at(update, low), at(update, high)], index === here ? mark : line, index === here ? 2 : 0.5);
        if (index === 0 || index === last) pen.text(update.toLocaleString("en"), across(update) - frame.x, up(low) + 14 - frame.y, { color: faint, size: 10, align: index ? "right" : "left" });
      });
      // The head that is shown is drawn last, over the others.
      const heads = values[0].flatMap((ofLayer, layer) => ofLayer.map((_, head) => [layer, head]));
      const isHere = ([layer, head]) => hovered && hovered.layer ? hovered.layer === layer + 1 && hovered.head === head + 1 : state.layer === layer + 1 && state.head === head + 1;
      for (const [layer, head] of heads.sort((a, b) => isHere(a) - isHere(b))) {
        const [red, green, blue] = between([[8, 80, 150], [0, 140, 120], [150, 120, 30], [130, 60, 140]], values[0].length > 1 ? layer / (values[0].length - 1) : 0);
        pen.line(values.map((each, index) => at(UPDATES[index], each[layer][head])), isHere([layer, head]) ? mark : `rgb(${red},${green},${blue})`, isHere([layer, head]) ? 3 : 1);
      }
    }
  },
  // The head whose curve is nearest.
  at(panel, x, y) {
    const frame = frameOf(panel), [left, top] = [x + frame.x, y + frame.y];
    const chart = this.charts(panel).find((each) => left >= each.x && left < each.x + each.width && top >= each.y && top < each.y + CHART.height);
    if (!chart) return null;
    const nearest = (values, distance) => values.reduce((best, value) => distance(value) < distance(best) ? value : best);
    const index = nearest([...UPDATES.keys()], (each) => Math.abs(chart.across(UPDATES[each]) - left));
    const heads = chart.values[index].flatMap((ofLayer, layer) => ofLayer.map((value, head) => ({ layer: layer + 1, head: head + 1, value })));
    return { ...nearest(heads, ({ value }) => Math.abs(chart.up(value) - top)), index, title: chart.title };
  },
  choose(item) { set({ layer: item.layer, head: item.head, run: RUNS_OF_CHECKPOINTS[item.index] }); },
  inspect(panel, item) {
    return item.title ? [
      element("h2", `layer ${layerNumber(panel.run, state.kind, item.layer)}, head ${item.head}`), element("p", `${item.title}: ${number(item.value)} at update ${UPDATES[item.index].toLocaleString("en")}`), element("p", "click to choose this head and checkpoint"),
    ] : [
      element("h2", "training"), element("p", "One line for each head, one color for each layer; the chosen head is orange. All checkpoints read the same target."),
      element("p", trainingView.charts(panel).some((each) => each.title.includes("importance")) ? "The importance of a head is the loss of the target without the head minus the loss of the whole model (Michel et al. 2019, section 3.2); below zero the model is better without it." : "The importance of heads was not measured for this kind of attention."),
    ];
  },
};

VIEWS.training = trainingView;
KEYS.push(["f", "curves through training"], [", .", "checkpoint before, after"]);
Object.assign(otherKeys, { ",": () => goToCheckpoint(checkpointHere() < 0 ? UPDATES.length - 1 : checkpointHere() - 1), ".": () => goToCheckpoint(checkpointHere() + 1) });

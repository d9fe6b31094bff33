// The inspector: words and numbers on the token or the view that is pointed at.

function element(tag, content = "", options = {}) {
  const parts = [content].flat(), isText = parts.every((part) => typeof part !== "object");
  const made = Object.assign(document.createElement(tag), isText ? { dir: "auto" } : {}, options);
  made.append(...parts);
  return made;
}

const TOP = 8;

// Tokens with their values, the furthest from zero first.
function ranking(pieces, values, largest, choose) {
  const order = [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, TOP);
  return element("table", order.map((index) => {
    const bar = element("i", "", { className: values[index] < 0 ? "negative" : "" });
    bar.style.width = 100 * Math.abs(values[index]) / (largest || 1) + "%";
    const button = element("button", shown(pieces[index]), { type: "button", title: "position " + (index + 1), onclick: () => choose(index) });
    return element("tr", [element("td", button), cell(number(values[index])), cell(bar, "bar")]);
  }));
}

function inspectToken(matrix, item, panel) {
  const { rows, columns, values, attention } = matrix, parts = [];
  if (item.row >= rows.length || item.column >= columns.length) return [];
  const name = (piece, index) => `${shown(piece)} (${index + 1})`;
  const along = { row: (index) => values.subarray(index * columns.length, (index + 1) * columns.length), column: (index) => Float32Array.from(rows, (_, row) => values[row * columns.length + index]) };
  if (item.row >= 0 && item.column >= 0) {
    parts.push(element("h2", `${name(rows[item.row], item.row)} → ${name(columns[item.column], item.column)}`));
    parts.push(element("p", `${MEASURES[matrix.measure].name} ${number(values[item.row * columns.length + item.column])}`));
  }
  const both = attention.rows === attention.columns, row = item.row >= 0 ? item.row : both ? item.column : -1;
  const column = item.column >= 0 ? item.column : both ? item.row : -1;
  if (row >= 0) {
    parts.push(element("h2", `${name(rows[row], row)} looks at`));
    if (attention.rows === "target" && panel.reading.logProbs.length) {
      parts.push(element("p", `probability of this token ${Math.exp(panel.reading.logProbs[row]).toFixed(3)}`));
    }
    parts.push(ranking(columns, along.row(row), matrix.largest, (index) => set({ column: index, row: -1 })));
    if (live && attention.rows === "target") parts.push(...live.inspect(panel, row));
  }
  if (column >= 0) {
    parts.push(element("h2", `${name(columns[column], column)} is looked at by`));
    parts.push(ranking(rows, along.column(column), matrix.largest, (index) => set({ row: index, column: -1 })));
  }
  return parts;
}

// The tree of a parser: a constituent or word a line, which chooses the token that wrote it.
function outline(tree, chosen) {
  return [element("h2", "tree"), ...tree.map(([depth, text, row]) => {
    const line = element("p", element("button", text, { type: "button", disabled: row < 0, ariaPressed: row >= 0 && row === chosen, onclick: () => set({ row, column: -1 }) }));
    line.style.paddingLeft = `${0.7 * depth}em`;
    return line;
  })];
}

// Draws the inspector, but not while someone types into it and the reading stays. The button that has the focus keeps it; where it is gone, the inspector has it.
function inspect() {
  const box = byId("inspector"), focused = box.contains(document.activeElement) ? document.activeElement : null;
  if (focused && focused.form && inspectedReading === mainPanel().reading) return;
  inspectedReading = mainPanel().reading;
  box.replaceChildren(...inspected());
  if (!focused) return;
  const same = [...box.querySelectorAll("button")].find((each) => each.textContent === focused.textContent && each.title === focused.title);
  (same || box).focus({ preventScroll: true });
}

function inspected() {
  const panel = hovered ? panels[hovered.panel] : mainPanel(), item = hovered || state, view = VIEWS[state.view];
  if (view.inspect) return view.inspect(panel, item);
  const parts = [], matrix = currentMatrix(panel);
  if (matrix && (item.row >= 0 || item.column >= 0)) parts.push(...inspectToken(matrix, item, panel));
  else if (hovered && hovered.layer) parts.push(element("h2", `layer ${layerNumber(panel.run, state.kind, hovered.layer)}, head ${hovered.head}`), element("p", "click to open it"));
  else if (matrix) {
    parts.push(element("h2", MEASURES[matrix.measure].name), element("p", MEASURES[matrix.measure].source));
    if (matrix.measure !== state.measure) parts.push(element("p", `this model has no ${MEASURES[state.measure].name} here`));
    parts.push(element("p", "Point at a token to see where it looks and who looks at it; click to keep it. Press ? for the keys."));
  }
  if (matrix && matrix.attention.rows === "target" && panel.reading.tree.length) parts.push(...outline(panel.reading.tree, item.row));
  return parts;
}

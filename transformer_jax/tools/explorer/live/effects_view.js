// The view of the effects: which part mattered for which token.

const HEAD_CELL = 30, TOKEN_LINE = 24, EFFECTS_TOP = HEAD_NAMES.length ? 52 : 130;
// The parts to switch off one by one: all heads; of an RNN its parts.
const EFFECTS = HEAD_NAMES.length ? HEAD_NAMES : Object.keys(CHOICES);
const effects = new WeakMap(); // reading -> { changes: a list for each of EFFECTS, largest } or { words }

// The effects of all heads on a live reading; computed when they are first looked at.
function effectsOf(reading) {
  if (!reading || !reading.targetIds) return { words: "the model has not read the text yet" };
  if (!effects.has(reading)) {
    const says = (found) => { effects.set(reading, found); render(); };
    effects.set(reading, { words: "switching off every part in turn …" });
    request("effects", { slot: reading.run, text: reading.source, targetIds: reading.targetIds, edits: reading.edits || [], temperature: reading.temperature, names: EFFECTS }, (done) => says({ words: `switching off every part in turn … ${Math.round(100 * done)} %` }))
      .then((changes) => says({ changes, largest: Math.max(1e-9, ...changes.flat().map(Math.abs)) }),
        (error) => { if (error.message === "stopped") effects.delete(reading); else says({ words: error.message }); });
  }
  return effects.get(reading);
}

const effectsView = {
  name: HEAD_NAMES.length ? "head effects" : "part effects", key: "a", hasNoScale: true,
  needs: "of the live text", isThere: () => state.text === LIVE_TEXT,
  left: (panel) => Math.max(labelRoom(panel.reading.tokens.target), 74) + 10,
  extent(panel) {
    const { changes } = effectsOf(panel.reading);
    return changes ? { width: this.left(panel) + EFFECTS.length * HEAD_CELL + 10, height: EFFECTS_TOP + (panel.reading.tokens.target.length + 1) * TOKEN_LINE + 10 } : { width: 300, height: 60 };
  },
  draw(pen, panel, frame) {
    const { changes, largest, words } = effectsOf(panel.reading), [plain, faint, mark] = ["ink", "faint", "mark"].map(ink);
    if (words) return pen.text(words, 12, 30, { color: faint });
    const left = this.left(panel) - frame.x, top = EFFECTS_TOP - frame.y, matrix = { largest, isSigned: true }, off = new Set(panel.reading.edits || []);
    EFFECTS.forEach((name, index) => {
      const x = left + index * HEAD_CELL, isOff = off.has(name), isHere = hovered && hovered.index === index, ofPart = changes[index];
      const color = isOff ? mark : isHere ? plain : faint, [group, head] = titleOf(name).split(" head ");
      if (!head) pen.text(`${group}${isOff ? " off" : ""}`, x + HEAD_CELL / 2, top - 6, { color, size: 11, rotated: true, bold: isHere });
      else pen.text(isOff ? `${head} off` : head, x + HEAD_CELL / 2, top - 12, { color, size: 12, align: "center", bold: isHere });
      // The name of an attention stands above its heads.
      if (head === "1") pen.text(clipped(group.replace("-attention", ""), settings.heads * HEAD_CELL - 4), x + 2, top - 32, { color: plain, size: 11 });
      const total = ofPart.reduce((sum, value) => sum + value, 0);
      [...ofPart, total].forEach((value, row) => {
        const isTotal = row === ofPart.length, y = top + row * TOKEN_LINE + (isTotal ? 4 : 0);
        if (!isTotal) pen.rect(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, cssColor(value, matrix));
        const isStrong = !isTotal && Math.abs(value) > 0.55 * largest;
        if (isTotal || Math.abs(value) >= 0.05) pen.text(value.toFixed(Math.abs(value) >= 9.95 ? 0 : 1).replace("-0.0", "0.0"), x + HEAD_CELL / 2, y + TOKEN_LINE / 2, { color: isStrong ? isDark() ? "#10161c" : "#ffffff" : plain, size: 10, align: "center", bold: isTotal });
        if (isHere && hovered.row === row) pen.frame(x, y, HEAD_CELL - 1, TOKEN_LINE - 1, mark, 2);
      });
    });
    [...panel.reading.tokens.target, "all"].forEach((piece, row, pieces) => {
      const isTotal = row === pieces.length - 1, y = top + (row + 0.5) * TOKEN_LINE + (isTotal ? 4 : 0);
      pen.text(isTotal ? "all tokens" : clipped(shown(piece), LABEL_ROOM), left - 6, y, { color: targetRow(panel.reading) === row && !isTotal ? mark : plain, align: "right", bold: isTotal });
    });
  },
  at(panel, x, y) {
    if (!effectsOf(panel.reading).changes) return null;
    const frame = frameOf(panel), index = Math.floor((x + frame.x - this.left(panel)) / HEAD_CELL), row = Math.floor((y + frame.y - EFFECTS_TOP) / TOKEN_LINE);
    return EFFECTS[index] && row < panel.reading.tokens.target.length ? { index, row: Math.max(row, -1), column: -1 } : null;
  },
  choose(item) { toggle(EFFECTS[item.index]); },
  inspect(panel, item) {
    const { changes } = effectsOf(panel.reading), found = changes && changes[item.index];
    const parts = found ? [
      element("h2", titleOf(EFFECTS[item.index])),
      ...item.row >= 0 ? [element("p", `without it log p(${shown(panel.reading.tokens.target[item.row])}) changes by ${number(found[item.row])}`)] : [],
      element("p", "click to switch it off or on"),
    ] : [element("h2", this.name), element("p", `The change of the log-probability of every token of the ${WORDS.result} when one part is switched off${HEAD_NAMES.length ? " (the output of a head is zero)" : ""}. Orange: the token becomes less probable. Click a column to keep it off.`)];
    return [...parts, ...!found && targetRow(panel.reading) >= 0 ? inspectLive(panel, targetRow(panel.reading)) : []];
  },
};

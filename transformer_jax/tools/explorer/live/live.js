// Puts the parts of the live page together.

const isTransformer = settings.kind !== "rnn";
Object.assign(VIEWS, { ...isTransformer ? { layers: layersView } : {}, softmax: softmaxView, neurons: productsView, effects: effectsView, vectors: vectorsView });
KEYS.push(
  [isTransformer ? "j S q a i" : "S q a i", `${isTransformer ? "layers, " : ""}softmax, ${productsView.name}, ${effectsView.name}, vectors`],
  ["y", "difference to the unchanged model"], ["z", "undo all edits"], ["u", "guided tour"],
);

live = {
  settle: settleLive, show: showStrip, inspect: inspectLive, force: forceLive, why: whyInTree, isRead, isComputing, keys: { z: reset, u: tour },
  nameOf: (run) => run === CHANGED ? `changed: ${changesInWords()}` : run === UNCHANGED ? panels.length > 1 ? "unchanged" : "" : null,
  partsOfStack, partsOfLayer, switchesOfLayer, belowMap, says, toggle, toggleAll, off: editsOn, lit: litByTour, hasSwitches: EDIT_NAMES.size > 0,
};
buildStrip();

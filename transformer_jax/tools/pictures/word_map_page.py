"""Words as points of a plane on one HTML page that needs no network: hover, search, move and zoom."""

import json
from collections.abc import Sequence
from html import escape

import numpy as np

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b2733; --faint: #5c6b7a; --line: #c9d1d9; --point: #1b5a8a;
  --found: #c2551a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14191f; --ink: #e3e9ef; --faint: #97a5b3; --line: #33404c;
  --point: #7fb6de; --found: #f2a05c; } }
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; font: 15px/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--ground); }
header { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; padding: .6rem .9rem;
  border-bottom: 1px solid var(--line); }
h1 { font-size: 1rem; margin: 0; }
input { font: inherit; font-size: 16px; padding: .3rem .6rem; border: 1px solid var(--line); border-radius: .3rem;
  min-width: 8rem; flex: 0 1 16rem; color: inherit; background: transparent; }
button { font: inherit; padding: .3rem .7rem; border: 1px solid var(--line); border-radius: .3rem; color: inherit;
  background: transparent; cursor: pointer; }
#said { color: var(--faint); }
#plane { flex: 1; min-height: 0; position: relative; overflow: hidden; }
canvas { position: absolute; inset: 0; width: 100%; height: 100%; touch-action: none; cursor: grab; }
#card { position: absolute; max-width: 15rem; padding: .45rem .7rem; pointer-events: none; border: 1px solid var(--line);
  border-radius: .35rem; background: var(--ground); overflow-wrap: anywhere; }
#card[hidden] { display: none; }
#card b { display: block; }
#card span { color: var(--faint); font-size: .9em; }
"""

SCRIPT = """
"use strict";
const { words, points, near } = JSON.parse(document.getElementById("data").textContent);
const canvas = document.querySelector("canvas"), card = document.getElementById("card");
const search = document.querySelector("input"), said = document.getElementById("said");
const context = canvas.getContext("2d");
const LABEL = 12, REACH = 18, PAD = 40;
let view, found = new Set(), chosen = -1, width = 0, height = 0, isWhole = true;

const bounds = [0, 1].map((axis) => {
  const values = points.map((point) => point[axis]);
  return [Math.min(...values), Math.max(...values)];
});

function fit() {
  const spans = bounds.map(([low, high]) => Math.max(high - low, 1e-9));
  const scale = Math.max(Math.min((width - 2 * PAD) / spans[0], (height - 2 * PAD) / spans[1]), 1e-9);
  const middle = bounds.map(([low, high]) => (low + high) / 2);
  view = { scale, x: width / 2 - middle[0] * scale, y: height / 2 + middle[1] * scale };
}

const place = (index) => [points[index][0] * view.scale + view.x, view.y - points[index][1] * view.scale];

function draw() {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const [ink, faint, dot, mark, ground] = ["--ink", "--faint", "--point", "--found", "--ground"].map(color);
  const ratio = window.devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = LABEL + "px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeStyle = ground;
  const taken = [];
  const free = (box) => taken.every((other) =>
    box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
  const order = [...words.keys()].sort((a, b) => (found.has(b) || b === chosen) - (found.has(a) || a === chosen) || a - b);
  for (const index of [...order].reverse()) {
    const [x, y] = place(index), strong = found.has(index) || index === chosen;
    if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
    context.globalAlpha = strong ? 1 : found.size ? 0.35 : 0.7;
    context.fillStyle = strong ? mark : dot;
    context.beginPath();
    context.arc(x, y, strong ? 5 : 2.5, 0, 7);
    context.fill();
  }
  for (const index of order) {
    const [x, y] = place(index), strong = found.has(index) || index === chosen;
    if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
    const length = context.measureText(words[index]).width;
    const left = x + 6 + length > width ? x - 6 - length : x + 6;
    const box = [left, y - LABEL / 2, left + length, y + LABEL / 2];
    if (!strong && !free(box)) continue;
    taken.push(box);
    context.globalAlpha = found.size && !strong ? 0.4 : 1;
    context.fillStyle = strong ? mark : found.size ? faint : ink;
    context.strokeText(words[index], left, y);
    context.fillText(words[index], left, y);
  }
  context.globalAlpha = 1;
}

function show(index) {
  chosen = index;
  card.hidden = index < 0;
  if (index >= 0) {
    const name = document.createElement("b"), rest = document.createElement("span");
    name.dir = rest.dir = "auto";
    name.textContent = words[index];
    rest.textContent = "nearest: " + near[index].join(", ");
    card.replaceChildren(name, rest);
    const [x, y] = place(index);
    card.style.left = Math.max(4, Math.min(x + 14, width - card.offsetWidth - 4)) + "px";
    card.style.top = Math.max(4, Math.min(y + 14, height - card.offsetHeight - 4)) + "px";
  }
  draw();
}

function nearestTo(x, y) {
  let best = -1, least = REACH * REACH;
  for (let index = 0; index < words.length; index++) {
    const [px, py] = place(index), distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) [best, least] = [index, distance];
  }
  return best;
}

function zoom(factor, x, y) {
  isWhole = false;
  view = { scale: view.scale * factor, x: x + (view.x - x) * factor, y: y + (view.y - y) * factor };
  show(-1);
}

function look(text) {
  const wanted = text.trim().toLowerCase();
  found = new Set(wanted ? [...words.keys()].filter((index) => words[index].toLowerCase().includes(wanted)) : []);
  const exact = words.findIndex((word) => word.toLowerCase() === wanted);
  said.textContent = wanted ? (found.size ? found.size + " found" : "no such word on this map") : "";
  show(exact >= 0 ? exact : found.size === 1 ? [...found][0] : -1);
}

const held = new Map();
let moved = false;
const at = (event) => {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
};
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  held.set(event.pointerId, at(event));
  moved = false;
});
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = at(event), before = held.get(event.pointerId);
  if (!before) {
    const index = nearestTo(x, y);
    if (index !== chosen) show(index);
    return;
  }
  const others = [...held.entries()].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
  if (others.length) {
    const [ox, oy] = others[0];
    const apart = (px, py) => Math.max(Math.hypot(px - ox, py - oy), 1);
    zoom(apart(x, y) / apart(...before), ox, oy);
    moved = true;
  } else if (moved || Math.hypot(x - before[0], y - before[1]) > 3) {
    moved = true;
    isWhole = false;
    view.x += x - before[0];
    view.y += y - before[1];
    show(-1);
  } else {
    return;
  }
  held.set(event.pointerId, [x, y]);
});
const release = (event) => {
  const known = held.delete(event.pointerId);
  if (known && !moved && event.type === "pointerup") show(nearestTo(...at(event)));
};
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * 0.0015), ...at(event));
}, { passive: false });
search.addEventListener("input", () => look(search.value));
document.querySelector("button").addEventListener("click", () => { isWhole = true; fit(); show(-1); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => {
  const ratio = window.devicePixelRatio || 1;
  [width, height] = [canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  // A keyboard that opens on a phone must not undo a zoom.
  if (isWhole) fit();
  show(chosen);
}).observe(canvas);
if (location.hash) { search.value = decodeURIComponent(location.hash.slice(1)); fit(); look(search.value); }
"""


def word_map_page(words: Sequence[str], points: np.ndarray, near: Sequence[Sequence[str]], title: str) -> str:
    """The page for words at ``points [N, 2]``.

    Hovering over a word shows those of its row in ``near``. ``page.html#word`` searches for one.

    Words go into the page as JSON in which no tag can begin, and onto it as text only.
    """
    content = {"words": list(words), "points": np.round(points, 4).tolist(), "near": [list(each) for each in near]}
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>"
    )
    header = (
        f"<header><h1>{escape(title)}</h1>"
        '<input type="search" dir="auto" placeholder="search a word" aria-label="search a word">'
        '<button type="button">whole map</button><span id="said" role="status"></span></header>'
    )
    plane = '<div id="plane"><canvas></canvas><div id="card" hidden></div></div>'
    scripts = f'<script type="application/json" id="data">{data}</script>\n<script>{SCRIPT}</script>'
    body = f"{header}\n{plane}\n{scripts}"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'

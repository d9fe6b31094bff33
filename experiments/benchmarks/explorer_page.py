"""Size and speed of the explorer's page for the paper's base model, by the clock of a headless
Chromium.

    python experiments/benchmarks/explorer_page.py

The model is randomly initialized and reads random tokens, so its attention is diffuse; with
--sharpness=3 the weights are instead the softmax of normal scores of that standard deviation, which
compress worst. Needs Chromium (Debian: chromium).
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from transformer_jax.config import TransformerConfig
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readings import AttentionReading, Reading, TextReader, with_rollout

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from headless_chromium import Browser, headless_chromium

VOCABULARY = 37_000
VIEWS = ("matrix", "lines", "grid")
REPEATS = 15

# From a key to the next frame after what it drew, and the script's own part of that, in ms.
PRESS = """
new Promise((done) => {
  const start = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "%s", bubbles: true }));
  const script = performance.now() - start;
  requestAnimationFrame(() => { const channel = new MessageChannel();
    channel.port1.onmessage = () => done([script, performance.now() - start]); channel.port2.postMessage(0); });
})
"""


def read_by_base(tokens: int) -> list[AttentionReading]:
    """The readings of 6 layers of 8 heads, width 512, randomly initialized."""
    model = build_model(TransformerConfig(), VOCABULARY, VOCABULARY)
    params = jax.jit(partial(init_params, model))(jax.random.key(0))
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (2, tokens)).tolist()
    axes = dict.fromkeys(("source", "target", "input"), [""] * tokens)
    return TextReader(model)(params, "", "", axes, ids, with_gradients=False).attentions


def sharpened(reading: AttentionReading, sharpness: float, rng: np.random.Generator) -> AttentionReading:
    """The same with the weights of random scores."""
    scores = sharpness * rng.standard_normal(reading.weights.shape, dtype=np.float32)
    scores = np.where(reading.weights > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return replace(reading, weights=weights)


def page_of(readings: list[AttentionReading], tokens: int) -> str:
    """The page of one text; gradients are random."""
    rng = np.random.default_rng(1)
    pieces = [f"\u2581word{index}" for index in range(tokens)]
    axes = {"source": pieces, "target": pieces, "input": ["<s>", *pieces[:-1]]}
    gradients = {
        each.kind: rng.standard_normal((tokens, tokens)) * (each.weights[0, 0] > 0)
        for each in readings
        if each.kind != "encoder"
    }
    page = Page("base", [RunName("base", "update 0")])
    text = " ".join(pieces)
    readings = with_rollout(readings, depth=6)
    page.add_reading(Reading(text, text, axes, readings, gradients, [-1.0] * tokens), text=0, run=0)
    return page.html()


def measured(browser: Browser, address: str) -> dict[str, object]:
    """Milliseconds to the first view, and of switching heads and layers in every view."""
    found: dict[str, object] = {}
    firsts = []
    for _ in range(3):
        browser.open(f"{address}#view=matrix")
        firsts.append(browser.evaluate("performance.getEntriesByName('first view')[0].startTime"))
    found["first view"] = firsts
    for view in VIEWS:
        browser.open(f"{address}#view={view}")
        browser.evaluate("new Promise((done) => setTimeout(done, 3000))")
        for name, key in (("head", "ArrowRight"), ("layer", "ArrowDown")):
            times = [browser.evaluate(PRESS % key) for _ in range(REPEATS)]
            script, frame = zip(*times, strict=True)
            numbers = statistics.median(frame), max(frame), statistics.median(script)
            found[f"{name} in {view}"] = "{:.0f} ({:.0f}), script {:.0f}".format(*numbers)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--sharpness", type=float, default=0.0)
    options = parser.parse_args()
    readings = read_by_base(options.tokens)
    if options.sharpness:
        rng = np.random.default_rng(2)
        readings = [sharpened(each, options.sharpness, rng) for each in readings]
    start = time.perf_counter()
    html = page_of(readings, options.tokens)
    result: dict[str, object] = {
        "tokens": options.tokens,
        "sharpness": options.sharpness,
        "MB": len(html.encode()) / 1e6,
        "seconds to pack": time.perf_counter() - start,
    }
    with tempfile.TemporaryDirectory() as folder, headless_chromium() as browser:
        path = Path(folder) / "page.html"
        path.write_text(html, encoding="utf-8")
        result |= measured(browser, path.as_uri())
    print("| | |\n|---|---:|")
    for name, value in result.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()

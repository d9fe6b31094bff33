"""The page: data, packed arrays, style and script in one self-contained HTML file."""

import base64
import json
import zlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.models.inspection import ATTENTION_KINDS
from transformer_jax.tools.explorer.head_statistics import STATISTICS, HeadStatistics
from transformer_jax.tools.explorer.live import LiveModel, code_of_tour, live_script, worker_source
from transformer_jax.tools.explorer.readings import AttentionReading, Reading
from transformer_jax.tools.explorer.searches import Forced, Next, SearchTree

STEPS, SIGNED_STEPS = 255, 127
DEFLATE_LEVEL, WINDOW_BITS, MEMORY_LEVEL = 9, 15, 9
# The best one depends on how diffuse attention is.
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY)
# Smaller scales would enlarge the page; at this one a weight of 0.004 is stored to within 0.0002.
WEIGHT_SCALE = 1 / 3
TITLES = STATISTICS | {"alignment": "alignment error rate"}
LIVE_PARTS = ("session", "tour", "strip", "views")
NODE_FIELDS = ("parent", "position", "token", "piece", "log_prob", "rank", "status", "score", "divisor")


class RunName(NamedTuple):
    """A run on the page: the name of its folder, and the checkpoint."""

    name: str
    detail: str


class Page:
    """Collects the content of the page; ``html`` renders it.

    Arrays are quantized to 8 bits with square-root steps, deflated and base64-encoded; the page unpacks each on first use.
    """

    def __init__(self, title: str, runs: list[RunName], *, is_served: bool = False) -> None:
        self._packed: list[str] = []
        self._data: dict[str, Any] = {
            "title": title,
            "served": is_served,
            "runs": [run._asdict() for run in runs],
            "readings": [],
            "statistics": [],
        }

    def add_reading(self, reading: Reading, search: SearchTree | None = None, *, text: int, run: int) -> None:
        """Adds reading and search of text number ``text`` by run number ``run``; raises DataError for NaN or infinity."""
        if not reading.is_finite:
            name = self._data["runs"][run]["name"]
            raise DataError(f"text {text + 1}, {reading.text!r}: NaN or infinity in the model of {name}")
        self._data["readings"].append(
            {
                "text": text,
                "run": run,
                "source": reading.text,
                "translation": reading.translation,
                "tokens": reading.tokens,
                "logProbs": [round(value, 4) for value in reading.log_probs],
                "attentions": [self._attention(each) for each in reading.attentions],
                "tree": reading.tree,
                "search": None if search is None else search_to_json(search),
                "gradients": {
                    kind: self._add((ATTENTION_KINDS[kind].rows, ATTENTION_KINDS[kind].columns), array)
                    for kind, array in reading.gradients.items()
                },
            }
        )

    def add_statistics(self, statistics: Sequence[HeadStatistics], *, run: int) -> None:
        """Adds the head statistics of run number ``run``, one table each."""
        self._data["statistics"] += [
            {
                "run": run,
                "kind": each.kind,
                "title": TITLES[name],
                "source": each.source,
                "values": np.round(np.asarray(values, np.float64), 4).tolist(),
            }
            for each in statistics
            for name, values in each.values.items()
        ]

    def add_model(self, model: LiveModel, logits_error: float = 0.0) -> None:
        """Makes the page live with the ``model`` of the first run; add the first text's reading before."""
        own = {"block": len(self._packed), "code": code_of_tour(), "logitsError": logits_error}
        self._data["model"] = model.description | own
        self._packed.append(base64.b64encode(zlib.compress(model.parameters, DEFLATE_LEVEL)).decode("ascii"))

    def _attention(self, reading: AttentionReading) -> dict[str, Any]:
        rows, columns = reading.rows, reading.columns
        rollout = () if reading.rollout is None else reading.rollout
        return {
            "kind": reading.kind,
            "rows": rows,
            "columns": columns,
            "layers": len(reading.weights),
            "heads": reading.weights.shape[1],
            "weights": [self._add(("head", rows, columns), layer, WEIGHT_SCALE) for layer in reading.weights],
            "valueNorms": self._add(("layer", "head", columns), reading.value_norms),
            "valueCosines": [self._add(("pair", columns), layer) for layer in reading.value_cosines],
            "rollout": [self._add((rows, columns), layer, WEIGHT_SCALE) for layer in rollout],
        }

    def _add(self, axes: tuple[str, ...], values: np.ndarray, least_scale: float = 0.0) -> dict[str, Any]:
        """Packs an array; returns its description: axes, shape, largest magnitude, whether it is signed, block number."""
        steps, largest = quantized(values, least_scale)
        data = np.ascontiguousarray(steps).tobytes()
        deflate = [
            zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL, each) for each in STRATEGIES
        ]
        shortest = min((each.compress(data) + each.flush() for each in deflate), key=len)
        self._packed.append(base64.b64encode(shortest).decode("ascii"))
        return {
            "axes": list(axes),
            "shape": list(values.shape),
            "largest": largest,
            "signed": bool((values < 0).any()),
            "block": len(self._packed) - 1,
        }

    def html(self) -> str:
        """The whole file. It contains texts as JSON without ``<``, and shows them as text nodes, so none is read as HTML."""
        data = json.dumps(self._data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        blocks = "\n".join(
            f'<script type="text/plain" id="block-{number}">{packed}</script>'
            for number, packed in enumerate(self._packed)
        )
        html, style, script = (
            files("transformer_jax.tools.explorer").joinpath(f"page.{ending}").read_text(encoding="utf-8")
            for ending in ("html", "css", "js")
        )
        is_live = "model" in self._data
        scripts = [script, *(live_script(f"{name}.js") for name in LIVE_PARTS if is_live), "start();"]
        # Text that is never executed here: the page starts a worker from it.
        worker = f'<script type="text/plain" id="worker">\n{worker_source()}</script>\n'
        return Template(html).substitute(
            title=escape(self._data["title"]),
            style=style + live_script("live.css") if is_live else style,
            script="\n".join(scripts),
            worker=worker if is_live else "",
            workers="blob:" if is_live else "'none'",
            connections="'self'" if self._data["served"] else "'none'",
            data=data.replace("<", "\\u003c"),
            blocks=blocks,
        )


def quantized(values: np.ndarray, least_scale: float = 0.0) -> tuple[np.ndarray, float]:
    """Values as bytes, and their scale: the largest magnitude, at least ``least_scale``. Small values get fine steps.

    Without negative values a byte is ``round(255 sqrt(v / scale))``, else 128 plus the sign times
    ``round(127 sqrt(|v| / scale))``. An error is at most ``sqrt(v scale) / 255``, twice that with signs, plus a quarter step.
    """
    largest = float(np.abs(values).max(initial=least_scale))
    roots = np.sqrt(np.abs(values) / (largest or 1.0))
    if (values < 0).any():
        return (128 + np.sign(values) * np.rint(SIGNED_STEPS * roots)).astype(np.uint8), largest
    return np.rint(STEPS * roots).astype(np.uint8), largest


def search_to_json(tree: SearchTree) -> dict[str, Any]:
    """A search as JSON for the page: nodes are lists in the order of ``NODE_FIELDS``, followed by the next tokens."""
    nodes = [
        [*(_rounded(getattr(node, name)) for name in NODE_FIELDS), [_next_to_json(each) for each in node.following]]
        for node in tree.nodes
    ]
    return {
        "beamWidth": tree.beam_width,
        "lengthPenalty": tree.length_penalty,
        "fields": [*NODE_FIELDS, "following"],
        "first": [_next_to_json(each) for each in tree.first],
        "nodes": nodes,
        "hypotheses": tree.hypotheses(),
        "forced": {",".join(map(str, each.prefix)): forced_to_json(each) for each in tree.forced},
    }


def forced_to_json(forced: Forced) -> dict[str, Any]:
    """The result of a forced search."""
    return {"text": forced.text, "score": _rounded(forced.score), "logProb": _rounded(forced.log_prob)}


def _next_to_json(following: Next) -> list[Any]:
    return [following.token, following.piece, _rounded(following.log_prob)]


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value

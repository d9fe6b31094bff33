"""The page: data, packed arrays, style and script in one self-contained HTML file."""

import base64
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.head_statistics import STATISTICS, HeadStatistics
from transformer_jax.tools.explorer.live import LiveModel, code_of_tour, part_of_page, worker_source
from transformer_jax.tools.explorer.readings import AttentionReading, Reading, opening
from transformer_jax.tools.explorer.searches import Forced, Node, SearchTree

# Steps of a byte, without and with a sign.
STEPS = 255
SIGNED_STEPS = 127
# A weight up to 1 + ROUNDING is a rounding error, and a larger one is the attention's own.
ROUNDING = 1e-4
# The best compression that deflate has.
DEFLATE_LEVEL = 9
WINDOW_BITS = 15
MEMORY_LEVEL = 9
# The best strategy depends on how diffuse the attention is.
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY)
# Smaller scales would enlarge the page. At this one a weight of 0.004 is stored to within 0.0002.
WEIGHT_SCALE = 1 / 3
# One scale for the weights of all checkpoints, so that differences can be stored.
WEIGHT_SCALE_OF_CHECKPOINTS = 1.0
TITLES = STATISTICS | {"alignment": "alignment error rate"}
PAGE_PARTS = (
    *("data", "state", "matrices", "colors", "pens", "matrix_view", "lines_view", "heads_view", "search_view"),
    *("statistics_view", "inspector", "panels", "map", "controls", "export", "start"),
)
LIVE_PARTS = (
    *("session", "tour", "strip", "alternatives", "map_parts"),
    *("effects_view", "products_view", "vectors_view", "layers_view", "softmax_view", "live"),
)


class RunName(NamedTuple):
    """A run on the page: folder, checkpoint, and numbers of the layers by kind of attention."""

    name: str
    detail: str
    layers: Mapping[str, Sequence[int]] = {}


class Page:
    """The content of the page. ``html`` renders it.

    Arrays are quantized to 8 bits with square-root steps, deflated and base64-encoded. The page
    unpacks an array on first use. ``checkpoints``: update by run number, for the runs that are
    checkpoints of one run. Their weights are stored as differences to the run before, which has the
    same texts and targets.
    """

    def __init__(self, title: str, runs: list[RunName], checkpoints: Mapping[int, int] | None = None) -> None:
        self._packed: list[str] = []
        self._steps: dict[int, np.ndarray] = {}
        self._checkpoints = checkpoints or {}
        self._earlier: dict[tuple[int, str], dict[str, Any]] = {}
        self._weight_scale = WEIGHT_SCALE_OF_CHECKPOINTS if checkpoints else WEIGHT_SCALE
        self._data: dict[str, Any] = {
            "title": title,
            "runs": [run._asdict() for run in runs],
            "readings": [],
            "statistics": [],
        }
        if checkpoints:
            self._data["checkpoints"] = {"updates": checkpoints, "curves": []}

    def add_reading(
        self, reading: Reading, search: SearchTree | None = None, remarks: Sequence[str] = (), *, text: int, run: int
    ) -> None:
        """Add reading and search of text number ``text`` by run number ``run``.

        Checkpoints of a run are added in their order. ``remarks``: parts of the text that the model
        never saw. Raises DataError for NaN or infinity.
        """
        if not reading.is_finite:
            name = self._data["runs"][run]["name"]
            raise DataError(f"text {text + 1}, {reading.text!r}: NaN or infinity in the model of {name}")
        earlier = self._earlier if run in self._checkpoints else {}
        attentions = []
        for attention in reading.attentions:
            key = text, attention.kind
            earlier[key] = self._attention(attention, earlier.get(key))
            attentions.append(earlier[key])
        self._data.setdefault("opening", opening(reading))
        self._data["readings"].append(
            {
                "text": text,
                "run": run,
                "source": reading.text,
                "remarks": [*remarks],
                "translation": reading.translation,
                "tokens": reading.tokens,
                "logProbs": [round(value, 4) for value in reading.log_probs],
                "attentions": attentions,
                "tree": reading.tree,
                "search": None if search is None else search_to_json(search),
                "gradients": {kind: self._add(array) for kind, array in reading.gradients.items()},
            }
        )

    def add_curves(self, kind: str, title: str, values: Sequence[np.ndarray], *, text: int | None) -> None:
        """Add values [L, H] of the heads at all checkpoints, for one text, or for all if None."""
        curve = {"kind": kind, "title": title, "text": text, "values": np.round(np.stack(values), 4).tolist()}
        self._data["checkpoints"]["curves"].append(curve)

    def add_statistics(self, statistics: Sequence[HeadStatistics], *, run: int) -> None:
        """Add a table for each statistic of the heads of run number ``run``."""
        self._data["statistics"] += [
            {
                "run": run,
                "kind": table.kind,
                "title": TITLES[name],
                "source": table.source,
                "values": np.round(np.asarray(values, np.float64), 4).tolist(),
            }
            for table in statistics
            for name, values in table.values.items()
        ]

    def add_model(self, model: LiveModel, logits_error: float = 0.0) -> None:
        """Make the page live with the model of the first run, after its first reading."""
        details = {"block": len(self._packed), "code": code_of_tour(), "logitsError": logits_error}
        self._data["model"] = model.description | details
        self._packed.append(base64.b64encode(zlib.compress(model.parameters, DEFLATE_LEVEL)).decode("ascii"))

    def add_examples(self, texts: Sequence[str]) -> None:
        """Add texts that a live page offers."""
        self._data["examples"] = [*texts]

    def _attention(self, reading: AttentionReading, before: dict[str, Any] | None) -> dict[str, Any]:
        described: dict[str, Any] = {
            "kind": reading.kind,
            "rows": reading.rows,
            "columns": reading.columns,
            "layers": len(reading.weights),
            "heads": reading.weights.shape[1],
            "valueNorms": self._add(reading.value_norms),
            "valueCosines": [self._add(layer) for layer in reading.value_cosines],
        }
        for name, layers in {"weights": reading.weights, "rollout": reading.rollout}.items():
            blocks = [layer["block"] for layer in before[name]] if before else itertools.repeat(None)
            described[name] = [
                self._add(np.where(layer < 1 + ROUNDING, np.minimum(layer, 1.0), layer), self._weight_scale, block)
                for layer, block in zip(() if layers is None else layers, blocks, strict=False)
            ]
        return described

    def _add(self, values: np.ndarray, least_scale: float = 0.0, before: int | None = None) -> dict[str, Any]:
        """Pack an array, and return its largest magnitude, whether it is signed, and its block.

        ``before``: the block of an array of the same scale and shape, to store the difference.
        """
        steps, largest = quantized(values, least_scale)
        block = len(self._packed)
        if self._checkpoints and least_scale:
            self._steps[block] = steps
        data = np.ascontiguousarray(steps if before is None else steps - self._steps[before]).tobytes()
        deflate = [
            zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL, strategy)
            for strategy in STRATEGIES
        ]
        shortest = min((compressor.compress(data) + compressor.flush() for compressor in deflate), key=len)
        self._packed.append(base64.b64encode(shortest).decode("ascii"))
        return {
            "largest": largest,
            "signed": bool((values < 0).any()),
            "block": block,
            **({} if before is None else {"before": before}),
        }

    def html(self) -> str:
        """Return the whole file. Texts are JSON without ``<``, so that none is read as HTML."""
        data = json.dumps(self._data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        blocks = "\n".join(
            f'<script type="text/plain" id="block-{number}">{packed}</script>'
            for number, packed in enumerate(self._packed)
        )
        html, style = (part_of_page(f"page/page.{ending}") for ending in ("html", "css"))
        is_live = "model" in self._data
        parts = [f"page/{name}" for name in (*PAGE_PARTS, *(["training"] if "checkpoints" in self._data else []))]
        parts += [f"live/{name}" for name in LIVE_PARTS if is_live]
        scripts = [*(part_of_page(f"{name}.js").removeprefix('"use strict";\n') for name in parts), "start();"]
        # The page starts a worker from this text.
        worker = f'<script type="text/plain" id="worker">\n{worker_source()}</script>\n'
        return Template(html).substitute(
            title=escape(self._data["title"]),
            style=style + part_of_page("live/live.css") if is_live else style,
            script="\n".join(['"use strict";', *scripts]),
            worker=worker if is_live else "",
            workers="blob:" if is_live else "'none'",
            data=data.replace("<", "\\u003c"),
            blocks=blocks,
        )


def quantized(values: np.ndarray, least_scale: float = 0.0) -> tuple[np.ndarray, float]:
    """Return values as bytes, and their scale: the largest magnitude, at least ``least_scale``.

    Without negative values a byte is ``round(255 sqrt(v / scale))``, else 128 plus the sign times
    ``round(127 sqrt(|v| / scale))``. An error is at most ``sqrt(v scale) / 255`` (twice that with
    signs) plus a quarter step.
    """
    largest = float(np.abs(values).max(initial=least_scale))
    roots = np.sqrt(np.abs(values) / (largest or 1.0))
    if (values < 0).any():
        return (128 + np.sign(values) * np.rint(SIGNED_STEPS * roots)).astype(np.uint8), largest
    return np.rint(STEPS * roots).astype(np.uint8), largest


def search_to_json(tree: SearchTree) -> dict[str, Any]:
    """Return a search as JSON. Nodes are lists in the order of ``fields``."""
    return {
        "beamWidth": tree.beam_width,
        "lengthPenalty": tree.length_penalty,
        "fields": Node._fields,
        "first": _rounded(tree.first),
        "nodes": _rounded(tree.nodes),
        "hypotheses": tree.hypotheses(),
        "forced": {",".join(map(str, forced.prefix)): forced_to_json(forced) for forced in tree.forced},
    }


def forced_to_json(forced: Forced) -> dict[str, Any]:
    return {"text": forced.text, "score": _rounded(forced.score), "logProb": _rounded(forced.log_prob)}


def _rounded(value: Any) -> Any:
    """Round every number inside lists and tuples to four digits."""
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value

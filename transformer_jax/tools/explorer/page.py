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

STEPS, SIGNED_STEPS = 255, 127
ROUNDING = 1e-4
DEFLATE_LEVEL, WINDOW_BITS, MEMORY_LEVEL = 9, 15, 9
# The best one depends on how diffuse attention is.
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY)
# Smaller scales would enlarge the page; at this one a weight of 0.004 is stored to within 0.0002.
WEIGHT_SCALE = 1 / 3
# Of all weights of a page with checkpoints, so that they can be stored as differences.
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
    """A run on the page: the name of its folder, the checkpoint, and the numbers of the layers of each kind of attention."""

    name: str
    detail: str
    layers: Mapping[str, Sequence[int]] = {}


class Page:
    """Collects the content of the page; ``html`` renders it.

    Arrays are quantized to 8 bits with square-root steps, deflated and base64-encoded; the page
    unpacks each on first use. ``checkpoints``: update by run number, for the runs that are
    checkpoints of one run. Their weights are stored as differences to the run before, whose texts
    and targets are the same.
    """

    def __init__(
        self, title: str, runs: list[RunName], checkpoints: Mapping[int, int] | None = None, *, is_served: bool = False
    ) -> None:
        self._packed: list[str] = []
        self._steps: dict[int, np.ndarray] = {}
        self._checkpoints = checkpoints or {}
        self._earlier: dict[tuple[int, str], dict[str, Any]] = {}
        self._weight_scale = WEIGHT_SCALE_OF_CHECKPOINTS if checkpoints else WEIGHT_SCALE
        self._data: dict[str, Any] = {
            "title": title,
            "served": is_served,
            "runs": [run._asdict() for run in runs],
            "readings": [],
            "statistics": [],
        }
        if checkpoints:
            self._data["checkpoints"] = {"updates": checkpoints, "curves": []}

    def add_reading(
        self,
        reading: Reading,
        search: SearchTree | None = None,
        remarks: Sequence[str] = (),
        *,
        text: int,
        run: int,
    ) -> None:
        """Add reading and search of text number ``text`` by run number ``run``, checkpoints in their order.

        ``remarks``: on what the model never saw in the text.

        Raises DataError for NaN or infinity.
        """
        if not reading.is_finite:
            name = self._data["runs"][run]["name"]
            raise DataError(f"text {text + 1}, {reading.text!r}: NaN or infinity in the model of {name}")
        earlier = self._earlier if run in self._checkpoints else {}
        attentions = {each.kind: self._attention(each, earlier.get((text, each.kind))) for each in reading.attentions}
        earlier |= {(text, kind): each for kind, each in attentions.items()}
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
                "attentions": [*attentions.values()],
                "tree": reading.tree,
                "search": None if search is None else search_to_json(search),
                "gradients": {kind: self._add(array) for kind, array in reading.gradients.items()},
            }
        )

    def add_curves(self, kind: str, title: str, values: Sequence[np.ndarray], *, text: int | None) -> None:
        """Add values [L, H] of the heads at every checkpoint, in their order; of one text, or None for all."""
        curve = {"kind": kind, "title": title, "text": text, "values": np.round(np.stack(values), 4).tolist()}
        self._data["checkpoints"]["curves"].append(curve)

    def add_statistics(self, statistics: Sequence[HeadStatistics], *, run: int) -> None:
        """Add the head statistics of run number ``run``, one table each."""
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
        """Make the page live with the ``model`` of the first run; add the first text's reading before."""
        own = {"block": len(self._packed), "code": code_of_tour(), "logitsError": logits_error}
        self._data["model"] = model.description | own
        self._packed.append(base64.b64encode(zlib.compress(model.parameters, DEFLATE_LEVEL)).decode("ascii"))

    def add_examples(self, texts: Sequence[str]) -> None:
        """Add texts for a reader of a live page to choose from."""
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
            blocks = [each["block"] for each in before[name]] if before else itertools.repeat(None)
            # A weight may be a rounding error above 1; more than that is the attention's own.
            described[name] = [
                self._add(np.where(layer < 1 + ROUNDING, np.minimum(layer, 1.0), layer), self._weight_scale, block)
                for layer, block in zip(() if layers is None else layers, blocks, strict=False)
            ]
        return described

    def _add(self, values: np.ndarray, least_scale: float = 0.0, before: int | None = None) -> dict[str, Any]:
        """Packs an array; returns its description: largest magnitude, whether it is signed, block number.

        ``before``: the block of an array of the same scale and shape, to which the differences are stored.
        """
        steps, largest = quantized(values, least_scale)
        block = len(self._packed)
        if self._checkpoints and least_scale:
            self._steps[block] = steps
        data = np.ascontiguousarray(steps if before is None else steps - self._steps[before]).tobytes()
        deflate = [
            zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL, each) for each in STRATEGIES
        ]
        shortest = min((each.compress(data) + each.flush() for each in deflate), key=len)
        self._packed.append(base64.b64encode(shortest).decode("ascii"))
        return {
            "largest": largest,
            "signed": bool((values < 0).any()),
            "block": block,
            **({} if before is None else {"before": before}),
        }

    def html(self) -> str:
        """Return the whole file. It contains texts as JSON without ``<``, and shows them as text
        nodes, so none is read as HTML.
        """
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
        # Text that is never executed here: the page starts a worker from it.
        worker = f'<script type="text/plain" id="worker">\n{worker_source()}</script>\n'
        return Template(html).substitute(
            title=escape(self._data["title"]),
            style=style + part_of_page("live/live.css") if is_live else style,
            script="\n".join(['"use strict";', *scripts]),
            worker=worker if is_live else "",
            workers="blob:" if is_live else "'none'",
            connections="'self'" if self._data["served"] else "'none'",
            data=data.replace("<", "\\u003c"),
            blocks=blocks,
        )


def quantized(values: np.ndarray, least_scale: float = 0.0) -> tuple[np.ndarray, float]:
    """Values as bytes, and their scale: the largest magnitude, at least ``least_scale``. Small values get fine steps.

    Without negative values a byte is ``round(255 sqrt(v / scale))``, else 128 plus the sign times
    ``round(127 sqrt(|v| / scale))``. An error is at most ``sqrt(v scale) / 255``, twice that with
    signs, plus a quarter step.
    """
    largest = float(np.abs(values).max(initial=least_scale))
    roots = np.sqrt(np.abs(values) / (largest or 1.0))
    if (values < 0).any():
        return (128 + np.sign(values) * np.rint(SIGNED_STEPS * roots)).astype(np.uint8), largest
    return np.rint(STEPS * roots).astype(np.uint8), largest


def search_to_json(tree: SearchTree) -> dict[str, Any]:
    """Return a search as JSON for the page; nodes are lists in the order of ``fields``."""
    return {
        "beamWidth": tree.beam_width,
        "lengthPenalty": tree.length_penalty,
        "fields": Node._fields,
        "first": _rounded(tree.first),
        "nodes": _rounded(tree.nodes),
        "hypotheses": tree.hypotheses(),
        "forced": {",".join(map(str, each.prefix)): forced_to_json(each) for each in tree.forced},
    }


def forced_to_json(forced: Forced) -> dict[str, Any]:
    """Return the result of a forced search."""
    return {"text": forced.text, "score": _rounded(forced.score), "logProb": _rounded(forced.log_prob)}


def _rounded(value: Any) -> Any:
    """Return the value with every number in it rounded to four digits."""
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value

"""The page: data, packed arrays, style and script in one HTML file that asks no network for anything."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.head_statistics import STATISTICS, HeadStatistics
from transformer_jax.tools.explorer.packing import Blocks
from transformer_jax.tools.explorer.reading import AttentionReading, Reading
from transformer_jax.tools.explorer.search_tree import Forced, Next, SearchTree

# Where no weight of a layer is larger, finer steps would only make the page larger: 0.004 is stored to within 0.0002.
WEIGHT_SCALE = 1 / 3
TITLES = STATISTICS | {"alignment": "alignment error rate"}
NODE_FIELDS = ("parent", "position", "token", "piece", "log_prob", "rank", "status", "score", "divisor")


@dataclass(frozen=True)
class RunName:
    """What a run is called on the page: its folder, and which checkpoint."""

    name: str
    detail: str


class Page:
    """Collects what the page shows; ``html`` writes it."""

    def __init__(self, title: str, runs: list[RunName], *, is_served: bool = False) -> None:
        self._title = title
        self._blocks = Blocks()
        self._data: dict[str, Any] = {
            "title": title,
            "served": is_served,
            "runs": [{"name": run.name, "detail": run.detail} for run in runs],
            "readings": [],
            "statistics": [],
        }

    def add_reading(self, reading: Reading, search: SearchTree | None = None, *, text: int, run: int) -> None:
        """Adds what run number ``run`` reads in text number ``text``, and how it searched.

        Raises DataError where the reading has numbers that are not finite.
        """
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
                "search": None if search is None else search_to_json(search),
                "gradients": {kind: self._blocks.add(array) for kind, array in reading.gradients.items()},
            }
        )

    def add_statistics(self, statistics: Sequence[HeadStatistics], *, run: int) -> None:
        """Adds numbers of the heads of run number ``run``, a table each."""
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

    def _attention(self, reading: AttentionReading) -> dict[str, Any]:
        rollout = reading.rollout
        return {
            "kind": reading.kind,
            "rows": reading.rows,
            "columns": reading.columns,
            "layers": len(reading.weights.values),
            "heads": reading.weights.values.shape[1],
            "weights": self._blocks.add_layers(reading.weights, WEIGHT_SCALE),
            "valueNorms": self._blocks.add(reading.value_norms),
            "valueCosines": self._blocks.add_layers(reading.value_cosines),
            "rollout": [] if rollout is None else self._blocks.add_layers(rollout, WEIGHT_SCALE),
        }

    def html(self) -> str:
        """The whole file. Texts go into it as JSON in which no tag can begin, and onto the page as text only."""
        data = json.dumps(self._data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace(
            "<", "\\u003c"
        )
        blocks = "\n".join(
            f'<script type="text/plain" id="block-{number}">{packed}</script>'
            for number, packed in enumerate(self._blocks.packed)
        )
        return Template(part_of_page("page.html")).substitute(
            title=escape(self._title),
            style=part_of_page("page.css"),
            script=part_of_page("page.js"),
            connections="'self'" if self._data["served"] else "'none'",
            data=data,
            blocks=blocks,
        )


def search_to_json(tree: SearchTree) -> dict[str, Any]:
    """A search as the page has it: nodes as lists in the order of ``NODE_FIELDS``, following tokens as lists too."""
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
    """What a forced search found."""
    return {"text": forced.text, "score": _rounded(forced.score), "logProb": _rounded(forced.log_prob)}


def _next_to_json(following: Next) -> list[Any]:
    return [following.token, following.piece, _rounded(following.log_prob)]


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def part_of_page(name: str) -> str:
    """A source file of the page: ``page.html``, ``page.css`` or ``page.js``."""
    return files("transformer_jax.tools.explorer").joinpath(name).read_text(encoding="utf-8")

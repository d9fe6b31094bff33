"""How time and memory of beam search grow with the length of the output, the sentences of a batch,
and the beam.

    python experiments/benchmarks/decoding_cost.py

A randomly initialized model of 4 + 4 layers of width 128 and 8,000 words, sources of 16 tokens,
float32: 32 sentences, 4 beams, 25 tokens; then one of these is varied. Such a model ends no
sentence itself, so each has exactly 25 tokens. Expected, from the size in the middle: time and
memory in proportion to the tokens of all beams. Memory counts the largest arrays of the search,
keys, values and beams, and of one step's logits; parameters and temporaries are not in it. CPU
seconds are user + system, the median of ``--searches`` after one that compiles. Writes
decoding_cost.md and .png.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from step_cost import write_table

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import TransformerConfig
from transformer_jax.decoding.beam_search import Hypotheses, Rules, plain_search
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import Module, call, init_params
from transformer_jax.tasks.translation.translator import init_cache

RESULTS = Path(__file__).resolve().parent / "results"
VOCABULARY, SOURCE, MIB = 8000, 16, 2**20
SIZES = {"tokens": 25, "sentences": 32, "beams": 4}
AXES = {
    "tokens": (10, 25, 50, 100, 200, 400),
    "sentences": (1, 4, 16, 32, 128, 512),
    "beams": (1, 2, 4, 8, 16),
}
HEAD = "| varied | to | CPU s | as tokens grow | wall s | MiB |\n|---|---:|---:|---:|---:|---:|"


def main() -> None:
    """Measures every size, and writes the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=3, help="timed searches, after one more; at least 1")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    layers = {"num_encoder_layers": 4, "num_decoder_layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4}
    model = build_model(TransformerConfig(**layers), VOCABULARY, VOCABULARY)
    params = jax.jit(partial(init_params, model))(jax.random.key(0))
    rows = []
    for axis, values in AXES.items():
        for value in values:
            found = measured(model, params, arguments.searches, **(SIZES | {axis: value}))
            rows.append({"axis": axis, "value": value} | found)
            print(rows[-1], flush=True)
    write_table(arguments.output, "decoding_cost", table(rows))
    draw(rows, arguments.output / "decoding_cost.png")
    print(table(rows))


def measured(model: Module, params: PyTree, searches: int, *, tokens: int, sentences: int, beams: int) -> dict:
    """Seconds of one search, and the bytes of its largest state and logits; raises ValueError if a
    sentence ends early."""
    search = SegmentedSearch(
        partial(init_cache, model, beams),
        lambda params: partial(call, model, params, "decode_step"),
        plain_search(Rules(beams, 1, 0.6)),
    )
    sizes, run_segment = [0], search._run_segment

    def observed(params: PyTree, state: list[Array], *bounds: np.int32, **options: Any) -> list[Array]:
        sizes.append(sum(leaf.nbytes for leaf in state))
        return run_segment(params, state, *bounds, **options)

    search._run_segment = observed  # type: ignore[assignment]  # it only watches
    ids: Array = np.random.default_rng(0).integers(4, VOCABULARY, (sentences, SOURCE)).astype(np.int32)
    limits = np.full(sentences, tokens, np.int32)
    wall, cpu = [], []
    for _ in range(searches + 1):
        started, began = time.perf_counter(), sum(os.times()[:2])
        found: list[Hypotheses] = []
        batch = SearchBatch(np.arange(sentences), ids, limits, tokens)
        search.search(params, [batch], lambda _, hypotheses, found=found: found.append(hypotheses))
        wall.append(time.perf_counter() - started)
        cpu.append(sum(os.times()[:2]) - began)
        if any((hypotheses.lengths != tokens).any() for hypotheses in found):
            raise ValueError(f"a sentence has not {tokens} tokens: the model ends some itself")
    logits = sentences * beams * VOCABULARY * 4
    seconds = {"seconds": statistics.median(wall[1:]), "cpu_seconds": statistics.median(cpu[1:])}
    return seconds | {"bytes": max(sizes) + logits, "work": tokens * sentences * beams}


def expected(rows: Sequence[dict], key: str) -> list[float]:
    """Each number of an axis, had it grown with the tokens of all beams from the row in the middle
    on."""
    middle = rows[len(rows) // 2]
    return [middle[key] * row["work"] / middle["work"] for row in rows]


def table(rows: Sequence[dict]) -> str:
    """All rows."""
    lines = [HEAD]
    for axis in AXES:
        of_axis = [row for row in rows if row["axis"] == axis]
        for row, cpu in zip(of_axis, expected(of_axis, "cpu_seconds"), strict=True):
            numbers = f"{row['cpu_seconds']:.3f} | {cpu:.3f} | {row['seconds']:.3f} | {row['bytes'] / MIB:,.1f}"
            lines.append(f"| {axis} | {row['value']:,} | {numbers} |")
    return "\n".join([*lines, ""])


def draw(rows: Sequence[dict], path: Path) -> None:
    """A column for each axis: CPU time above, memory below, on logarithmic scales; dashed what was
    expected."""
    from growth_panels import Growth, draw_growth

    columns = {}
    for axis in AXES:
        of_axis = [row for row in rows if row["axis"] == axis]
        values = [row["value"] for row in of_axis]
        columns[axis] = [
            Growth(
                label, values, [row[key] / unit for row in of_axis], [each / unit for each in expected(of_axis, key)]
            )
            for label, key, unit in (("CPU seconds", "cpu_seconds", 1), ("MiB", "bytes", MIB))
        ]
    draw_growth(columns, "Beam search: measured (solid), expected (dashed)", path, gap=0.65)


if __name__ == "__main__":
    main()

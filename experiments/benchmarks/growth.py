"""How time and memory of a training step grow with tokens an update, length, depth and vocabulary,
beside what they should.

    python experiments/benchmarks/growth.py

A model of 2 + 2 layers of width 256, 8,000 words, 4,096 positions in rows of 64, in float32; then
one of these is varied. With the length the positions stay 8,192, and attention is blockwise.
Expected, from the size in the middle: time as the operations of the matrix products grow (also
those that a causal mask leaves out). Expected of memory: a straight line through the smallest and
the largest size, and with the length no growth at all, for scores are never whole. Each step is
compiled and timed in a process of its own. Writes growth.md and .png.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from step_cost import GIB, base_settings, measured_apart, rows_for, step_cost, write_table

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = {"tokens": 4096, "length": 64, "depth": 2, "vocabulary": 8000}
AXES = {
    "tokens": (1024, 2048, 4096, 8192, 16384),
    "length": (256, 512, 1024, 2048, 4096, 8192),
    "depth": (1, 2, 4, 8, 16),
    "vocabulary": (2000, 8000, 32_000, 128_000),
}
BESIDE = {"length": {"tokens": 8192}}
HEAD = (
    "| varied | to | s a step | as operations grow | temporaries GiB | parameters, optimizer and batch GiB |\n"
    "|---|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Starts a process for each size, and writes the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one more; at least 1")
    parser.add_argument("--axes", default=",".join(AXES), help="separated by commas")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(json.loads(arguments.measure), arguments.steps)))
        return
    rows = []
    for axis in arguments.axes.split(","):
        for value in AXES[axis]:
            sizes = json.dumps(SIZES | BESIDE.get(axis, {}) | {axis: value})
            found = measured_apart(__file__, f"--steps={arguments.steps}", f"--measure={sizes}")
            rows.append({"axis": axis, "value": value} | found)
            print(rows[-1], file=sys.stderr, flush=True)
    write_table(arguments.output, "growth", table(rows))
    draw(rows, arguments.output / "growth.png")
    print(table(rows))


def measured(sizes: dict[str, int], steps: int) -> dict:
    """One step of these sizes."""
    length = sizes["length"]
    rows = rows_for(sizes["tokens"], length)
    attention = {"model__attention_backend": "blockwise"} if length > SIZES["length"] else {}
    config = base_settings(
        model__num_encoder_layers=sizes["depth"],
        model__num_decoder_layers=sizes["depth"],
        model__d_model=256,
        model__d_ff=1024,
        model__num_heads=4,
        tokenizer__vocabulary_size=sizes["vocabulary"],
        data__max_source_tokens=length - 1,
        data__max_target_tokens=length - 1,
        batching__kind="buckets",
        batching__count="positions",
        batching__tokens_per_update=rows * length,
        batching__row_multiple=1,
        **attention,
    )
    return step_cost(config, rows, length, steps)


def expected(rows: Sequence[dict]) -> list[float]:
    """Seconds of each row of an axis, had time grown with the operations from the row in the middle
    on."""
    middle = rows[len(rows) // 2]
    return [middle["seconds"] * row["flops"] / middle["flops"] for row in rows]


def expected_memory(axis: str, values: Sequence[int], memory: Sequence[float]) -> list[float]:
    """A straight line through the first and the last size; where rows get longer, there are fewer
    of them: a constant."""
    if axis == "length":
        return [memory[0]] * len(values)
    slope = (memory[-1] - memory[0]) / (values[-1] - values[0])
    return [memory[0] + slope * (value - values[0]) for value in values]


def table(rows: Sequence[dict]) -> str:
    """All rows."""
    lines = [HEAD]
    for axis in dict.fromkeys(row["axis"] for row in rows):
        of_axis = [row for row in rows if row["axis"] == axis]
        for row, seconds in zip(of_axis, expected(of_axis), strict=True):
            memory = f"{row['temporaries'] / GIB:.2f} | {row['arguments'] / GIB:.2f}"
            lines.append(f"| {axis} | {row['value']:,} | {row['seconds']:.2f} | {seconds:.2f} | {memory} |")
    return "\n".join([*lines, ""])


def draw(rows: Sequence[dict], path: Path) -> None:
    """A column for each axis: time above, memory below, on logarithmic scales; dashed what was
    expected."""
    from growth_panels import Growth, draw_growth

    columns = {}
    for name in dict.fromkeys(row["axis"] for row in rows):
        of_axis = [row for row in rows if row["axis"] == name]
        values = [row["value"] for row in of_axis]
        memory = [(row["temporaries"] + row["arguments"]) / GIB for row in of_axis]
        columns[name] = [
            Growth("seconds a step", values, [row["seconds"] for row in of_axis], expected(of_axis)),
            Growth("GiB of the step", values, memory, expected_memory(name, values, memory)),
        ]
    draw_growth(columns, "A training step: measured (solid), expected (dashed)", path, gap=0.55)


if __name__ == "__main__":
    main()

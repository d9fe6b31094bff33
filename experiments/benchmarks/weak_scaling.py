"""What each device sends when devices are added and each keeps its share of positions: bytes of a
step's collectives.

    python experiments/benchmarks/weak_scaling.py

The step of the paper's base model is compiled for 1, 2, 4 and 8 pretended CPU devices, 1,024
positions more with each, split by rows (data), parameters (fsdp) and heads, widths and vocabulary
(tensor). Bytes are read from the compiled program. No time is measured: pretended devices share the
cores. Writes weak_scaling.md.
"""

import argparse
import json
from pathlib import Path

from step_cost import base_settings, measured_apart, rows_for, write_table

RESULTS = Path(__file__).resolve().parent / "results"
DEVICES = (1, 2, 4, 8)
LENGTH, POSITIONS, VOCABULARY = 64, 1024, 32_000
MIB = 2**20
HEAD = (
    "| split by | devices | all-reduce | all-gather | reduce-scatter | other | sent by a device, MiB | expected "
    "| state a device, MiB |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Starts a process for each number of devices and way to split, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure[0], int(arguments.measure[1]))))
        return
    rows = []
    for axis in ("data", "fsdp", "tensor"):
        for devices in DEVICES:
            rows.append(measured_apart(__file__, "--measure", axis, str(devices)))
            print(line(rows[-1]), flush=True)
    write_table(arguments.output, "weak_scaling", "\n".join([HEAD, *map(line, rows), ""]))


def measured(axis: str, devices: int) -> dict:
    """One program: its collectives, and what a device would send if nothing but the split itself
    cost anything."""
    from transformer_jax.tools.preflight.chips import open_topology
    from transformer_jax.tools.preflight.compiled_program import compile_program

    topology = open_topology(f"cpu:{devices}")
    sizes = {"data": 1, "fsdp": 1, "tensor": 1} | {axis: devices}
    rows = rows_for(POSITIONS, LENGTH, 8) * devices
    config = base_settings(
        tokenizer__vocabulary_size=VOCABULARY,
        data__max_source_tokens=LENGTH - 1,
        data__max_target_tokens=LENGTH - 1,
        batching__kind="buckets",
        batching__count="positions",
        batching__tokens_per_update=rows * LENGTH,
        batching__row_multiple=8,
        **{f"mesh__{name}": size for name, size in sizes.items()},
    )
    program = compile_program(config, topology, LENGTH)
    sent: dict[str, float] = {}
    for each in program.collectives:
        sent[each.kind] = sent.get(each.kind, 0.0) + each.wire_bytes
    hidden = rows * LENGTH * config.model.d_model * 4
    return {
        "axis": axis,
        "devices": devices,
        "rows": program.rows,
        "sent": sent,
        "expected": expected(axis, devices, program.parameters * 4, hidden),
        "state": program.parameter_bytes + program.state_bytes,
    }


def expected(axis: str, devices: int, parameters: int, hidden: int, layers: int = 6) -> float:
    """Bytes that a device sends in a ring.

    ``data``: the gradients are summed everywhere, 2 (n - 1) / n of them. ``fsdp``: the parameters
    are gathered forwards and again backwards, the gradients summed and scattered, (n - 1) / n each.
    ``tensor``: hidden states of all rows are summed twice forwards and twice backwards an encoder
    layer, three times a decoder layer, and the gradient of what the encoder gave once, 2 (n - 1) /
    n each; embeddings and loss are left out.
    """
    others = (devices - 1) / devices
    if axis == "tensor":
        return 2 * others * hidden * ((4 + 6) * layers + 1)
    return others * parameters * (2 if axis == "data" else 3)


def line(row: dict) -> str:
    """A row of the table."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter")
    others = sum(value for kind, value in row["sent"].items() if kind not in kinds)
    parts = [row["sent"].get(kind, 0.0) for kind in kinds] + [others]
    cells = " | ".join(
        f"{value / MIB:,.1f}" for value in (*parts, sum(row["sent"].values()), row["expected"], row["state"])
    )
    return f"| {row['axis']} | {row['devices']} | {cells} |"


if __name__ == "__main__":
    main()

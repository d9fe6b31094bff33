"""The measurements of ``gpu_day.sh`` as a table.

python experiments/benchmarks/gpu_day_table.py results/gpu_day
"""

import json
import sys
from pathlib import Path

GIB, TERA = 2**30, 1e12
HEAD = (
    "| step | positions | ms | by traffic | by products | of the bound | MFU | loss, first and last |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Prints what there is."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(Path(sys.argv[1]).glob("*.json"))}
    print(summary(found))


def summary(found: dict) -> str:
    """Every measurement that was made, for a reader."""
    lines = [f"Devices: {', '.join(found.get('devices', ['unknown']))}"]
    if speeds := found.get("calibration"):
        rates = ", ".join(f"{name} {rate / TERA:.0f} TFLOP/s" for name, rate in speeds["matmul_flops"].items())
        lines.append(f"Measured: {rates}, memory {speeds['memory_bandwidth'] / TERA:.3f} TB/s")
    lines += ["", HEAD]
    lines += [step_line(name, each) for name, each in found.items() if "share_of_bound" in each]
    for name, each in found.items():
        if "rooms" in each:
            lines += [
                "",
                f"{name}: {each['rows']} rows, {each['beam_width']} beams, {each['rows_per_second']:.1f} rows/s",
            ]
            lines += [
                f"- room {room['room']}: {room['step_seconds'] * 1e3:.2f} ms a step, "
                f"{room['memory_seconds'] * 1e3:.2f} by traffic"
                for room in each["rooms"]
            ]
        if "repeated_difference" in each:
            lines += ["", f"{name}: " + ", ".join(f"{key} {value}" for key, value in each.items())]
    lines += ["", *(attention_line(row) for row in found.get("attention", []))]
    return "\n".join(lines)


def step_line(name: str, row: dict) -> str:
    """A row of the table of training steps."""
    mfu = f"{row['mfu']:.0%}" if row["mfu"] is not None else f"{row['mfu_of_measured']:.0%} of measured"
    first, last = row["losses"]
    return (
        f"| {name} | {row['rows'] * row['length']:,} | {row['seconds'] * 1e3:.2f} | {row['memory_seconds'] * 1e3:.2f} "
        f"| {row['compute_seconds'] * 1e3:.2f} | {row['share_of_bound']:.0%} | {mfu} | {first:.3f}, {last:.3f} |"
    )


def attention_line(row: dict) -> str:
    """One mask at one length."""
    return (
        f"- attention, {row['mask']}, {row['length']}: differs by {row['difference']:.4f} "
        f"(einsum {row['einsum_difference']:.4f}), {row['seconds'] * 1e3:.2f} ms (einsum {row['einsum_seconds'] * 1e3:.2f})"
    )


if __name__ == "__main__":
    main()

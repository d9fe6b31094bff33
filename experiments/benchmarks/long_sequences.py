"""What a training step on long sequences needs, with every score at once and block by block.

    python experiments/benchmarks/long_sequences.py --lengths=512,1024,2048,4096,8192

Compiles the step of a small Transformer for one pair of each length, reads from the compiled
program what memory it needs, and runs it where that is below ``--run_below`` GiB. Each measurement
is a process of its own. Writes long_sequences.md.
"""

import argparse
import json
import resource
from pathlib import Path

from step_cost import GIB, measured_apart, step_cost, write_table

RESULTS = Path(__file__).resolve().parent / "results"
BACKENDS = ("einsum", "blockwise")
VOCABULARY = 8000
HEAD = "| length | attention | GiB by the compiler | GiB at most | s a step | loss |\n|---:|---|---:|---:|---:|---:|"


def main() -> None:
    """Starts a process for each measurement and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192")
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one more")
    parser.add_argument("--run_below", type=float, default=8.0, help="GiB that a program may need to be run")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(int(arguments.measure[0]), arguments.measure[1], arguments)))
        return
    rows = []
    for length in arguments.lengths.split(","):
        for backend in BACKENDS:
            options = [f"--steps={arguments.steps}", f"--run_below={arguments.run_below}"]
            rows.append(measured_apart(__file__, *options, "--measure", length, backend))
            print(line(rows[-1]), flush=True)
    write_table(arguments.output, "long_sequences", "\n".join([HEAD, *map(line, rows), ""]))


def measured(length: int, backend: str, arguments: argparse.Namespace) -> dict:
    """One length with one backend: memory of the compiled step, and its time if it is run."""
    from transformer_jax.config import ExperimentConfig, TransformerConfig
    from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig

    config = ExperimentConfig(
        data=DataConfig(max_source_tokens=length - 1, max_target_tokens=length - 1),
        tokenizer=TokenizerConfig(vocabulary_size=VOCABULARY),
        batching=BatchingConfig(kind="buckets", tokens_per_update=length, row_multiple=1),
        model=TransformerConfig(
            num_encoder_layers=2, num_decoder_layers=2, d_model=256, d_ff=1024, num_heads=4, attention_backend=backend
        ),
    )
    cost = step_cost(config, 1, length, arguments.steps, run_below=arguments.run_below)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    return {"length": length, "backend": backend, "peak_gib": peak} | cost


def line(row: dict) -> str:
    """A row of the table."""
    needed = (row["temporaries"] + row["arguments"]) / GIB
    ran = (
        f"{row['peak_gib']:.2f} | {row['seconds']:.2f} | {row['losses'][-1]:.3f}"
        if "seconds" in row
        else "not run | - | -"
    )
    return f"| {row['length']:,} | {row['backend']} | {needed:.2f} | {ran} |"


if __name__ == "__main__":
    main()

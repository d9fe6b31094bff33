"""What a training step on long sequences needs, with every score at once and block by block.

    python experiments/benchmarks/long_sequences.py --lengths=512,1024,2048,4096,8192

Compiles the step of a small Transformer for one pair of each length, reads from the compiled program what memory it needs, and
runs it where that is below ``--run_below`` GiB. Each measurement is a process of its own. Writes long_sequences.json and .md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
BACKENDS = ("einsum", "blockwise")
VOCABULARY = 8000
GIB = 2**30


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
            command = [sys.executable, __file__, *options, "--measure", length, backend]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(line(rows[-1]), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "long_sequences.json").write_text(json.dumps(rows, indent=1) + "\n")
    head = (
        "| length | attention | GiB by the compiler | GiB at most | s a step | loss |\n|---:|---|---:|---:|---:|---:|"
    )
    (arguments.output / "long_sequences.md").write_text("\n".join([head, *map(line, rows), ""]))


def measured(length: int, backend: str, arguments: argparse.Namespace) -> dict:
    """One length with one backend: memory of the compiled step, and its time if it is run."""
    import jax
    import numpy as np

    from transformer_jax.config import ExperimentConfig, TransformerConfig, numbers_of
    from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
    from transformer_jax.sequence_types import Batch, Tokens
    from transformer_jax.tasks.objective import TranslationObjective
    from transformer_jax.training.sharding import make_mesh, put_batch, put_numbers
    from transformer_jax.training.update import Update

    config = ExperimentConfig(
        data=DataConfig(max_source_tokens=length - 1, max_target_tokens=length - 1),
        tokenizer=TokenizerConfig(vocabulary_size=VOCABULARY),
        batching=BatchingConfig(kind="buckets", tokens_per_update=length, row_multiple=1),
        model=TransformerConfig(
            num_encoder_layers=2, num_decoder_layers=2, d_model=256, d_ff=1024, num_heads=4, attention_backend=backend
        ),
    )
    mesh = make_mesh(config.mesh)
    objective = TranslationObjective(config, VOCABULARY, VOCABULARY, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (2, 1, length)).astype(np.int32)
    batch = put_batch(Batch(*map(Tokens.from_ids, ids)), mesh)
    compiled = update.lower(batch).compile()
    memory = compiled.memory_analysis()
    needed = (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / GIB
    row = {"length": length, "backend": backend, "compiled_gib": needed, "jax": jax.__version__}
    if needed > arguments.run_below:
        return row
    state, numbers = update.initial_state(config.seed), put_numbers(numbers_of(config), mesh)
    seconds, loss = [], 0.0
    for _ in range(1 + arguments.steps):
        started = time.perf_counter()
        state, metrics = compiled(state, batch, numbers)
        loss = float(metrics.sums.nll) / length
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    return row | {"peak_gib": peak, "seconds": sorted(seconds[1:])[len(seconds[1:]) // 2], "loss": loss}


def line(row: dict) -> str:
    """A row of the table."""
    ran = f"{row['peak_gib']:.2f} | {row['seconds']:.2f} | {row['loss']:.3f}" if "seconds" in row else "not run | - | -"
    return f"| {row['length']:,} | {row['backend']} | {row['compiled_gib']:.2f} | {ran} |"


if __name__ == "__main__":
    main()

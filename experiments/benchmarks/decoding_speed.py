"""How long does a trained model translate a text: with programs to compile, and with all compiled?

    python experiments/benchmarks/decoding_speed.py --workdir=runs/m30k --input=test_2016.en --config.decoding.beam_width=5

Prints, for every pass over the lines, wall seconds, CPU seconds (user + system) and lines a second; loading the model is not
counted. ``--output`` writes the translations, to compare those of two versions.
"""

import argparse
import os
import time
from pathlib import Path

from transformer_jax.config import resolve
from transformer_jax.data.text_files import read_lines
from transformer_jax.runtime.compilation_cache import start_jax
from transformer_jax.tasks.translation.trained_run import open_trained_run


def main() -> None:
    """Translates the lines several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--input", required=True, help="sentences, one a line, plain, .gz or .xz")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--cache", default="", help="folder of compiled programs; none: the first pass compiles")
    parser.add_argument("--output", type=Path)
    arguments, overrides = parser.parse_known_args()
    stated = [tuple(each.removeprefix("--config.").split("=", 1)) for each in overrides]
    config = resolve(arguments.workdir, stated)
    if arguments.cache:
        start_jax(arguments.cache)
    run = open_trained_run(arguments.workdir, config, checkpoint=arguments.checkpoint)
    lines = list(read_lines(Path(arguments.input)))
    for number in range(1, arguments.passes + 1):
        started, cpu = time.perf_counter(), sum(os.times()[:2])
        found = run.translator.translate(run.params, lines)
        wall, cpu = time.perf_counter() - started, sum(os.times()[:2]) - cpu
        print(
            f"pass {number}: {len(lines):,} lines, {wall:.1f} s, {cpu:.1f} CPU s, {len(lines) / wall:.1f} lines/s",
            flush=True,
        )
    if arguments.output:
        arguments.output.write_text("".join(f"{best[0].text}\n" for best in found), encoding="utf-8")


if __name__ == "__main__":
    main()

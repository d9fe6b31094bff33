"""What do whole commands cost: one line, half of a text, all of it; here and in CTranslate2?

    transformer-jax export --workdir=runs/m30k --format=ctranslate2 --output=m30k-ct2
    cat multi30k/test_2016.en multi30k/test_2017.en > captions.en
    python experiments/benchmarks/first_words.py --workdir=runs/m30k --source=captions.en --ctranslate2=m30k-ct2

Prints CPU seconds (wall seconds in parentheses) of each command, the median of ``--commands`` in
turn after one that is not counted, and the cost of each further 1,000 lines; then the ratios to
CTranslate2 float32. Other arguments, such as ``--config.decoding.stop=first_beams``, which is the
rule of CTranslate2, go to ``transformer-jax translate``. Where ``PYTHONDONTWRITEBYTECODE`` is set,
bytecode that set-up did not write is compiled every time.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from decoding_speed import cost_of

from transformer_jax.config import config_for_use
from transformer_jax.data.text_files import read_lines


def main() -> None:
    """Times all commands in turn, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--source", required=True, help="sentences, one a line, plain, .gz or .xz")
    parser.add_argument("--ctranslate2", help="folder that export wrote")
    parser.add_argument("--compute_types", default="float32,int8", help="of CTranslate2")
    parser.add_argument("--commands", type=int, default=5)
    arguments, overrides = parser.parse_known_args()
    lines = list(read_lines(Path(arguments.source)))
    decoding = config_for_use(
        arguments.workdir, [tuple(flag.removeprefix("--config.").split("=", 1)) for flag in overrides]
    ).decoding
    sizes = 1, len(lines) // 2, len(lines)
    with tempfile.TemporaryDirectory() as folder:
        commands: dict[tuple[str, int], list[str]] = {}
        for size in sizes:
            source = Path(folder) / f"{size}.txt"
            source.write_text("".join(f"{line}\n" for line in lines[:size]), encoding="utf-8")
            ours = [sys.executable, "-m", "transformer_jax", "translate", f"--workdir={arguments.workdir}", *overrides]
            commands["ours", size] = [*ours, f"--source={source}", f"--output={os.devnull}"]
            for compute_type in arguments.compute_types.split(",") if arguments.ctranslate2 else ():
                program = str(Path(__file__).with_name("ctranslate2_command.py"))
                options = [f"--beam={decoding.beam_width}", f"--penalty={decoding.length_penalty}"]
                options += [f"--extra={decoding.max_extra_tokens}", f"--compute_type={compute_type}"]
                files = [arguments.ctranslate2, str(source), os.devnull]
                commands[f"CTranslate2 {compute_type}", size] = [sys.executable, program, *files, *options]
        costs: dict[tuple[str, int], list[tuple[float, float]]] = {key: [] for key in commands}
        for _ in range(arguments.commands + 1):
            for key, command in commands.items():
                wall, cpu, _ = cost_of(command)
                costs[key].append((cpu, wall))
    medians = {
        key: tuple(statistics.median(column) for column in zip(*runs[1:], strict=True)) for key, runs in costs.items()
    }
    names = list(dict.fromkeys(name for name, _ in commands))
    print(f"| CPU s (wall s) | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for size in sizes:
        cells = [f"{medians[name, size][0]:.2f} ({medians[name, size][1]:.2f})" for name in names]
        print(f"| {size:,} line{'s' if size > 1 else ''} | {' | '.join(cells)} |")
    _, half, whole = sizes
    further = {name: 1000 * (medians[name, whole][0] - medians[name, half][0]) / (whole - half) for name in names}
    print(f"| each further 1,000 | {' | '.join(f'{further[name]:.2f}' for name in names)} |")
    if "CTranslate2 float32" in names:
        wall = medians["CTranslate2 float32", whole][1] / medians["ours", whole][1]
        cpu = further["CTranslate2 float32"] / further["ours"]
        print(
            f"speed over CTranslate2 float32: {wall:.2f} by wall time of all lines, {cpu:.2f} by CPU of further lines"
        )


if __name__ == "__main__":
    main()

"""CPU seconds and BLEU of whole commands that translate a file: a table and a picture.

    python experiments/students/frontier.py --source=test_2016.en --references=test_2016.de \
        "teacher, beam 5=transformer_jax translate --workdir=runs/teacher" \
        "CTranslate2 int8, beam 5=ctranslate2 teacher-ct2 --beam=5 --penalty=0.6 --compute_type=int8" ...

Each argument is NAME=COMMAND. A command that begins with ``transformer_jax`` gets ``--source`` and
``--output``; one that begins with ``ctranslate2`` runs
``experiments/benchmarks/ctranslate2_command.py`` with its folder and both files. All commands run
in turn, ``--rounds`` times after ``--warm_up`` that are not counted. CPU seconds are user + system
of the process, the median of the rounds, for 1,000 lines; start-up is included. BLEU and its
difference from the first command have 95 % intervals by paired bootstrap resampling. The table
counts the parameters of each run; a CTranslate2 folder must be an export of the run of the first
command.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.data.text_files import read_lines
from transformer_jax.evaluation.significance import compare_systems
from transformer_jax.tools.pictures import canvas

HERE = Path(__file__).resolve().parent
CTRANSLATE2 = HERE.parent / "benchmarks" / "ctranslate2_command.py"


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm_up", type=int, default=1, help="rounds that are not counted: the first compiles")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "frontier.png")
    arguments = parser.parse_args()
    commands = dict(each.split("=", 1) for each in arguments.commands)
    result = measure(commands, arguments.source, arguments.references, arguments.rounds, arguments.warm_up)
    print(table(result))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw(result, arguments.output)


def measure(commands: dict[str, str], source: Path, references: Path, rounds: int, warm_up: int = 1) -> dict:
    """CPU seconds of every round, and BLEU with its interval, by name."""
    wanted = list(read_lines(references))
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    outputs: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        for number in range(rounds + warm_up):
            for name, command in commands.items():
                spent = cpu_seconds(arguments_of(command, source, output))
                print(f"round {number}, {name}: {spent:.2f} CPU s", flush=True)
                seconds[name] += [spent] * (number >= warm_up)
                outputs[name] = list(read_lines(output))
    found = {}
    for name, lines in outputs.items():
        bleu = compare_systems(next(iter(outputs.values())), lines, wanted)[0]
        is_ctranslate2 = commands[name].startswith("ctranslate2 ")
        found[name] = {
            "command": commands[name],
            "parameters": parameters_of(next(iter(commands.values())) if is_ctranslate2 else commands[name]),
            "cpu_seconds": seconds[name],
            "bleu": [bleu.second.value, bleu.second.lower, bleu.second.upper],
            "difference": [bleu.difference.value, bleu.difference.lower, bleu.difference.upper],
        }
    return {"lines": len(wanted), "load": os.getloadavg()[0], "signature": bleu.signature, "systems": found}


def arguments_of(command: str, source: Path, output: Path) -> list[str]:
    """The whole command line."""
    program, *rest = shlex.split(command)
    if program == "ctranslate2":
        folder, *flags = rest
        return [sys.executable, str(CTRANSLATE2), folder, str(source), str(output), *flags]
    return [sys.executable, "-m", program, *rest, f"--source={source}", f"--output={output}"]


def parameters_of(command: str) -> int:
    """The number of parameters of the run in ``--workdir=``."""
    (workdir,) = (word.removeprefix("--workdir=") for word in shlex.split(command) if word.startswith("--workdir="))
    return json.loads((Path(workdir) / "run.json").read_text(encoding="utf-8"))[-1]["parameters"]


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system seconds of a process; raises RuntimeError when it fails."""
    process = os.posix_spawn(command[0], list(command), os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{shlex.join(command)} ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def per_thousand(system: dict, lines: int) -> float:
    """The median of CPU seconds for 1,000 lines."""
    return statistics.median(system["cpu_seconds"]) * 1000 / lines


def table(result: dict) -> str:
    """Markdown."""
    rows = [
        "| | parameters | CPU s for 1,000 captions | BLEU (95 %) | difference (95 %) |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, each in result["systems"].items():
        bleu, difference = ("{:.2f} ({:.2f} to {:.2f})".format(*each[key]) for key in ("bleu", "difference"))
        cost = f"{each['parameters'] / 1e6:.2f} million | {per_thousand(each, result['lines']):.2f}"
        rows.append(f"| {name} | {cost} | {bleu} | {difference} |")
    return "\n".join(rows)


def draw(result: dict, path: Path) -> None:
    """BLEU with its interval against CPU seconds and against parameters, a point for each
    system."""
    figure = canvas.blank_figure(11.3, 4.0)
    seconds = {name: per_thousand(each, result["lines"]) for name, each in result["systems"].items()}
    millions = {name: each["parameters"] / 1e6 for name, each in result["systems"].items()}
    cost = f"CPU seconds for 1,000 captions, whole command on {result['lines']:,} (log scale)"
    panels = [(0.6, 4.6, seconds, cost), (5.7, 2.6, millions, "million parameters")]
    markers = "osD^vP*X<>hd"
    for left, width, costs, label in panels:
        axes = canvas.add_panel(figure, left, 0.5, width, 2.9)
        for number, (name, each) in enumerate(result["systems"].items()):
            value, lower, upper = each["bleu"]
            axes.errorbar(
                costs[name],
                value,
                yerr=[[value - lower], [upper - value]],
                color=canvas.LINE_COLORS[number % len(canvas.LINE_COLORS)],
                marker=markers[number % len(markers)],
                markersize=5,
                linewidth=0.8,
                linestyle="none",
                label=name,
            )
        canvas.style_axes(axes, label, "BLEU" if costs is seconds else "")
        if costs is seconds:
            axes.set_xscale("log")
            ticks = [each * 10**power for power in range(-1, 3) for each in (1, 1.5, 2, 3, 5)]
            axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
        axes.set_xlim(min(costs.values()) / 1.2, max(costs.values()) * 1.2)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.02, 0.5), prop=canvas.font(7.5), frameon=False, labelcolor=canvas.INK
    )
    canvas.add_title(figure, "Quality against cost of whole commands", 10)
    canvas.write_png(figure, path)


if __name__ == "__main__":
    main()

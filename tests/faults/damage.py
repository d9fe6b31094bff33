"""Every kind of file of a run, damaged in every way, and every command that reads it.

    python tests/faults/damage.py > damage.md            (about nine CPU minutes)
    python tests/faults/damage.py --kinds log outcome

A case is one file and one damage: a flipped bit, a digit, a cut, a missing file, a folder or a link
to another file in its place. ``resume`` must reach the undisturbed run bit for bit, and the other
commands must print what they print of it, or they must report the fault. A change without a report
is wrong, and so are a traceback and a hang. Prints the bad cases and a table; exit status 1 if a
case is bad.
"""

import argparse
import hashlib
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from judges import FRAMES, judge
from kinds import FILES, apply_damage
from processes import Hanging, run_command_here
from subjects import UPDATES, bound, copy_of, cut_at, resumed, undisturbed_run

RESULTS = {
    "outcome": "run/outcome.json",
    "evaluation": "run/evaluation-*.json",
    "translations": "run/evaluation-*.txt",
}
DAMAGES = "flipped bit", "digit", "truncated", "removed", "folder", "link"
COMMANDS = {
    "report": ("report", "RUN", "--output=OUT"),
    "compare": ("compare", "RUN/evaluation-test-24.txt", "RUN/evaluation-test-24-beam_width=1.txt", "--output=OUT"),
    "explore": ("explore", "--workdir=RUN", "--text=3 5 7", "--output=OUT/page.html"),
    "translate": ("translate", "--workdir=RUN", "--source=TEXT"),
    "evaluate": ("evaluate", "--workdir=RUN", "--split=test"),
    "checkpoint info": ("checkpoint", "info", "RUN"),
}
COMPARED = "evaluation", "translations", "settings", "tokenizer"
"""Kinds of files that ``compare`` reads."""
# Seconds, rates and folders differ from run to run.
VARIES = re.compile(r"\d+(\.\d+)? (s|seconds|minutes)\b|[\d,.]+ tokens/s|tokens/s +[\d,.]+|/\S*/(case|transformer)/")
SECONDS = 120.0


def damaged_file(file: Path, damage: str, rng: random.Random) -> bool:
    """Damages a file; False where that changes nothing."""
    before = file.read_bytes()
    if damage == "link":
        file.unlink()
        file.symlink_to("/etc/hostname")
    elif damage == "digit":
        places = [index for index, byte in enumerate(before) if chr(byte) in "0123456789"]
        if not places or b"\0" in before:
            return False
        index = rng.choice(places)
        file.write_bytes(before[:index] + str((int(before[index : index + 1]) + 5) % 10).encode() + before[index + 1 :])
    else:
        apply_damage(file, damage, rng)
    return not file.is_file() or file.read_bytes() != before


def printed(name: str, case: Path) -> tuple[int, str]:
    """The status and the output of a command for the run of a case."""
    names = {"RUN": case / "run", "OUT": case / "out", "TEXT": case / "text"}
    arguments = [re.sub("RUN|OUT|TEXT", lambda word: str(names[word[0]]), each) for each in COMMANDS[name]]
    (case / "out").mkdir(exist_ok=True)
    status, output = run_command_here(arguments, SECONDS)
    page = case / "out" / "page.html"
    if name == "explore" and page.is_file():
        output += f"page {hashlib.sha256(VARIES.sub('', page.read_text(encoding='utf-8')).encode()).hexdigest()}\n"
        page.unlink()
    return status, output


def normalized(output: str) -> list[str]:
    """The lines of an output, without what varies from run to run."""
    return [VARIES.sub("", line).rstrip() for line in output.splitlines()]


def verdict_of(name: str, case: Path, file: Path, expected: str) -> tuple[str, str]:
    """``harmless``, ``told`` or a bad verdict, and what was printed."""
    try:
        status, output = printed(name, case)
    except Hanging:
        return "hang", ""
    if FRAMES.search(output):
        return "traceback", output[-1500:]
    if normalized(output) == normalized(expected):
        return "harmless", ""
    is_named = any(part in output for part in (file.name, file.parent.name)) or "damaged" in output
    if status or is_named:
        return ("told", "") if output.strip() else ("wrong", f"status {status} without a word")
    return "wrong", output[-1500:]


def cases(kinds: list[str], reference: Path, rng: random.Random) -> Iterator[tuple[str, str, Path]]:
    """A kind, a damage and the case with it; the relative path of the file is in ``damaged``."""
    for kind in kinds:
        for damage in DAMAGES:
            case = copy_of(reference, reference.parent / "case")
            files = sorted(file for file in case.glob((FILES | RESULTS)[kind]) if file.is_file())
            if not files:
                continue
            file = rng.choice(files)
            if damaged_file(file, damage, rng):
                yield kind, damage, file


def resume_verdict(case: Path, reference: Path, file: Path, kind: str) -> tuple[str, str]:
    """``resume`` of a run that stopped after two thirds of its updates."""
    cut_at(UPDATES * 2 // 3, case / "run")
    before = file.exists()
    try:
        end = resumed("transformer", case, bound(reference))
    except Hanging:
        return "hang", ""
    verdict = judge(*end, case / "run", reference / "run", is_log_damaged=kind == "log")
    if verdict.kind == "resumed":
        return ("told" if file.name in end[1] or not before else "harmless"), ""
    return ("told" if verdict.kind == "refused" else verdict.kind), verdict.detail


def prepared(root: Path) -> Path:
    """A run with two evaluations, and text to translate."""
    reference = undisturbed_run("transformer", root)
    (reference / "text").write_text("3 5 7\n9 4\n", encoding="utf-8")
    for flags in ((), ("--config.decoding.beam_width=1",)):
        status, output = run_command_here(["evaluate", f"--workdir={reference / 'run'}", "--split=test", *flags])
        if status:
            raise SystemExit(output)
    return reference


def main() -> int:
    """Runs all cases; 1 where one is bad."""
    everything = [*FILES, *RESULTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=everything, choices=everything)
    parser.add_argument("--commands", nargs="*", default=[*COMMANDS, "resume"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, counts = random.Random(arguments.seed), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        reference = prepared(Path(folder))
        expected = {name: printed(name, reference)[1] for name in COMMANDS}
        for kind, damage, file in cases(arguments.kinds, reference, rng):
            case = reference.parent / "case"
            for name in arguments.commands:
                if (name == "compare" and kind not in COMPARED) or (name == "resume" and kind in RESULTS):
                    continue
                if name == "resume":
                    verdict, detail = resume_verdict(case, reference, file, kind)
                else:
                    verdict, detail = verdict_of(name, case, file, expected[name])
                counts[kind, verdict] += 1
                if verdict not in ("told", "harmless"):
                    print(f"{verdict}: {name}, {file.relative_to(case)}, {damage}: {detail}\n", file=sys.stderr)
    bad = sorted({verdict for _, verdict in counts} - {"told", "harmless"})
    heads = ["file", "told", "harmless", *bad]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for kind in arguments.kinds:
        print(f"| {kind} | {' | '.join(str(counts[kind, each]) for each in heads[1:])} |")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

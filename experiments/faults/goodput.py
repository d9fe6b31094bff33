"""What kills cost: goodput of a run under ``kill -9`` every so many seconds, beside the undisturbed one.

    python experiments/faults/goodput.py runs/goodput --every 0 600 120 -- --config=configs/multi30k.py:tiny \\
        --config.data.directory=multi30k --config.training.num_updates=1200 --config.training.checkpoint_every=40

Everything after ``--`` goes to ``train``. The time to a kill is drawn by the seed, evenly between half and one and a half times
the given one. What a process did after it last wrote ``goodput.json`` is missing there, and counted by the clock. Runs follow
each other in folders of their own, and share the cache of compiled programs.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

MOST_KILLS_AT_THE_START = 5
KINDS = ("step", "lost", "start_up", "compile", "data_wait", "evaluation", "checkpoint")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=float, nargs="+", default=[0.0, 600.0, 120.0], help="seconds; 0 for never")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("settings", nargs="+", help="flags of train")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for every in arguments.every:
        workdir = arguments.folder / f"every-{every:.0f}"
        kills, seconds = trained(arguments.settings, workdir, every, random.Random(arguments.seed))
        found = json.loads((workdir / "goodput.json").read_text())
        rows.append((every, kills, seconds, found))
        print(table(rows), flush=True)
    return 0


def trained(settings: list[str], workdir: Path, every: float, rng: random.Random) -> tuple[int, float]:
    """Trains to the end; the number of kills and the seconds by the clock."""
    if workdir.exists():
        raise SystemExit(f"{workdir} exists; name another folder")
    command = [sys.executable, "-m", "transformer_jax", "train", f"--workdir={workdir}", *settings]
    kills, began = 0, time.monotonic()
    with workdir.with_suffix(".log").open("a") as log:
        while True:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                status = process.wait(every * rng.uniform(0.5, 1.5) if every else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                if kills >= MOST_KILLS_AT_THE_START and not (workdir / "goodput.json").is_file():
                    raise SystemExit(f"no update in {kills} starts; let --every be longer") from None
                continue
            if status:
                raise SystemExit(f"train ended with status {status}; see {log.name}")
            return kills, time.monotonic() - began


def table(rows: list[tuple[float, int, float, dict]]) -> str:
    """Markdown: by run the kills, seconds by the clock, goodput, and the seconds of each kind, as ``goodput.json`` has them."""
    heads = ["kill every, s", "kills", "seconds", "goodput", "by the clock", *KINDS]
    lines = [f"| {' | '.join(heads)} |", f"|{'---:|' * len(heads)}"]
    for every, kills, seconds, found in rows:
        spent = " | ".join(f"{found['seconds'].get(kind, 0.0):.1f}" for kind in KINDS)
        share = found["seconds"]["step"] / seconds
        lines.append(f"| {every:.0f} | {kills} | {seconds:.0f} | {found['goodput']:.1%} | {share:.1%} | {spent} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Seconds from the command to the end of the first training update, with nothing cached and once
more with everything cached.

    python experiments/benchmarks/startup.py --config=configs/multi30k.py:tiny --config.data.directory=multi30k

Arguments that are not listed below go to ``transformer-jax train`` as they are. The cache directory
(tokenized data and compiled programs) is fresh and empty for the first run and what the first left
for the second; run directories are new.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.01


def main() -> None:
    """Starts the training twice and prints both times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="recipe, as for train")
    arguments, overrides = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = {
            name: measure_start(arguments.config, overrides, Path(folder) / "cache", Path(folder) / name)
            for name in ("cold cache", "warm cache")
        }
    print("| seconds from the command to | cold cache | warm cache |\n|---|---:|---:|")
    for event in measured["cold cache"]:
        print(f"| {event} | {measured['cold cache'][event]:.1f} | {measured['warm cache'][event]:.1f} |")


def measure_start(config: str, overrides: list[str], cache: Path, workdir: Path) -> dict[str, float]:
    """Seconds until the dry run of evaluation and saving was done, and until the first update was
    made and logged.

    Raises RuntimeError with what the run said when it ended before its first update.
    """
    command = [
        sys.executable,
        "-m",
        "transformer_jax",
        "train",
        f"--config={config}",
        f"--workdir={workdir}",
        *overrides,
    ]
    command += [f"--config.data.cache_directory={cache}", "--config.training.log_every=1"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    said: list[tuple[float, str]] = []
    listener = threading.Thread(target=_listen, args=(process, said, began))
    listener.start()
    log, first_update = workdir / "metrics.jsonl", None
    while first_update is None and process.poll() is None:
        if log.is_file() and "train/loss" in log.read_text():
            first_update = time.monotonic() - began
        time.sleep(POLL_SECONDS)
    # What was measured is over; the rest of the training is of no interest.
    process.terminate()
    status = process.wait()
    listener.join()
    if status not in (0, 128 + signal.SIGTERM) or first_update is None:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}:\n" + "".join(line for _, line in said))
    dry_run = next((when for when, line in said if "dry run" in line), float("nan"))
    return {"end of the dry run": dry_run, "end of the first update": first_update}


def _listen(process: subprocess.Popen, said: list[tuple[float, str]], began: float) -> None:
    """Notes when every line of the training's output came."""
    for line in process.stdout or ():
        said.append((time.monotonic() - began, line))


if __name__ == "__main__":
    main()

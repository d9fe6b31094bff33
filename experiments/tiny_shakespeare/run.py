"""Tiny Shakespeare: a row of results for each run, and the trials behind the recipe.

    python experiments/tiny_shakespeare/run.py TEXT RUNS recipe --flag=--budget=3m --seeds=1,2,3
    python experiments/tiny_shakespeare/run.py TEXT RUNS nanogpt

TEXT is input.txt, plain or .gz: the first 1,003,854 characters are trained on, the last 111,540
scored. A finished run is not repeated. Appends to ``--output`` (results/runs.jsonl) the flags,
updates, CPU seconds, and nats a character.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHARACTERS = {"train": 1_003_854, "validation": 111_540}
# A line feed is the EOS of a line, so a token is a character.
OF_CHARACTERS = ("tokenizer.kind=byte", "data.documents=lines")
# github.com/karpathy/nanoGPT, README, "I only have a macbook"; departures: README.md.
OF_NANOGPT = (
    *OF_CHARACTERS,
    *("model.num_layers=4", "model.d_model=128", "model.num_heads=4", "batching.context_length=64"),
    *("batching.tokens_per_update=768", "batching.row_multiple=12", "training.num_updates=2000"),
    "decoding.max_new_tokens=32",
    *("model.dropout=0", "model.embedding_dropout=0", "model.positions=learned", "model.feed_forward=gelu"),
    *("optimizer.name=adamw", "optimizer.learning_rate=1e-3", "optimizer.schedule=cosine", "optimizer.b2=0.99"),
    *("optimizer.warmup_updates=100", "optimizer.weight_decay=0.1", "optimizer.clip_norm=1"),
    *("training.evaluate_every=500", "training.checkpoint_every=500"),
)
SETTINGS = {"recipe": (), "characters": OF_CHARACTERS, "nanogpt": OF_NANOGPT}


def split(text: Path, folder: Path) -> dict[str, Path]:
    """Write the two parts of the text; return their files."""
    with gzip.open(text) if text.suffix == ".gz" else open(text, "rb") as file:
        whole = file.read()
    if len(whole) != sum(CHARACTERS.values()):
        raise SystemExit(f"{text}: {len(whole):,} bytes, not the {sum(CHARACTERS.values()):,} of Tiny Shakespeare")
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": whole[: CHARACTERS["train"]], "validation": whole[CHARACTERS["train"] :]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_bytes(part)
    return {name: folder / f"{name}.txt" for name in parts}


def train(files: dict[str, Path], folder: Path, settings: list[str], flags: list[str]) -> float:
    """Train, and return CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = [f"--config.data.{name}={file}" for name, file in files.items()]
    stated = [f"--config.{each}" for each in settings]
    command = [sys.executable, "-m", "transformer_jax", "train", "--config=language_model", *data, *stated, *flags]
    with open(f"{folder}.log", "w", encoding="utf-8") as log:
        subprocess.run([*command, f"--workdir={folder}"], stdout=log, stderr=log, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def result(folder: Path) -> dict[str, Any]:
    """Evaluate the last checkpoint on all of the validation text; return the score and the size of
    the run."""
    command = [sys.executable, "-m", "transformer_jax", "evaluate", f"--workdir={folder}", "--split=validation"]
    subprocess.run([*command, "--checkpoint=last"], stdout=subprocess.DEVNULL, check=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))[-1]
    scores = json.loads(next(folder.glob("evaluation-validation-*.json")).read_text(encoding="utf-8"))
    if scores["num_bytes"] != CHARACTERS["validation"]:
        raise SystemExit(f"{folder}: {scores['num_bytes']:,} characters were scored")
    seconds = sum(json.loads((folder / "goodput.json").read_text(encoding="utf-8"))["seconds"].values())
    return {
        "run": folder.name,
        "parameters": record["parameters"],
        "updates": scores["checkpoint_step"],
        "tokens_per_update": config["batching"]["tokens_per_update"],
        "context_length": config["batching"]["context_length"],
        "dropout": config["model"]["dropout"],
        "minutes": round(seconds / 60, 1),
        "bits_per_byte": round(scores["bits_per_byte"], 4),
        "nats_per_character": round(scores["nll"] / scores["num_bytes"], 4),
        "commit": record["git_commit"][:8],
    }


def main() -> None:
    """Train what is asked for, and write a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("settings", choices=SETTINGS)
    parser.add_argument("--name", help="of the run; default: the settings")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE")
    parser.add_argument("--flag", action="append", default=[], help="of train, such as --flag=--budget=3m")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "runs.jsonl")
    asked = parser.parse_args()
    files = split(asked.text, asked.runs / "text")
    for seed in asked.seeds.split(","):
        folder = asked.runs / f"{asked.name or asked.settings}-seed{seed}"
        if (folder / "outcome.json").exists():
            continue
        settings = [*SETTINGS[asked.settings], *asked.set, f"seed={seed}"]
        cpu_seconds = train(files, folder, settings, asked.flag)
        row = result(folder) | {"cpu_seconds": round(cpu_seconds), "settings": settings, "flags": asked.flag}
        with open(asked.output, "a", encoding="utf-8") as output:
            output.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

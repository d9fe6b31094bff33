"""Does own text train well by default? The recipe ``text`` on several corpora, with several budgets
and seeds.

    python experiments/own_text/run.py DATA RUNS [--corpora=m30k_en_fr,tanaka_en_ja] [--budgets=3,10,30] [--seeds=1,2,3] \\
        [--set=KEY=VALUE ...] [--flag=FLAG ...]

DATA holds the corpora below; a finished run is not repeated. Prints a row for each run: the best
validation, the lowest entropy of a cross-attention head as a share of ln n, and what the run said
of itself. ``--set`` states settings for all, ``--flag`` further flags of ``train``
(``--flag=--budget_policy=stretch``).
"""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

from transformer_jax.runs.metrics_log import read_metrics

# Training text and validation text, and the languages; "no spaces": words of the target are written
# together.
CORPORA = {
    "m30k_en_de": ("multi30k/train", "multi30k/val", "en", "de"),
    "m30k_en_fr": ("multi30k/train", "multi30k/val", "en", "fr"),
    "tatoeba_de_en": ("tatoeba_de_en/train", "tatoeba_de_en/valid", "de", "en"),
    "tatoeba_en_de": ("tatoeba_de_en/train", "tatoeba_de_en/valid", "en", "de"),
    "pydocs_en_fr": ("pydocs_en_fr/train", "pydocs_en_fr/valid", "en", "fr"),
    "wmt_en_de": ("wmt_en_de_10k/train", "wmt_en_de_10k/newstest2013", "en", "de"),
    "tanaka_en_ja": ("tanaka_en_ja/train", "tanaka_en_ja/dev", "en", "ja"),
}
NO_SPACES = {"ja"}


def text_files(data: Path, scratch: Path, stem: str, source: str, target: str) -> str:
    """``a.{en,de}.gz``; for a language that is written without spaces a copy in ``scratch``."""
    if not NO_SPACES & {source, target}:
        return f"{data / stem}.{{{source},{target}}}.gz"
    for language in (source, target):
        copy = scratch / f"{stem.replace('/', '-')}.{language}.gz"
        if not copy.exists():
            with gzip.open(f"{data / stem}.{language}.gz", "rt", encoding="utf-8") as file:
                text = file.read()
            copy.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(copy, "wt", encoding="utf-8") as file:
                file.write(text.replace(" ", "") if language in NO_SPACES else text)
    return f"{scratch / stem.replace('/', '-')}.{{{source},{target}}}.gz"


def train(arguments: argparse.Namespace, corpus: str, budget: str, seed: str) -> Path:
    """Trains, unless that was done; the folder of the run."""
    train_stem, valid_stem, *languages = CORPORA[corpus]
    folder = Path(arguments.runs) / f"{corpus}-{budget}m-seed{seed}"
    outcome = folder / "outcome.json"
    if outcome.exists() and json.loads(outcome.read_text(encoding="utf-8"))["reason"] == "finished":
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    data, scratch = Path(arguments.data), Path(arguments.runs) / "text"
    command = [
        *(sys.executable, "-m", "transformer_jax", "train", "--config=text", f"--workdir={folder}"),
        f"--budget={budget}m",
        f"--config.seed={seed}",
        f"--config.data.train={text_files(data, scratch, train_stem, *languages)}",
        f"--config.data.validation={text_files(data, scratch, valid_stem, *languages)}",
        *(f"--config.{each}" for each in arguments.set),
        *arguments.flag,
    ]
    with open(f"{folder}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    return folder


def result(folder: Path) -> str:
    """A row of the table."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
    outcome = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
    found = [each for each in read_metrics(folder / "metrics.jsonl") if "validation/loss" in each]
    key = outcome["metric"] if outcome["metric"] in found[-1] else f"validation/{outcome['metric']}"
    best = max(found, key=lambda each: each.get(key) or 0.0)
    seconds = sum(json.loads((folder / "goodput.json").read_text(encoding="utf-8"))["seconds"].values())
    layers = f"{config['model']['num_encoder_layers']}+{config['model']['num_decoder_layers']}"
    size = f"{layers} x {config['model']['d_model']}, {config['batching']['tokens_per_update']} tokens"
    scores = (
        f"{best.get('validation/bleu', 0):.2f} | {best.get('validation/chrf', 0):.2f} | {best['validation/loss']:.3f}"
    )
    entropy = f"{found[-1].get('validation/cross_attention_entropy', 0):.2f}"
    said = "; ".join(outcome.get("signs", ())) or "nothing"
    return f"| {folder.name} | {size} | {outcome['step']:,} | {seconds / 60:.1f} | {scores} | {entropy} | {said} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("runs")
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--budgets", default="3,10,30")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--flag", action="append", default=[])
    asked = parser.parse_args()
    columns = ("run", "model", "updates", "minutes", "BLEU", "chrF", "loss", "entropy", "signs")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for name in asked.corpora.split(","):
        for minutes in asked.budgets.split(","):
            for number in asked.seeds.split(","):
                print(result(train(asked, name, minutes, number)), flush=True)

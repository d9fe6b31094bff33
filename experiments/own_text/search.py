"""Are hand-tuned settings better? Random ones against the recipe ``text``, the best again with a
longer budget.

    python experiments/own_text/search.py DATA RUNS --corpus=tanaka_en_ja [--trials=20] [--budgets=3,10] [--finalists=4]

Each trial states model, rate, dropout, batch, vocabulary and label smoothing; the budget determines
the number of updates. The first budget trains all trials, each further one the ``finalists`` of the
best BLEU besides trial 0, which is the recipe. Prints a row for each run: BLEU, chrF and loss of
all validation sentences, with beam search. A finished run is not repeated.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from run import CORPORA, train


def drawn_settings(trial: int) -> list[str]:
    """Settings of a trial, a function of its number; none for trial 0."""
    if not trial:
        return []
    chance = random.Random(trial)
    width = chance.choice([96, 128, 160, 192])
    settings = {
        "model.num_encoder_layers": chance.randint(1, 3),
        "model.num_decoder_layers": chance.randint(1, 3),
        "model.d_model": width,
        "model.d_ff": width * chance.choice([2, 3, 4]),
        "optimizer.learning_rate": round(0.0013 * (0.0058 / 0.0013) ** chance.random(), 5),
        "model.dropout": chance.choice([0.05, 0.1, 0.15, 0.2]),
        "batching.tokens_per_update": chance.choice([512, 768, 1024, 1536]),
        "tokenizer.vocabulary_size": chance.choice([3000, 4000, 6000, 8000]),
        "training.label_smoothing": chance.choice([0.0, 0.1]),
    }
    return [f"{name}={value}" for name, value in settings.items()]


def scores(folder: Path, plugins: list[str]) -> dict[str, float]:
    """BLEU, chrF, loss ... of all validation sentences."""
    if not list(folder.glob("evaluation-validation-*.json")):
        command = [sys.executable, "-m", "transformer_jax", "evaluate", f"--workdir={folder}", "--split=validation"]
        subprocess.run([*command, "--examples=0", *plugins], check=True, stdout=subprocess.DEVNULL)
    (report,) = folder.glob("evaluation-validation-*.json")
    return json.loads(report.read_text(encoding="utf-8"))["metrics"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("runs")
    parser.add_argument("--corpus", choices=CORPORA, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--budgets", default="3,10")
    parser.add_argument("--finalists", type=int, default=4)
    parser.add_argument("--flag", action="append", default=[], help="a further flag of train")
    asked = parser.parse_args()
    trials = range(asked.trials + 1)
    print("| trial | budget | updates | BLEU | chrF | loss | settings |\n|---|---|---|---|---|---|---|")
    for budget in asked.budgets.split(","):
        bleu = {}
        for trial in trials:
            settings = drawn_settings(trial)
            each = argparse.Namespace(
                data=asked.data, runs=Path(asked.runs) / f"trial-{trial}", set=settings, flag=asked.flag
            )
            folder = train(each, asked.corpus, budget, seed="1")
            found = scores(folder, [flag for flag in asked.flag if flag.startswith("--plugin=")])
            bleu[trial] = found["bleu"]
            step = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))["step"]
            numbers = f"{step:,} | {found['bleu']:.2f} | {found['chrf']:.2f} | {found['loss']:.3f}"
            print(f"| {trial} | {budget}m | {numbers} | {', '.join(settings) or 'the recipe'} |", flush=True)
        best = sorted(set(trials) - {0}, key=lambda trial: -bleu[trial])[: asked.finalists]
        trials = [0, *best]

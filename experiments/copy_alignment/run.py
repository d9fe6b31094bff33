"""Do the attentions learn to copy sentences of up to 30 letters, and do they walk along the
diagonal while they do?

    python experiments/copy_alignment/run.py --runs=runs/copy

Trains the recipes of configs/seq2seq.py on ``copy``, and with other attentions in their place,
translates the test split and sentences of exactly 30 letters, and measures how many are copied
exactly and how far from the diagonal the model looks. Writes table.md and diagonal.png to
``--output`` after each model. What is trained in ``--runs`` is not trained again.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

from transformer_jax.config import load_run_config
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.synthetic.symbols import SYMBOLS
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tools.explorer.soft_alignment import SoftAlignment, soft_alignments
from transformer_jax.tools.pictures.attention_maps import draw_attention

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "configs" / "seq2seq.py"
RECIPES = ("bahdanau", "luong_dot", "luong_general", "luong_concat", "luong_local_p", "location_sensitive", "sutskever")
# Attentions that no recipe has, in the place of another.
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    **{name: (name, {}) for name in RECIPES},
    "scaled_dot": ("luong_dot", {"attention": "scaled_dot"}),
    "normalized_additive": ("bahdanau", {"attention": "normalized_additive"}),
    "location": ("luong_general", {"attention": "location"}),
    "local_m": ("luong_general", {"attention": "local_m"}),
    "cumulative_location_sensitive": ("location_sensitive", {"attention": "cumulative_location_sensitive"}),
}
DRAWN = "location_sensitive"
LONG, LONG_SENTENCES = 30, 300


def main() -> None:
    """Trains, measures, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the run directories")
    parser.add_argument("--models", default=",".join(MODELS), help="separated by commas")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"--models: {unknown[0]!r} is none of {', '.join(MODELS)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in names:
        run, (recipe, settings) = arguments.runs / name, MODELS[name]
        overrides = [f"--config.model.{key}={value}" for key, value in settings.items()]
        command = ["train", f"--config={RECIPE}:{recipe}_copy", f"--workdir={run}", *overrides]
        subprocess.run([sys.executable, "-m", "transformer_jax", *command], check=True, stdout=sys.stderr)
        results[name] = measured(run, arguments.output / "diagonal.png" if name == DRAWN else None)
        (arguments.output / "table.md").write_text(table(results))
    print(table(results))


def measured(run: Path, picture: Path | None) -> dict:
    """What the best checkpoint of a run does with the test split."""
    config = load_run_config(run)
    trained = open_trained(ChosenRun(str(run), config))
    sentences = [pair.source for pair in open_corpus(config.data, config.data_seed).pairs(config.data.test_split)]
    long_sentences = sentences_of(LONG, LONG_SENTENCES)
    start = json.loads((run / "run.json").read_text())[0]
    result = {
        "sentences": len(sentences),
        "exact": exact(trained, sentences),
        "long_exact": exact(trained, long_sentences),
        "updates": config.training.num_updates,
        "checkpoint": trained.steps[-1],
        "parameters": start["parameters"],
        "commit": start["git_commit"],
    }
    if config.model.attention == "none":
        return result
    alignments = soft_alignments(trained, sentences, sentences)
    if picture:
        example = max(alignments, key=lambda alignment: len(alignment.source_pieces))
        pieces = example.target_pieces, example.source_pieces
        draw_attention(
            {"decoder": example.weights[None]}, *pieces, picture, title="location-sensitive attention, copying"
        )
    return result | {"diagonality": diagonality(alignments), "places_from_diagonal": distance(alignments)}


def sentences_of(letters: int, count: int) -> list[str]:
    """Random sentences of ``letters`` letters; there are far too many for one to have been in the
    training data."""
    rng = random.Random(0)
    return [" ".join(rng.choices(SYMBOLS, k=letters)) for _ in range(count)]


def exact(trained: TrainedRun, sentences: list[str]) -> float:
    """The share of sentences that are copied without a mistake."""
    copies = [best[0].text for best in trained.task.translator.translate(trained.params, sentences)]
    return float(np.mean([copy == sentence for copy, sentence in zip(copies, sentences, strict=True)]))


def diagonality(alignments: list[SoftAlignment]) -> float:
    """Share of target words that attend most to the word at their own place."""
    hits = [each.weights[:-1, :-1].argmax(1) == np.arange(len(each.weights) - 1) for each in alignments]
    return float(np.concatenate(hits).mean())


def distance(alignments: list[SoftAlignment]) -> float:
    """Mean distance, in places, between target place i and what it attends to: sum over j of a_ij
    |i - j|."""
    places = []
    for each in alignments:
        weights = each.weights[:-1]
        far = np.abs(np.arange(len(weights))[:, None] - np.arange(weights.shape[1])[None, :])
        places.append((weights * far).sum(1))
    return float(np.concatenate(places).mean())


def table(results: dict[str, dict]) -> str:
    """The table for a reader."""
    lines = [
        f"| model | parameters | exact | exact, {LONG} letters | argmax on the diagonal | places from it | updates |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in results.items():
        where = f"{row['diagonality']:.1%} | {row['places_from_diagonal']:.2f}" if "diagonality" in row else "- | -"
        scores = f"{row['exact']:.1%} | {row['long_exact']:.1%}"
        lines.append(f"| {name} | {row['parameters']:,} | {scores} | {where} | {row['updates']:,} |")
    commits = ", ".join(sorted({row["commit"] for row in results.values()}))
    return "\n".join(
        [
            *lines,
            "",
            f"{next(iter(results.values()))['sentences']} held-out sentences of 1 to {LONG} letters, and {LONG_SENTENCES} "
            f"of exactly {LONG}. Commit {commits}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()

"""What is compared: scores by length, sizes, and where one sentence's words look."""

import json
from pathlib import Path

import jax
import numpy as np

from transformer_jax.config import load_run_config
from transformer_jax.data.corpora import open_corpus
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.explorer.soft_alignment import SoftAlignment, soft_alignments

# A sentence of the test split whose German order differs from the English one; source and
# reference.
EXAMPLE = (
    "A woman holding a bowl of food in a kitchen.",
    "Eine Frau, die in einer Küche eine Schale mit Essen hält.",
)
# Source words, both ends in the bin; no sentence of the split is longer.
BINS = ((1, 8), (9, 11), (12, 14), (15, 18), (19, 40))


def bleu_by_length(run: Path, translations: Path) -> list[dict]:
    """BLEU of the sentences of the test split in each bin of source length, counted in words."""
    config = load_run_config(run)
    pairs = list(open_corpus(config.data, config.data_seed).pairs(config.data.test_split))
    hypotheses = translations.read_text(encoding="utf-8").split("\n")[:-1]
    lengths = np.array([len(pair.source.split()) for pair in pairs])
    found = []
    for shortest, longest in BINS:
        chosen = np.flatnonzero((shortest <= lengths) & (lengths <= longest))
        scores = score_translations([hypotheses[i] for i in chosen], [pairs[i].target for i in chosen])
        found.append({"from": shortest, "to": longest, "sentences": len(chosen), "bleu": scores.values["bleu"]})
    return found


def describe(run: Path, report: dict, budget: dict) -> dict:
    """The row of a model."""
    start = json.loads((run / "run.json").read_text())[0]
    return {
        "parameters": start["parameters"],
        "commit": start["git_commit"],
        "updates": budget["updates"],
        "target_tokens_per_second": budget["target_tokens_per_second"],
        "bleu": report["scores"]["bleu"],
        "chrf": report["scores"]["chrf"],
        "perplexity": report["perplexity"],
        "checkpoint": report["checkpoint_step"],
        "signature": report["scores"]["bleu_signature"],
    }


def sentence_alignment(run: Path, pair: tuple[str, str]) -> tuple[SoftAlignment]:
    """Cross attention of a trained model on one pair, the mean over the heads of the last layer but
    one."""
    trained = open_trained(ChosenRun(str(run), load_run_config(run)))
    return tuple(soft_alignments(trained, [pair[0]], [pair[1]]))


def write_table(results: dict[str, dict], minutes: float, path: Path) -> None:
    """The table for a reader."""
    bins = next(iter(results.values()))["bleu_by_length"]
    heads = " | ".join(f"{each['from']}-{each['to']} ({each['sentences']})" for each in bins)
    lines = [
        f"As many updates each as fit into {minutes:g} minutes at the speed measured before (tokens/s), "
        f"{len(jax.devices())} device ({jax.devices()[0].platform}).",
        "",
        f"| model | parameters | tokens/s | updates | BLEU | chrF | perplexity | BLEU of {heads} |",
        "|---|---:|---:|---:|---:|---:|---:|" + "---:|" * len(bins),
    ]
    for name, row in results.items():
        lengths = " | ".join(f"{each['bleu']:.1f}" for each in row["bleu_by_length"])
        speed, quality = row["target_tokens_per_second"], f"{row['bleu']:.2f} | {row['chrf']:.2f}"
        lines.append(
            f"| {name} | {row['parameters']:,} | {speed:,.0f} | {row['updates']:,} | {quality} "
            f"| {row['perplexity']:.2f} | {lengths} |"
        )
    commits = ", ".join(sorted({row["commit"] for row in results.values()}))
    signatures = ", ".join(sorted({row["signature"] for row in results.values()}))
    path.write_text("\n".join([*lines, "", f"BLEU: {signatures}. Commit {commits}.", ""]), encoding="utf-8")

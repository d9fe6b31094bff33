"""The quality that longer blocks and fewer negatives cost, and the time they save: skip-gram, one
epoch each, one run each.

    python experiments/word_vectors/trade_offs.py --vary=words --data=enwiki.txt.xz --output=runs/trade_offs \
        --test_sets=word_similarity/questions-words.txt,word_similarity/word-sim

``--vary=words`` in a block, of always as many an update, draws block_size.png; ``--vary=negatives``
shared by a row shared_negatives.png. Prints the rows.
"""

import argparse
from pathlib import Path

from compare import ours

from transformer_jax.runtime.startup import keep_freed_memory
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.word_vectors.vector_evaluation import evaluate_vectors, read_test_sets

ROW, UPDATE = 32, 32768
# The sizes, the settings of one, the label of the axis, the name of the files.
AXES = {
    "words": (
        (512, 1024, 2048, 4096),
        lambda words: [("batching.rows", str(words // ROW)), ("batching.blocks_per_update", str(UPDATE // words))],
        "words in a block",
        "block_size",
    ),
    "negatives": (
        (16, 32, 64, 128),
        lambda count: [("model.shared_negatives", str(count))],
        "negatives shared by a row",
        "shared_negatives",
    ),
}
SCORES = {"analogies": "analogies", "MEN": "spearman_EN-MEN-TR-3k", "WordSim-353": "spearman_EN-WS-353-ALL"}


def run(settings: list[tuple[str, str]], data: str, test_sets: list[str]) -> dict:
    """An epoch with these settings."""
    found = ours("skip_gram", data, 1, settings)
    scores = evaluate_vectors(found.pop("vectors"), read_test_sets(test_sets)).headline()
    return found | {name: 100 * scores[key] for name, key in SCORES.items()}


def draw(results: list[dict], label: str, path: Path) -> None:
    """Scores and processor seconds against the size."""
    sizes = [each["size"] for each in results]
    scores = {name: (sizes, [each[name] for each in results]) for name in SCORES}
    seconds = {"_": (sizes, [each["cpu_seconds"] for each in results])}
    panels = [
        LinePanel("quality after one epoch", scores, label, "accuracy, Spearman x 100"),
        LinePanel("processor time of an epoch", seconds, label, "CPU seconds"),
    ]
    draw_panels(panels, path)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vary", choices=tuple(AXES), default="words")
    parser.add_argument("--data", required=True, help="a text, a document a line")
    parser.add_argument("--test_sets", required=True, help="files or folders, separated by commas")
    parser.add_argument("--output", required=True, help="folder for the results")
    arguments = parser.parse_args()
    folder, results = Path(arguments.output), []
    folder.mkdir(parents=True, exist_ok=True)
    sizes, settings_of, label, name = AXES[arguments.vary]
    keep_freed_memory()
    for size in sizes:
        results.append({"size": size} | run(settings_of(size), arguments.data, arguments.test_sets.split(",")))
        print(results[-1], flush=True)
    draw(results, label, folder / f"{name}.png")


if __name__ == "__main__":
    main()

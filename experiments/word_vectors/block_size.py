"""What the length of a block costs in quality and saves in time: skip-gram, one epoch each, one run each.

    python experiments/word_vectors/block_size.py --data=enwiki.txt.xz --output=runs/block_size \
        --test_sets=word_similarity/questions-words.txt,word_similarity/word-sim

Writes results.json and block_size.png.
"""

import argparse
import json
from pathlib import Path

from compare import ours

from transformer_jax.visualization.panels import LinePanel, draw_panels
from transformer_jax.word_vectors.evaluation import evaluate_vectors
from transformer_jax.word_vectors.test_sets import read_test_sets

WORDS = (512, 1024, 2048, 4096)
ROW, UPDATE = 32, 32768
SCORES = {"analogies": "analogies", "MEN": "spearman_EN-MEN-TR-3k", "WordSim-353": "spearman_EN-WS-353-ALL"}


def run(words: int, data: str, test_sets: list[str]) -> dict:
    """An epoch with blocks of so many words, in updates of always as many."""
    rows = words // ROW
    changed = [("batching.rows", str(rows)), ("batching.blocks_per_update", str(UPDATE // words))]
    found = ours("skip_gram", data, 1, changed)
    scores = evaluate_vectors(found.pop("vectors"), read_test_sets(test_sets)).headline()
    return found | {"words": words} | {name: 100 * scores[key] for name, key in SCORES.items()}


def draw(results: list[dict], path: Path) -> None:
    """Scores and processor seconds against the words of a block."""
    words = [each["words"] for each in results]
    scores = {name: (words, [each[name] for each in results]) for name in SCORES}
    seconds = {"_": (words, [each["cpu_seconds"] for each in results])}
    panels = [
        LinePanel("quality after one epoch", scores, "words in a block", "accuracy, Spearman x 100"),
        LinePanel("processor time of an epoch", seconds, "words in a block", "CPU seconds"),
    ]
    draw_panels(panels, path)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text, a document a line")
    parser.add_argument("--test_sets", required=True, help="files or folders, separated by commas")
    parser.add_argument("--output", required=True, help="folder for the results")
    arguments = parser.parse_args()
    folder, results = Path(arguments.output), []
    folder.mkdir(parents=True, exist_ok=True)
    for words in WORDS:
        results.append(run(words, arguments.data, arguments.test_sets.split(",")))
        print(results[-1], flush=True)
        (folder / "results.json").write_text(json.dumps(results, indent=2))
    draw(results, folder / "block_size.png")


if __name__ == "__main__":
    main()

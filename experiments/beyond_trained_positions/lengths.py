"""The teacher-forced loss of runs on their validation split by the length of the target, EOS
included.

    python experiments/beyond_trained_positions/lengths.py runs/positions/trials/0000 runs/positions/trials/0001

Draws a line for each run, for lengths with at least three sentences, and dotted lines at the
longest targets in training.
"""

import argparse
import itertools

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import load_run_config
from transformer_jax.data.batches import token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels

ROWS, FEWEST = 32, 3


def main() -> None:
    """Draws the lines, and prints means over the lengths seen in training and over longer ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--output", default="lengths.png")
    arguments = parser.parse_args()
    lines, longest = {}, {}
    for folder in arguments.runs:
        config = load_run_config(folder)
        name = f"{folder}: {config.model.positions}"
        longest[name] = config.data.max_target_tokens + 1
        lengths, losses, counts = loss_by_length(open_trained(ChosenRun(folder, config)))
        lines[name] = lengths[counts >= FEWEST], losses[counts >= FEWEST]
        for title, chosen in {"up to": lengths <= longest[name], "longer than": lengths > longest[name]}.items():
            if chosen.any():
                mean = np.average(losses[chosen], weights=(lengths * counts)[chosen])
                sentences = int(counts[chosen].sum())
                print(f"{name}: loss {mean:.3f} of {sentences} sentences {title} {longest[name]} tokens")
    highest = max(float(losses.max()) for _, losses in lines.values())
    ends = {f"longest in training: {end}": ([end] * 2, [0.0, highest]) for end in sorted(set(longest.values()))}
    x_label, y_label = "target tokens, EOS included", "nats per token"
    panel = LinePanel("Loss by target length", lines | ends, x_label, y_label, dotted=tuple(ends))
    print(draw_panels([panel], arguments.output, title="Loss against length"))


def loss_by_length(trained: TrainedRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lengths [N], the mean loss in nats per token of sentences of each length [N], and
    their counts [N]."""
    tokenizers = trained.tokenizers
    groups: dict[int, list[tuple[list[int], list[int]]]] = {}
    for pair in trained.task.evaluator.pairs(trained.config.data.split_name("validation")):
        source, target = tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)
        groups.setdefault(len(target) + 1, []).append(([*source, EOS_ID], [*target, EOS_ID]))
    loss = jax.jit(trained.task.objective.unsmoothed_loss)
    width = max(len(side) for pairs in groups.values() for pair in pairs for side in pair)
    rows = []
    for length, pairs in sorted(groups.items()):
        nll = 0.0
        for part in itertools.batched(pairs, ROWS):
            # One shape, for one compiled program; the last batch has rows of padding.
            offsets = np.minimum(np.arange(ROWS + 1), len(part))
            batch = Batch(*(token_rows(joined([pair[side] for pair in part]), offsets, width) for side in (0, 1)))
            nll += float(loss(trained.params, batch).nll)
        rows.append((length, nll / (length * len(pairs)), len(pairs)))
    lengths, losses, counts = np.array(rows).T
    return lengths.astype(int), losses, counts.astype(int)


if __name__ == "__main__":
    main()

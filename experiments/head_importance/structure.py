"""Is figure 5 of Vaswani et al. 2017 in our heads? How much more a word attends within its phrase
than distance explains.

    python experiments/head_importance/structure.py --workdir=runs/m30k --trees=wsj_test.mrg

Reads bracketed trees (Penn Treebank), one a line, plain or .gz, and the encoder's self-attention on
their words. The phrase of a word is the smallest constituent with another word in it. For each
head: the share of its weight on other words that stays in the phrase, and the share that would if
every weight were the head's mean at that distance; and their ratio for the phrases of another
sentence of the same length, which should be 1. Writes results/structure.md.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import load_run_config
from transformer_jax.data.text_files import read_lines
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tools.explorer.soft_alignment import between_words, word_membership

FEWEST, MOST, WIDTH = 4, 30, 128
EMPTY = "-NONE-"


class Parsed(NamedTuple):
    """Words, and for each pair of them whether the second is in the phrase of the first: [N, N]."""

    words: list[str]
    in_phrase: np.ndarray


def main() -> None:
    """Counts and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--trees", type=Path, nargs="+", required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "structure.md")
    arguments = parser.parse_args()
    trees = [parsed(line) for file in arguments.trees for line in read_lines(file) if line.strip()]
    chosen = [tree for tree in trees if FEWEST <= len(tree.words) <= MOST]
    trained = open_trained(ChosenRun(str(arguments.workdir), load_run_config(arguments.workdir)))
    text = table([*zip(chosen, word_weights(trained, chosen), strict=True)], trained.config.model.num_heads)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    print(text)


def parsed(line: str) -> Parsed:
    """The words of a bracketed tree, without its traces, and their phrases.

    In ``(S (NP (DT the) (NN man)) (VP (VBZ sleeps)))`` the phrase of ``the`` is ``the man``, that
    of ``sleeps`` all three.
    """
    words: list[str] = []
    open_brackets: list[tuple[int, str]] = []
    spans: list[tuple[int, int]] = []
    for bracket, label, word in re.findall(r"(\()\s*([^\s()]*)|\)|([^\s()]+)", line):
        if bracket:
            open_brackets.append((len(words), label))
        elif word:
            if open_brackets[-1][1] != EMPTY:
                words.append(word)
        else:
            spans.append((open_brackets.pop()[0], len(words)))
    in_phrase = np.zeros((len(words), len(words)), bool)
    for place in range(len(words)):
        around = [(end - start, start, end) for start, end in spans if start <= place < end and end - start > 1]
        if around:
            _, start, end = min(around)
            in_phrase[place, start:end] = True
    return Parsed(words, in_phrase & ~np.eye(len(words), dtype=bool))


def word_weights(trained: TrainedRun, trees: list[Parsed]) -> Iterator[np.ndarray]:
    """Attention between the words of each sentence, [heads of all layers, N, N]: sums over a key's
    pieces, a query's mean."""
    tokenizer = trained.tokenizers.source
    maps = jax.jit(partial(attention_maps, trained.model))
    nothing = Tokens.from_ids(np.array([[EOS_ID]], np.int32))
    for tree in trees:
        text = " ".join(tree.words)
        ids = [*tokenizer.encode(text), EOS_ID]
        source = Tokens.from_ids(np.pad(np.array([ids], np.int32), ((0, 0), (0, max(WIDTH - len(ids), 0)))))
        layers = layers_by_kind(maps(trained.params, source, nothing))["encoder"].values()
        heads = np.concatenate([np.asarray(weights)[0, :, : len(ids), : len(ids)] for weights in layers])
        membership = word_membership(tokenizer, text)
        yield np.stack([between_words(head, membership, membership) for head in heads])


def table(sentences: list[tuple[Parsed, np.ndarray]], heads_a_layer: int) -> str:
    """A line for each head of the encoder."""
    at_distance: dict[int, list[np.ndarray]] = defaultdict(list)
    for tree, weights in sentences:
        for offset in range(1 - len(tree.words), len(tree.words)):
            if offset:
                at_distance[offset].append(np.diagonal(weights, offset, axis1=1, axis2=2).T)
    means = {offset: np.concatenate(found).mean(axis=0) for offset, found in at_distance.items()}
    others = {length: [tree for tree, _ in sentences if len(tree.words) == length] for length in range(MOST + 1)}
    totals = {name: np.zeros((3, len(sentences[0][1]))) for name in ("own", "by distance", "uniform")}
    for tree, weights in sentences:
        size, alike = len(tree.words), others[len(tree.words)]
        elsewhere = alike[(next(place for place, each in enumerate(alike) if each is tree) + 1) % len(alike)]
        by_distance = np.zeros_like(weights)
        for offset in range(1 - size, size):
            if offset:
                rows = np.arange(max(0, -offset), min(size, size - offset))
                by_distance[:, rows, rows + offset] = means[offset][:, None]
        masks = np.stack([tree.in_phrase, elsewhere.in_phrase, ~np.eye(size, dtype=bool)])
        for total, part in zip(totals.values(), (weights, by_distance, np.ones_like(weights)), strict=True):
            total += np.einsum("HQM,KQM->KH", part, masks)
    own, by_distance, uniform = (total[:2] / total[2] for total in totals.values())
    lines = [
        f"{len(sentences)} sentences of {FEWEST} to {MOST} words; of uniform attention {uniform[0, 0]:.3f} is in the phrase.",
        "",
        "| layer | head | weight in the phrase | at these distances | ratio | phrases of another sentence |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = own / by_distance
    for head, (ratio, elsewhere) in enumerate(ratios.T):
        layer, place = divmod(head, heads_a_layer)
        shown = f"{own[0, head]:.3f} | {by_distance[0, head]:.3f} | {ratio:.2f} | {elsewhere:.2f}"
        lines.append(f"| {layer + 1} | {place + 1} | {shown} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

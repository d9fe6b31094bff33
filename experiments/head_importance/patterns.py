"""Are figures 3 and 4 of Vaswani et al. 2017 in our heads? Long distances and pronouns, counted
over a test set.

    python experiments/head_importance/patterns.py --workdir=runs/m30k

Reads the encoder's self-attention on every sentence of the test split and compares, for each head,
the weight at a distance of six or more places with uniform attention, and the weight from a pronoun
to the nearest person or animal before it with the weight that other words after it give to the same
one. Writes results/patterns.md.
"""

import argparse
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import load_run_config
from transformer_jax.data.batches import token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import TrainedRun, open_trained

FAR, ROWS = 6, 50
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
PRONOUNS = re.findall(r"\w+", "he she it they him them his her its their")
BEINGS = re.findall(
    r"\w+",
    "man woman boy girl person people men women boys girls child children kid kids baby lady guy player players worker "
    "workers dog dogs cat horse couple group crowd family team band surfer biker cyclist runner singer",
)


class Sentence(NamedTuple):
    """Weights [layers, heads, S, S] of the encoder, and the word that begins at each piece, empty
    inside words."""

    weights: np.ndarray
    words: list[str]


def main() -> None:
    """Counts and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "patterns.md")
    arguments = parser.parse_args()
    config = load_run_config(arguments.workdir)
    sentences = list(encoded(open_trained(ChosenRun(str(arguments.workdir), config))))
    text = table(sentences)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    print(text)


def encoded(trained: TrainedRun) -> Iterator[Sentence]:
    """The test split through the encoder."""
    tokenizer = trained.tokenizers.source
    pairs = trained.task.evaluator.pairs(trained.config.data.test_split)
    ids = [[*each, EOS_ID] for each in tokenizer.encode_batch([pair.source for pair in pairs])]
    width = max(map(len, ids))
    maps = jax.jit(partial(attention_maps, trained.model))
    for start in range(0, len(ids), ROWS):
        part = ids[start : start + ROWS]
        source = token_rows(joined(part), np.minimum(np.arange(ROWS + 1), len(part)), width)
        target = Tokens.from_ids(np.full((ROWS, 1), EOS_ID, np.int32))
        found = maps(trained.params, source, target)
        layers = np.stack([np.asarray(weights) for weights in layers_by_kind(found)["encoder"].values()])
        for row, each in enumerate(part):
            pieces = tokenizer.pieces(each[:-1])
            words = [word_at(pieces, place) for place in range(len(pieces))]
            yield Sentence(layers[:, row, :, : len(each), : len(each)], [*words, ""])


def word_at(pieces: list[str], place: int) -> str:
    """The word that begins at a piece, in lower case without punctuation; empty where none
    begins."""
    if not pieces[place].startswith(WORD_START):
        return ""
    end = next((i for i in range(place + 1, len(pieces)) if pieces[i].startswith(WORD_START)), len(pieces))
    return "".join(pieces[place:end]).strip(WORD_START).lower().strip(".,\"'")


def far_weight(sentence: Sentence) -> tuple[np.ndarray, float]:
    """Mean weight [layers, heads] that lies six or more places away, and the same of uniform
    attention."""
    length = sentence.weights.shape[-1]
    is_far = np.abs(np.arange(length)[:, None] - np.arange(length)[None, :]) >= FAR
    return (sentence.weights * is_far).sum((-1, -2)) / length, is_far.sum() / length**2


def pronoun_weights(sentence: Sentence) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each pronoun with a being before it: its weight on that being, and the mean weight of
    other later words on it."""
    for place, word in enumerate(sentence.words):
        before = [other for other in range(place) if sentence.words[other] in BEINGS]
        if word in PRONOUNS and before:
            being = before[-1]
            others = [
                other
                for other in range(being + 1, len(sentence.words))
                if sentence.words[other] and sentence.words[other] not in (*PRONOUNS, *BEINGS)
            ]
            if others:
                yield sentence.weights[:, :, place, being], sentence.weights[:, :, others, being].mean(-1)


def table(sentences: list[Sentence]) -> str:
    """A line for each head of the encoder."""
    far, uniform = (np.mean(column, axis=0) for column in zip(*map(far_weight, sentences), strict=True))
    cases = [case for sentence in sentences for case in pronoun_weights(sentence)]
    own, others = (np.mean(column, axis=0) for column in zip(*cases, strict=True))
    wins = np.mean([mine > theirs for mine, theirs in cases], axis=0)
    lines = [
        f"{len(sentences):,} sentences, {len(cases)} pronouns after a being; uniform attention has {uniform:.3f} of its weight "
        f"{FAR} or more places away.",
        "",
        f"| layer | head | weight {FAR}+ places away | pronoun to being | other words to it | ratio | pronoun gives more |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for layer, head in np.ndindex(own.shape):
        numbers = far[layer, head], own[layer, head], others[layer, head]
        shown = " | ".join(f"{number:.3f}" for number in numbers)
        lines.append(
            f"| {layer + 1} | {head + 1} | {shown} | {numbers[1] / numbers[2]:.2f} | {wins[layer, head]:.0%} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

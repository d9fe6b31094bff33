"""A small translation model in the explorer."""

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.tokenizers import train_tokenizers
from transformer_jax.evaluation.word_alignment import read_gold
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.explorer.translation_reader import TranslationReader
from transformer_jax.training.sharding import make_mesh

PAIRS = [("a b", "b a"), ("a", "a b c")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    config = from_dict(tiny_settings(tmp_path_factory.mktemp("cache")))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    tokenizers = train_tokenizers(config.tokenizer, open_corpus(config.data, 0), config.data.train_split, 0)
    task = TranslationTask(config, tokenizers, mesh)
    return TranslationReader(TrainedRun(task, jax.jit(task.init_params)(jax.random.key(0)), (1,)))


def test_error_rates_are_those_of_what_is_read(reader):
    gold = read_gold(["0-1 1-0", "0-0 0p1"], "gold")
    rates = reader.error_rates(PAIRS, gold, "gold")
    assert rates.shape == (1, 2)
    by_hand = []
    for source, target in PAIRS:
        (cross,) = (
            each for each in reader.read(source, target, with_gradients=False).attentions if each.kind == "cross"
        )
        # Words are single tokens here; the last of each side is the end.
        by_hand.append(cross.weights.values[0, :, :-1, :-1].argmax(axis=-1))
    for head in range(2):
        links = [{(int(source), target) for target, source in enumerate(pair[head])} for pair in by_hand]
        sure = sum(len(found & each.sure) for found, each in zip(links, gold, strict=True))
        possible = sum(len(found & each.possible) for found, each in zip(links, gold, strict=True))
        assert rates[0, head] == pytest.approx(1 - (sure + possible) / (5 + 3))


def test_averages_are_of_the_split(reader):
    kinds = {each.kind: each.values for each in reader.statistics("validation", 4)}
    assert set(kinds) == {"encoder", "decoder", "cross"}
    assert all(np.isfinite(values).all() for statistics in kinds.values() for values in statistics.values())

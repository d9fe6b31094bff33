"""GloVe: counted pairs of a sentence by hand, counts merged from disk, the loss of pairs one by
one."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import loss_of_tables

from transformer_jax.array_types import EOS_ID
from transformer_jax.tools.word_vectors.task import glove as glove_module
from transformer_jax.tools.word_vectors.task.glove import PAIR, Glove, PairBlock, PairBlocks
from transformer_jax.tools.word_vectors.task.word_vector_settings import BlockConfig, GloveConfig

V = 8


def store_of(ids):
    return SimpleNamespace(ids=np.array(ids, np.uint16), num_tokens=len(ids))


def counts_of(ids):
    return np.bincount(ids, minlength=V) * (np.arange(V) > 3)


def counted(ids, folder, window=2, memory_pairs=1000):
    glove_module.count_cooccurrences(store_of(ids), counts_of(ids), window, memory_pairs, folder)
    pairs = np.fromfile(folder / "pairs", PAIR)
    return {(int(key) // V, int(key) % V): float(count) for key, count in pairs}


def test_the_pairs_of_a_sentence_are_those_counted_by_hand(tmp_path):
    """``4 5 6 4 | 7 4`` with windows of two: the bar ends a document."""
    pairs = counted([4, 5, 6, 4, EOS_ID, 7, 4, EOS_ID], tmp_path)
    half = {(4, 5): 1.5, (4, 6): 1.5, (5, 6): 1.0, (4, 7): 1.0}
    assert pairs == half | {(b, a): count for (a, b), count in half.items()}


def test_what_is_written_to_disk_and_merged_is_what_is_counted_in_memory(tmp_path, monkeypatch):
    """In pieces of 50 ids, each with the last words of the piece before it."""
    ids = np.random.default_rng(0).integers(4, V, 2000)
    ids[::37] = EOS_ID
    (tmp_path / "whole").mkdir()
    whole = counted(ids, tmp_path / "whole", window=3, memory_pairs=10**6)
    monkeypatch.setattr(glove_module, "IDS_AT_ONCE", 50)
    monkeypatch.setattr(glove_module, "MERGED_AT_ONCE", 5)
    spilled = counted(ids, tmp_path, window=3, memory_pairs=20)
    assert list(spilled) == sorted(whole)
    assert spilled == pytest.approx(whole, rel=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs", "whole"]


def test_loss_and_gradient_are_those_of_equation_8_pair_by_pair():
    glove, rng = Glove(GloveConfig(d_model=3, x_max=10.0)), np.random.default_rng(0)
    block = PairBlock(np.array([[1, 2, 1]]), np.array([[2, 0, 3]]), np.array([[4.0, 0.0, 25.0]], np.float32))
    tables = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (4, 3), (4, 1), (4, 1))]

    def naive(words, contexts, word_bias, context_bias):
        def of_pair(i, j, count, weight):
            return 0.5 * weight * (words[i] @ contexts[j] + word_bias[i, 0] + context_bias[j, 0] - np.log(count)) ** 2

        return of_pair(1, 2, 4.0, 0.4**0.75) + of_pair(1, 3, 25.0, 1.0)

    def blocked(words, contexts, word_bias, context_bias):
        embedding, projection = {"table": words, "bias": word_bias}, {"table": contexts, "bias": context_bias}
        return loss_of_tables(glove, block, {"embedding": embedding, "projection": projection})

    arguments = tuple(map(jnp.asarray, tables))
    expected, blocks = (jax.value_and_grad(loss, (0, 1, 2, 3))(*arguments) for loss in (naive, blocked))
    for left, right in zip(jax.tree.leaves(blocks), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_an_epoch_has_every_pair_once_in_another_order_than_the_next():
    pairs = np.zeros(100, PAIR)
    pairs["key"], pairs["count"] = np.arange(100) + 30 * V, 1.0
    blocks = PairBlocks(pairs, V, BlockConfig(rows=2, row_length=4, blocks_per_update=4), seed=3)
    epochs = []
    for epoch in range(2):
        taken = [blocks.block(epoch * blocks.updates_per_epoch + update) for update in range(blocks.updates_per_epoch)]
        epochs.append(np.concatenate([(b.words * V + b.contexts)[b.counts > 0] for b in taken]))
    assert blocks.updates_per_epoch == 4
    assert all(sorted(keys) == pairs["key"].tolist() for keys in epochs)
    assert not np.array_equal(*epochs)

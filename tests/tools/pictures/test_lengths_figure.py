"""Loss by length: every sentence in its group, weighted by its tokens, whatever it was batched with."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import DataError, resolve
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.tools.pictures.lengths import ROWS, loss_by_length, names_of
from transformer_jax.training.losses import LossSums


class Letters:
    """A tokenizer of single letters."""

    def encode(self, text):
        return [ord(letter) for letter in text]


def made_up_run(sentences):
    """A model whose loss of a token is its id / 100, and of EOS 0.02."""

    def unsmoothed_loss(params, batch):
        ids = jnp.where(batch.target.segments > 0, batch.target.ids, 0)
        return LossSums(*[jnp.sum(ids) / 100.0] * 3, jnp.sum(ids > 0))

    return SimpleNamespace(
        config=resolve("configs/quickstart.py", []),
        tokenizers=SimpleNamespace(source=Letters(), target=Letters()),
        task=SimpleNamespace(
            evaluator=SimpleNamespace(pairs=lambda split, limit: [SentencePair("a", text) for text in sentences]),
            objective=SimpleNamespace(unsmoothed_loss=unsmoothed_loss),
        ),
        params=None,
    )


def test_losses_are_means_over_the_tokens_of_a_length():
    found = loss_by_length(made_up_run(["d" * 4] * (ROWS + 2) + ["n"] * 3 + ["too", "few"]))
    assert found.lengths.tolist() == [2, 4, 5]
    assert found.counts.tolist() == [3, 2, ROWS + 2]
    drawn = found.drawn
    assert (drawn.lengths.tolist(), drawn.counts.tolist()) == ([2, 5], [3, ROWS + 2])
    np.testing.assert_allclose(drawn.loss, [(1.10 + 0.02) / 2, (4 * 1.00 + 0.02) / 5], rtol=1e-5)
    with pytest.raises(DataError, match="no length of target has 3 sentences"):
        _ = loss_by_length(made_up_run(["a", "bc"])).drawn


def test_runs_are_called_by_what_differs():
    kinds = [resolve("configs/quickstart.py", [("model.positions", kind)]) for kind in ("sinusoidal", "none")]
    assert names_of(["runs/a", "runs/b"], kinds) == ["sinusoidal", "none"]
    assert names_of(["runs/a", "runs/b"], kinds[:1] * 2) == ["runs/a", "runs/b"]

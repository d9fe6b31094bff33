from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import DataError, TransformerConfig, resolve
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.models.inspection import head_counts, without_head
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.run_figures import (
    ROWS,
    Scores,
    attention_heads,
    draw_heads,
    draw_lengths,
    head_importance,
    loss_by_length,
    names_of,
)
from transformer_jax.training.losses import LossSums

INPUTS = jax.random.normal(jax.random.key(0), (1, 4, 8))
SEGMENTS = jnp.ones((1, 4), int)
MASK = SentenceMask(SEGMENTS, SEGMENTS)
ATTENTION = MultiHeadAttention(num_heads=2, key_size=4, value_size=4, d_model=8)
NAME = "encoder_layers_0/self_attention"


def output(params):
    kernels = params["encoder_layers_0"]["self_attention"]
    return ATTENTION.apply({"params": kernels}, INPUTS, INPUTS, MASK, train=False)


def test_the_output_is_the_sum_of_what_the_heads_contribute():
    kernels = ATTENTION.init(jax.random.key(1), INPUTS, INPUTS, MASK, train=False)["params"]
    params = {"encoder_layers_0": {"self_attention": kernels, "norm": {"output": jnp.ones(3)}}}
    assert head_counts(params) == {NAME: 2}
    first, second = (output(without_head(params, NAME, head)) for head in (1, 0))
    np.testing.assert_allclose(first + second, output(params), atol=1e-6)
    assert np.abs(first).max() > 0.1
    assert not output(without_head(without_head(params, NAME, 0), NAME, 1)).any()


def test_a_mixer_has_no_attention_heads():
    layer = {"self_attention": {"output": jnp.ones((2, 1, 1))}}
    params = {"decoder_layers_0": layer, "decoder_layers_1": layer}
    config = TransformerConfig(num_decoder_layers=2, mixers="gated_linear_attention attention")
    assert attention_heads(params, config.attention_layers) == {"decoder_layers_1/self_attention": 2}


def test_every_head_is_masked_once():
    params = {f"decoder_layers_{n}": {"cross_attention": {"output": jnp.ones((2, 1, 1))}} for n in (10, 9)}

    def evaluate(params):
        tenth, ninth = (params[f"decoder_layers_{n}"]["cross_attention"]["output"].ravel() for n in (10, 9))
        return Scores(float(tenth @ jnp.array([1.0, 2.0]) + ninth @ jnp.array([3.0, 4.0])), 0.0)

    whole, changes = head_importance(params, head_counts(params), evaluate)
    assert (whole.bleu, [*changes]) == (10, ["cross"])
    assert [layer[:, 0].tolist() for layer in changes["cross"].values()] == [[-3, -4], [-1, -2]]


def made_up_run(sentences):
    """A model whose loss of a token is its id / 100, and of EOS 0.02."""

    def unsmoothed_loss(params, batch):
        ids = jnp.where(batch.target.segments > 0, batch.target.ids, 0)
        return LossSums(*[jnp.sum(ids) / 100.0] * 3, jnp.sum(ids > 0))

    letters = SimpleNamespace(encode=lambda text: [ord(letter) for letter in text])
    evaluator = SimpleNamespace(pairs=lambda split, limit: [SentencePair("a", text) for text in sentences])
    task = SimpleNamespace(evaluator=evaluator, objective=SimpleNamespace(unsmoothed_loss=unsmoothed_loss))
    tokenizers, config = SimpleNamespace(source=letters, target=letters), resolve("configs/quickstart.py", [])
    return SimpleNamespace(config=config, tokenizers=tokenizers, task=task, params=None)


def test_losses_are_means_over_the_tokens_of_a_length():
    found = loss_by_length(made_up_run(["d" * 4] * (ROWS + 2) + ["n"] * 3 + ["too", "few"]))
    assert (found.lengths.tolist(), found.counts.tolist()) == ([2, 4, 5], [3, 2, ROWS + 2])
    drawn = found.drawn
    assert (drawn.lengths.tolist(), drawn.counts.tolist()) == ([2, 5], [3, ROWS + 2])
    np.testing.assert_allclose(drawn.loss, [(1.10 + 0.02) / 2, (4 * 1.00 + 0.02) / 5], rtol=1e-5)
    with pytest.raises(DataError, match="no target length has 3 sentences"):
        _ = loss_by_length(made_up_run(["a", "bc"])).drawn


def test_each_run_has_its_own_limit_of_lengths(tmp_path, figures):
    def subject(name, limit, *others):
        trained, config = made_up_run(["d" * 4] * 3 + ["n"] * 3), resolve("configs/quickstart.py", [])
        config = replace(config, data=replace(config.data, max_target_tokens=limit))
        return Subject(name, config, lambda: trained, others)

    first, second = draw_lengths(subject("a", 9, subject("b", 2)), tmp_path / "lengths.png")
    assert "up to 10 tokens" in first and "longer" not in first
    assert "up to 3 tokens" in second and "longer" in second
    legend = figures[0].axes[0].get_legend()
    assert "longest in training: 2" in [each.get_text() for each in legend.get_texts()]


class SmallTestSplit:
    """A task whose test split has three pairs."""

    def __init__(self, config, tokenizers, mesh):
        self.evaluator = SimpleNamespace(pairs=lambda split, limit: ["pair"] * min(limit, 3))

    def evaluate(self, params, split, *, limit):
        return SimpleNamespace(metrics={"bleu": 30.0, "loss": 2.0})


def test_the_sentences_of_a_small_split_are_counted(tmp_path):
    params = {"decoder_layers_0": {"cross_attention": {"output": jnp.ones((2, 1, 1))}}}
    config = resolve("configs/quickstart.py", [])
    trained = SimpleNamespace(params=params, config=config, tokenizers=None, mesh=None)
    trained.task = SmallTestSplit(config, None, None)
    subject = SimpleNamespace(name="run", trained=trained, limit=0, require_translation=lambda: None)
    assert draw_heads(subject, tmp_path / "heads.png")[0] == "all heads: BLEU 30.00, loss 2.0000; 3 sentences"


def test_runs_are_called_by_what_differs():
    kinds = [resolve("configs/quickstart.py", [("model.positions", kind)]) for kind in ("sinusoidal", "none")]
    assert names_of(["runs/a", "runs/b"], kinds) == ["sinusoidal", "none"]
    assert names_of(["runs/a", "runs/b"], kinds[:1] * 2) == ["runs/a", "runs/b"]

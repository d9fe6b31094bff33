"""The loss without the logits equals the loss of the logits: value, reports and gradients, however
it is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from transformer_jax.training.losses import label_smoothed_cross_entropy, token_losses
from transformer_jax.training.projected_loss import LogitBlocks, projected_cross_entropy

ROWS, WIDTH, D_MODEL, VOCABULARY = 4, 7, 5, 11
RANDOM = np.random.default_rng(0)
HIDDEN = jnp.asarray(RANDOM.normal(size=(ROWS, WIDTH, D_MODEL)), jnp.float32)
MATRIX = jnp.asarray(RANDOM.normal(size=(VOCABULARY, D_MODEL)), jnp.float32)
LABELS = jnp.asarray(RANDOM.integers(0, VOCABULARY, (ROWS, WIDTH)), jnp.int32)
WEIGHTS = jnp.asarray(RANDOM.random((ROWS, WIDTH)) < 0.7, jnp.float32)


def plain(hidden, matrix, smoothing=0.1):
    return label_smoothed_cross_entropy(jnp.einsum("BTD,VD->BTV", hidden, matrix), LABELS, WEIGHTS, smoothing)


# Two columns at a time, or all but one, so that the last chunk is padded; all at once.
@pytest.mark.parametrize(
    ("columns", "groups", "multiple", "smoothing"),
    [(2, (2, 3), 8, 0.1), (WIDTH - 1, (1, 1), 1, 0.1), (WIDTH, (2, 3), 8, None)],
)
def test_it_equals_the_loss_of_the_logits(columns, groups, multiple, smoothing):
    blocks = LogitBlocks(columns * ROWS // groups[0] * VOCABULARY, multiple)

    def chunked(hidden, matrix):
        return projected_cross_entropy(hidden, matrix, LABELS, WEIGHTS, smoothing, blocks=blocks, groups=groups)

    def gradients_and_sums(sums):
        def loss(*inputs):
            found = sums(*inputs)
            return 3 * found.loss, found[:4]

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(HIDDEN, MATRIX)

    (gradients, found), (expected_gradients, expected) = map(
        gradients_and_sums, (chunked, lambda hidden, matrix: plain(hidden, matrix, smoothing))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for mine, theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_changed_logits_have_gradients_and_terms_read_those_of_all_passes():
    def term(logits, labels, second):
        return jnp.sum(jnp.exp(logits), -1) * jax.nn.logsumexp(second[0], axis=-1) + 2 * second[1]

    def chunked(logit_mod, scale):
        how = {"blocks": LogitBlocks(4 * ROWS * VOCABULARY, 8), "groups": (2, 3), "logit_mod": logit_mod}
        terms, further = {"term": Partial(term)}, [jnp.sin(HIDDEN * scale)]
        sums = projected_cross_entropy(
            HIDDEN * scale, MATRIX, LABELS, WEIGHTS, 0.1, terms=terms, further=further, **how
        )
        return 3 * sums.loss, sums

    def direct(logit_mod, scale):
        logits, others = (
            logit_mod(jnp.einsum("BTD,VD->BTV", each, MATRIX)) for each in (HIDDEN * scale, jnp.sin(HIDDEN * scale))
        )
        sums = label_smoothed_cross_entropy(logits, LABELS, WEIGHTS, 0.1)
        losses = token_losses(VOCABULARY, others, LABELS, 0.1)[0]
        sums = sums.with_term("term", jnp.sum(term(logits, LABELS, (others, losses)) * WEIGHTS))
        return 3 * sums.loss, sums

    # Not zero at zero: the columns that fill the vocabulary must not count.
    arguments = Partial(lambda cap, logits: cap * jnp.tanh(logits / cap + 1), jnp.float32(1.5)), jnp.float32(1.0)
    found, expected = (
        jax.jit(jax.value_and_grad(each, (0, 1), has_aux=True))(*arguments) for each in (chunked, direct)
    )
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_the_logits_of_all_tokens_never_exist():
    def loss(hidden, matrix):
        return projected_cross_entropy(
            hidden, matrix, LABELS, WEIGHTS, 0.1, blocks=LogitBlocks(2 * ROWS * VOCABULARY)
        ).loss

    program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(HIDDEN, MATRIX).as_text()
    assert f"x{2 * ROWS}x{VOCABULARY}xf32>" in program
    for shape in (f"{ROWS}x{WIDTH}x{VOCABULARY}x", f"{ROWS * WIDTH}x{VOCABULARY}x", f"{ROWS * 8}x{VOCABULARY}x"):
        assert shape not in program

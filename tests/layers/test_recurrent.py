"""Recurrent layers against PyTorch's, and what padding and packing may not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.recurrent import CELLS, RecurrentLayer

BATCH, LENGTH, INPUT, HIDDEN = 3, 6, 4, 5
INPUTS = jax.random.normal(jax.random.key(0), (BATCH, LENGTH, INPUT))
IS_TOKEN = jnp.arange(LENGTH)[None] < jnp.array([6, 4, 1])[:, None]
FIRST = jnp.broadcast_to(jnp.arange(LENGTH)[None] == 0, IS_TOKEN.shape)
LAST = IS_TOKEN & ~jnp.pad(IS_TOKEN[:, 1:], ((0, 0), (0, 1)))


@pytest.fixture(params=sorted(CELLS), scope="module")
def layer(request):
    layer = RecurrentLayer(CELLS[request.param](), INPUT, HIDDEN)
    variables = layer.init(jax.random.key(1), INPUTS, IS_TOKEN, FIRST)
    # Biases that are not zero, so that their place shows.
    leaves, structure = jax.tree.flatten(variables)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    leaves = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return request.param, layer, jax.tree.unflatten(structure, leaves)


def as_torch(kind, params):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theirs = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](INPUT, HIDDEN, batch_first=True)
    rows = {"weight_ih_l0": "input_kernel", "weight_hh_l0": "recurrent_kernel"}
    with torch.no_grad():
        for name, ours in rows.items():
            weights = np.asarray(params[ours]).reshape(params[ours].shape[0], -1).T
            getattr(theirs, name).copy_(torch.from_numpy(weights.copy()))
        for name, ours in {"bias_ih_l0": "input_bias", "bias_hh_l0": "recurrent_bias"}.items():
            getattr(theirs, name).copy_(torch.from_numpy(np.asarray(params[ours]).reshape(-1).copy()))
    return torch, theirs


@pytest.mark.parametrize("backward", [False, True])
def test_states_are_those_of_pytorch(layer, backward):
    kind, module, variables = layer
    torch, theirs = as_torch(kind, variables["params"])
    hidden, state = module.apply(variables, INPUTS, IS_TOKEN, LAST if backward else FIRST, backward=backward)
    for row, length in enumerate(np.asarray(IS_TOKEN.sum(1))):
        sentence = np.array(INPUTS[row : row + 1, :length])
        with torch.no_grad():
            expected, last = theirs(torch.from_numpy(sentence[:, ::-1].copy() if backward else sentence))
        expected = expected[0].numpy()
        np.testing.assert_allclose(hidden[row, :length], expected[::-1] if backward else expected, atol=1e-5)
        finals = last if isinstance(last, tuple) else (last,)
        for ours, each in zip(jax.tree.leaves(state), finals, strict=True):
            np.testing.assert_allclose(ours[row], each[0, 0].numpy(), atol=1e-5)


@pytest.mark.parametrize("backward", [False, True])
def test_packed_sentences_do_not_see_each_other(layer, backward):
    _, module, variables = layer
    # Sentences of 4 and 1 tokens and one place of padding in one row.
    packed = jnp.concatenate([INPUTS[1:2, :4], INPUTS[2:3, :1], INPUTS[:1, :1]], axis=1)
    is_token = jnp.array([[1, 1, 1, 1, 1, 0]], bool)
    starts = jnp.array([[0, 0, 0, 1, 1, 0] if backward else [1, 0, 0, 0, 1, 0]], bool)
    found, _ = module.apply(variables, packed, is_token, starts, backward=backward)
    apart, _ = module.apply(variables, INPUTS, IS_TOKEN, LAST if backward else FIRST, backward=backward)
    np.testing.assert_allclose(found[0, :4], apart[1, :4], atol=1e-6)
    np.testing.assert_allclose(found[0, 4], apart[2, 0], atol=1e-6)


def test_one_step_at_a_time_is_the_scan(layer):
    _, module, variables = layer
    hidden, _ = module.apply(variables, INPUTS, IS_TOKEN, FIRST)
    state = module.cell.start(jnp.zeros((BATCH, HIDDEN)))
    for position in range(LENGTH):
        projected = module.apply(variables, INPUTS[:, position], method="project")
        state = module.apply(variables, projected, state, method="step")
        row = int(IS_TOKEN[:, position].sum())
        np.testing.assert_allclose(module.cell.hidden(state)[:row], hidden[:row, position], atol=1e-6)

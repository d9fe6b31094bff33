"""Recurrent layers against PyTorch's, what padding may not change, and their own backward pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.recurrent import CELLS, RecurrentLayer
from transformer_jax.models.rnn import RnnEncoder
from transformer_jax.sequence_types import Tokens

BATCH, LENGTH, INPUT, HIDDEN = 3, 6, 4, 5
INPUTS = jax.random.normal(jax.random.key(0), (BATCH, LENGTH, INPUT))
IS_TOKEN = jnp.arange(LENGTH)[None] < jnp.array([6, 4, 1])[:, None]


@pytest.fixture(params=sorted(CELLS), scope="module")
def layer(request):
    layer = RecurrentLayer(CELLS[request.param](), INPUT, HIDDEN)
    variables = layer.init(jax.random.key(1), INPUTS, IS_TOKEN)
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
    hidden, state = module.apply(variables, INPUTS, IS_TOKEN, backward=backward)
    for row, length in enumerate(np.asarray(IS_TOKEN.sum(1))):
        sentence = np.array(INPUTS[row : row + 1, :length])
        with torch.no_grad():
            expected, last = theirs(torch.from_numpy(sentence[:, ::-1].copy() if backward else sentence))
        expected = expected[0].numpy()
        np.testing.assert_allclose(hidden[row, :length], expected[::-1] if backward else expected, atol=1e-5)
        finals = last if isinstance(last, tuple) else (last,)
        for ours, each in zip(jax.tree.leaves(state), finals, strict=True):
            np.testing.assert_allclose(ours[row], each[0, 0].numpy(), atol=1e-5)


def stepped(module, variables, inputs, start, backward):
    """The same as the layer, one step after another, for JAX to differentiate."""
    state, outputs = start, [None] * LENGTH
    for position in reversed(range(LENGTH)) if backward else range(LENGTH):
        projected = module.apply(variables, inputs[:, position], method="project")
        new = module.apply(variables, projected, state, method="step")
        is_token = IS_TOKEN[:, position, None]
        state = jax.tree.map(lambda one, other, is_token=is_token: jnp.where(is_token, one, other), new, state)
        outputs[position] = module.cell.hidden(state)
    return jnp.stack(outputs, axis=1), state


@pytest.mark.parametrize("backward", [False, True])
def test_values_and_gradients_are_those_of_single_steps(layer, backward):
    _, module, variables = layer
    start = module.cell.start(jnp.zeros((BATCH, HIDDEN)))
    start = jax.tree.map(lambda leaf: leaf + jax.random.normal(jax.random.key(5), leaf.shape), start)

    def scanned(variables, inputs, start):
        projected = module.apply(variables, inputs, method="project")
        return module.apply(variables, projected, start, IS_TOKEN, backward=backward, method="over_time")

    def value(run, *arguments):
        hidden, state = run(*arguments)
        weights = jax.random.normal(jax.random.key(6), hidden.shape)
        return jnp.sum(hidden * weights) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(state))

    arguments = variables, INPUTS, start
    found, reference = (
        jax.value_and_grad(partial(value, run), argnums=(0, 1, 2))(*arguments)
        for run in (scanned, lambda *each: stepped(module, *each, backward))
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(CELLS))
def test_stacked_layers_in_both_directions_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    make = partial(RecurrentLayer, CELLS[kind](), hidden_size=HIDDEN)
    encoder = RnnEncoder(lambda size: make(input_size=size), 2, INPUT, HIDDEN, is_bidirectional=True, dropout=None)
    source = Tokens.from_ids(np.asarray(IS_TOKEN, np.int32))
    variables = encoder.init(jax.random.key(3), INPUTS, source, train=False)
    theirs = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        INPUT, HIDDEN, num_layers=2, bidirectional=True, batch_first=True
    )
    with torch.no_grad():
        for name, suffix in (("forward", ""), ("backward", "_reverse")):
            for index in range(2):
                params = variables["params"][f"{name}_layers_{index}"]
                for ours, other in (("input", "ih"), ("recurrent", "hh")):
                    kernel = np.asarray(params[f"{ours}_kernel"])
                    weights = kernel.reshape(len(kernel), -1).T.copy()
                    getattr(theirs, f"weight_{other}_l{index}{suffix}").copy_(torch.from_numpy(weights))
                    bias = np.asarray(params[f"{ours}_bias"]).reshape(-1).copy()
                    getattr(theirs, f"bias_{other}_l{index}{suffix}").copy_(torch.from_numpy(bias))
        lengths = torch.tensor(np.asarray(IS_TOKEN.sum(1)))
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(np.array(INPUTS)), lengths, batch_first=True)
        expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found, _ = encoder.apply(variables, INPUTS, source, train=False)
    is_token = np.asarray(IS_TOKEN)
    np.testing.assert_allclose(found[is_token], expected.numpy()[is_token], atol=1e-5)

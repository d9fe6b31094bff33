"""Recurrent layers against PyTorch's, also of padded rows, and their own backward pass."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.layers.recurrent import CELLS, RecurrentLayer
from transformer_jax.models.rnn import RnnEncoder
from transformer_jax.sequence_types import Tokens

BATCH, LENGTH, INPUT, HIDDEN = 3, 3, 4, 5
INPUTS = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, LENGTH, INPUT)), jnp.float32)
IS_TOKEN = jnp.arange(LENGTH)[None] < jnp.array([3, 2, 1])[:, None]


def initialized(kind):
    """A layer with random parameters; no bias is zero."""
    layer = RecurrentLayer(CELLS[kind](), INPUT, HIDDEN)
    return layer, random_params(layer.init, jax.random.key(1), INPUTS, IS_TOKEN)


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


@pytest.mark.parametrize(
    ("kind", "backward"),
    [
        *(("gru", False), ("lstm", True)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gru", True), ("lstm", False))),
    ],
)
def test_values_and_gradients_are_those_of_single_steps(kind, backward):
    module, variables = initialized(kind)
    start = module.cell.start(jnp.zeros((BATCH, HIDDEN)))
    start = jax.tree.map(lambda leaf: leaf + np.cos(np.arange(leaf.size).reshape(leaf.shape)), start)

    def scanned(variables, inputs, start):
        projected = module.apply(variables, inputs, method="project")
        return module.apply(variables, projected, start, IS_TOKEN, backward=backward, method="over_time")

    def value(run, *arguments):
        hidden, state = run(*arguments)
        weights = np.sin(np.arange(hidden.size).reshape(hidden.shape))
        return jnp.sum(hidden * weights) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(state))

    arguments = variables, INPUTS, start
    result, reference = (
        jax.jit(jax.value_and_grad(partial(value, run), argnums=(0, 1, 2)))(*arguments)
        for run in (scanned, lambda *arguments: stepped(module, *arguments, backward))
    )
    for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(CELLS))
def test_stacked_layers_in_both_directions_are_those_of_pytorch(kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    make = partial(RecurrentLayer, CELLS[kind](), hidden_size=HIDDEN)
    encoder = RnnEncoder(lambda size: make(input_size=size), 2, INPUT, HIDDEN, is_bidirectional=True, dropout=None)
    source = Tokens.from_ids(np.asarray(IS_TOKEN, np.int32))
    variables = random_params(partial(encoder.init, train=False), jax.random.key(3), INPUTS, source)
    theirs = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        INPUT, HIDDEN, num_layers=2, bidirectional=True, batch_first=True
    )
    with torch.no_grad():
        for (name, suffix), index in product((("forward", ""), ("backward", "_reverse")), range(2)):
            params = variables["params"][f"{name}_layers_{index}"]
            for ours, other in (("input", "ih"), ("recurrent", "hh")):
                kernel, bias = np.asarray(params[f"{ours}_kernel"]), np.array(params[f"{ours}_bias"])
                weights = torch.from_numpy(kernel.reshape(len(kernel), -1).T.copy())
                getattr(theirs, f"weight_{other}_l{index}{suffix}").copy_(weights)
                getattr(theirs, f"bias_{other}_l{index}{suffix}").copy_(torch.from_numpy(bias.reshape(-1)))
        lengths = torch.tensor(np.asarray(IS_TOKEN.sum(1)))
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(np.array(INPUTS)), lengths, batch_first=True)
        outputs, last = theirs(packed)
        expected, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    actual, states = encoder.apply(variables, INPUTS, source, train=False)
    is_token = np.asarray(IS_TOKEN)
    np.testing.assert_allclose(actual[is_token], expected.numpy()[is_token], atol=1e-5)
    # PyTorch has [layer, direction] in one axis, we have the directions side by side.
    for ours, item in zip(jax.tree.leaves(states[1]), last if kind == "lstm" else (last,), strict=True):
        np.testing.assert_allclose(ours, np.concatenate(item[2:].numpy(), axis=-1), atol=1e-5)

"""Train and search without the trainer: python examples/own_loop.py [FOLDER OF A TRAINED RUN]"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import transformer_jax
from transformer_jax.array_types import EOS_ID
from transformer_jax.config import TransformerConfig
from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.layers.scaled_dot_product import scaled_dot_product_attention
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import call, init_params
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import label_smoothed_cross_entropy
from transformer_jax.training.parameters import named_leaves

config = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=32, d_ff=64, num_heads=2)
model = build_model(config, 20, 20)  # vocabularies of 20; ids 0, 1 and 2 are padding, BOS and EOS
params, optimizer = init_params(model, jax.random.key(0)), optax.adam(3e-3)


def loss(params, source, target, key):
    sides = Tokens.from_ids(source), Tokens.from_ids(target)
    logits = model.apply({"params": params}, *sides, train=True, rngs={"dropout": key})
    sums = label_smoothed_cross_entropy(logits, target, weights=target != 0, smoothing=0.1)
    return sums.loss / sums.tokens


@jax.jit
def update(params, state, *batch):
    value, gradient = jax.value_and_grad(loss)(params, *batch)
    change, state = optimizer.update(gradient, state)
    return optax.apply_updates(params, change), state, value


generator, state = np.random.default_rng(0), optimizer.init(params)
for number in range(300):
    words = generator.integers(4, 20, (64, 6), np.int32)
    source, target = (np.pad(ids, ((0, 0), (0, 1)), constant_values=EOS_ID) for ids in (words, words[:, ::-1]))
    params, state, value = update(params, state, source, target, jax.random.key(number))
print(f"loss of the last update: {value:.3f} nats a token")

memory = call(model, params, "encode", Tokens.from_ids(source), train=False)
cache = call(model, params, "init_cache", memory, beam_width=4, max_length=8)
step = lambda ids, cache: call(model, params, "decode_step", ids, cache)  # noqa: E731
best = beam_search(step, cache, max_lengths=jnp.full(64, 8), max_length=8, beam_width=4, length_penalty=0.6)
print(f"reversed correctly: {np.mean(np.all(best.ids[:, 0, :7] == target, axis=1)):.0%} of the sequences")

# [batch, head, position, feature]
query, key, value = jax.random.normal(jax.random.key(1), (3, 1, 2, 5, 8))
output, weights = scaled_dot_product_attention(query, key, value, jnp.tril(jnp.ones((1, 5, 5), bool)))
print("attention weights of one head:", np.round(weights[0, 0], 2), sep="\n")

for folder in sys.argv[1:]:
    for name, array in named_leaves(jax.device_get(transformer_jax.load(folder).params)).items():
        print(name, array.shape, array.dtype)

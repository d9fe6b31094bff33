"""Properties of a sequence model of any parts.

They take a ``Trial`` and the length of its sentences, return a few words, and raise ``Broken``.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import ConfigError
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.scaled_dot_product import AttentionBackend
from transformer_jax.models.devices import ANY_DEVICES, attention_of
from transformer_jax.models.inspection import captured_calls
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tools.conform.comparison import Broken, require_near
from transformer_jax.tools.conform.trials import FIRST_WORD, ROWS, VOCABULARY, Sentences, Trial, sentences, single_mesh

BEAMS = 4
# bfloat16 has eight bits, and layers and noisy parameters add up their rounding.
ROUNDING_OF_BFLOAT16 = 0.1


def step_equals_full_pass(trial: Trial, length: int) -> str:
    """Check that decoding with a cache and any parents of beams equals the full pass."""
    random, count = np.random.default_rng(0), ROWS // BEAMS
    sources = sentences(count, length).source
    tokens = random.integers(FIRST_WORD, VOCABULARY, (length, count, BEAMS)).astype(np.int32)
    tokens[0] = BOS_ID
    parents = random.integers(0, BEAMS, tokens.shape).astype(np.int32)
    logits = trial.decoded(sources if trial.has_source else np.zeros((count, 0), np.int32), tokens, parents)
    targets = np.full((count, BEAMS, length), FIRST_WORD, np.int32)
    decoded = np.zeros((*targets.shape, VOCABULARY), np.float32)
    for position in range(length):
        index = parents[position][:, :, None]
        targets = np.take_along_axis(targets, index, axis=1)
        decoded = np.take_along_axis(decoded, index[..., None], axis=1)
        decoded[:, :, position] = logits[position]
        # The input of a step is the target of the step before it.
        targets[:, :, position - 1] = tokens[position]
    full = trial.logits(Sentences(np.repeat(sources, BEAMS, axis=0), targets.reshape(ROWS, length)).batch)
    full = full.reshape(decoded.shape)
    return max((require_near(decoded[:, :, t], full[:, :, t], f"token {t + 1}") for t in range(length)), key=float)


def packed_equals_apart(trial: Trial, length: int) -> str:
    """Check that two sentences in one row have the logits of two rows."""
    width = max(length, 2)
    lengths = width // 2, max(1, (width - 1) // 2)
    first, second = (sentences(ROWS, size, unequal=False) for size in lengths)
    rows = Batch(*(_packed(pair, width) for pair in zip(first, second, strict=True)))
    packed, start, worst = trial.logits(rows), 0, []
    for name, pairs, size in zip(("first", "second"), (first, second), lengths, strict=True):
        apart = Sentences(*(np.pad(side, ((0, 0), (0, width - size))) for side in pairs))
        expected = trial.logits(apart.batch)[:, :size]
        worst.append(require_near(packed[:, start : start + size], expected, f"{name} sentence"))
        start += size
    return max(worst, key=float)


def _packed(sides: tuple[np.ndarray, np.ndarray], width: int) -> Tokens:
    """Join two sentences in a row, and pad it."""
    lengths = [side.shape[1] for side in sides]
    padding = width - sum(lengths)
    segments = np.repeat([1, 2, 0], [*lengths, padding])
    positions = np.concatenate([np.arange(length) for length in lengths] + [np.zeros(padding)])
    ids = np.pad(np.concatenate(sides, axis=1), ((0, 0), (0, padding)))
    return Tokens(ids, *(np.broadcast_to(row.astype(np.int32), ids.shape) for row in (segments, positions)))


def scan_equals_unrolled(trial: Trial, length: int) -> str:
    """Check that scanned and rematerialized layers have loss and gradient of unrolled ones."""
    pairs, refused = sentences(ROWS, length), ""
    try:
        scanned = trial.with_model(scan_layers=True, rematerialize="full").loss_and_gradient(pairs)
    except ConfigError:
        scanned = trial.with_model(rematerialize="full").loss_and_gradient(pairs)
        refused = " (scan refused: depends on the layer)"
    return require_near(scanned, trial.loss_and_gradient(pairs)) + refused


def backends_agree(trial: Trial, length: int) -> str:
    """Check that all attention backends that can run here have loss and gradient of einsum."""
    pairs = sentences(ROWS, length)
    backends: dict[str, AttentionBackend] = {"blockwise": BlockwiseAttention(query_block=2, key_block=3)}
    for name in ("cudnn", "tpu_flash"):
        try:
            config = trial.with_model(attention_backend=name, compute_dtype="bfloat16").config
            backends[name] = attention_of(config.model, single_mesh())
        except ConfigError:
            continue
    # At these lengths the backend "auto" selects einsum.
    expected, errors = trial.loss_and_gradient(pairs), {}
    with captured_calls("attend_dense_modified") as dense:
        for name, backend in backends.items():
            other = Trial(trial.config, ANY_DEVICES._replace(attention=backend), trial.params)
            tolerance = [] if name == "blockwise" else [ROUNDING_OF_BFLOAT16]
            errors[name] = require_near(other.loss_and_gradient(pairs), expected, name, *tolerance)
    words = ", ".join(f"{name} {error}" for name, error in errors.items())
    paths = dict.fromkeys(call.path.rpartition("/")[2] for call in dense)
    return f"{words}; dense, without a backend: {', '.join(paths)}" if paths else words


def jit_equals_eager(trial: Trial, length: int) -> str:
    """Check that loss and gradient are the same with and without jit."""
    pairs = sentences(ROWS, length)
    expected = trial.loss_and_gradient(pairs)
    with jax.disable_jit():
        return require_near(jax.value_and_grad(trial.loss)(trial.params, pairs.batch), expected)


def causal_by_gradient(trial: Trial, length: int) -> str:
    """Check that logits have no gradient to later tokens, and one to an earlier one."""
    # All words of the target differ, so that every token reads another row of the embedding.
    target = np.arange(FIRST_WORD, FIRST_WORD + length, dtype=np.int32)[None]
    batch = Sentences(sentences(1, length, unequal=False).source, target).batch
    direction = np.random.default_rng(2).normal(size=VOCABULARY).astype(np.float32)
    name = "target_embedding" if trial.has_source else "embedding"

    def projected(table: jax.Array) -> jax.Array:
        params = {**trial.params, name: {**trial.params[name], "table": table}}
        return trial.teacher_forced(params, batch)[0] @ direction

    @jax.jit
    def jacobian(table: jax.Array) -> jax.Array:
        # A loop: not every operation has a batched gradient, as jax.jacrev needs.
        gradient_of = jax.vjp(projected, table)[1]
        return lax.map(lambda cotangent: gradient_of(cotangent)[0], jnp.eye(length))

    jacobian_TVD = jacobian(trial.params[name]["table"])
    strength = np.abs(np.asarray(jacobian_TVD)[:, target[0]]).max(-1)
    if not np.isfinite(strength).all():
        raise Broken("the gradient is not finite")
    for position in range(length):
        # The input at a position is the token before it.
        leaks = np.flatnonzero(strength[position, position:] > 1e-6)
        if len(leaks):
            raise Broken(f"the logits of token {position + 1} depend on token {position + leaks[0] + 1}")
        if position and not strength[position, :position].max() > 1e-6:
            raise Broken(f"the logits of token {position + 1} depend on no token before it")
    return "no gradient from later tokens"


def bfloat16_near_float32(trial: Trial, length: int) -> str:
    """Check that the logits in bfloat16 are near the logits in float32."""
    batch = sentences(ROWS, length).batch
    is_token = (batch.target.segments != 0)[..., None]
    models = trial.with_model(compute_dtype="bfloat16"), trial
    rounded, expected = (np.where(is_token, model.logits(batch), 0.0) for model in models)
    return require_near(rounded, expected, tolerance=ROUNDING_OF_BFLOAT16)


def left_padding_changes_nothing(trial: Trial, length: int) -> str:
    """Check that a language model continues prompts, one padded on the left, as the full pass."""
    count = max(1, length // 2)
    width = max(2, length - count)
    words = np.random.default_rng(3).integers(FIRST_WORD, VOCABULARY, (2, width + count)).astype(np.int32)
    # BOS and the words that follow it, in the first row from the last position of the prompt on.
    words[0, : width - 1], words[0, width - 1], words[1, 0] = 0, BOS_ID, BOS_ID
    steps = words[:, width:].T[..., None]
    decoded = trial.decoded(words[:, :width], steps, np.zeros_like(steps))[:, :, 0]
    worst = []
    for row, first in enumerate((width - 1, 0)):
        target = np.tile(np.pad(words[row, first + 1 :], (0, first + 1), constant_values=FIRST_WORD), (ROWS, 1))
        expected = trial.logits(Sentences(target, target).batch)[0, width - first : width - first + count]
        worst.append(require_near(decoded[:, row], expected, f"prompt {row + 1}, a token after it"))
    return max(worst, key=float)


def search_ignores_the_batch(trial: Trial, length: int) -> str:
    """Check that beam search of a sentence depends neither on its batch nor on its index there."""
    sources, others = sentences(4, length).source, sentences(8, length).source[4:]
    once = trial.searched(sources, BEAMS)
    for first in (0, 2):
        again = trial.searched(np.concatenate([others[first : first + 2], sources[first : first + 2]]), BEAMS)
        for row, other in ((first, 2), (first + 1, 3)):
            if not np.array_equal(once.ids[row], again.ids[other]):
                best, changed = once.ids[row, 0].tolist(), again.ids[other, 0].tolist()
                raise Broken(f"sentence {row + 1}: {best}, among others {changed}")
            require_near(once.log_probs[row], again.log_probs[other], f"sentence {row + 1}")
    return "same sentences"

"""Properties of a sequence model, whatever parts it is made of.

Each takes a ``Trial`` and the length of its sentences, returns a few words, and raises ``Broken`` where it does not hold.
"""

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.decoding.beam_search import Hypotheses, beam_search, select_beams
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.scaled_dot_product import AttentionBackend, EinsumAttention
from transformer_jax.models.devices import ANY_DEVICES, attention_of
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tools.conform.comparison import Broken, require_near
from transformer_jax.tools.conform.trials import FIRST_WORD, VOCABULARY, Sentences, Trial, sentences, single_mesh

BEAMS = 3
# bfloat16 has eight bits; layers and noisy parameters add up their rounding.
ROUNDING_OF_BFLOAT16 = 0.1


def step_equals_full_pass(trial: Trial, length: int) -> str:
    """Decoding with a cache, whichever beam each beam continues, gives the logits of the full pass."""
    random = np.random.default_rng(0)
    sources = sentences(2, length).source
    cache, step = trial.start(sources, BEAMS, length), jax.jit(trial.step)
    newest = np.full((2, BEAMS), BOS_ID, np.int32)
    prefixes = np.full((2, BEAMS, length), FIRST_WORD, np.int32)
    found, seen = [], []
    for position in range(length):
        logits, cache = step(jnp.asarray(newest), cache)
        found.append(logits)
        seen.append(prefixes.copy())
        parents = random.integers(0, BEAMS, (2, BEAMS))
        cache = cache._replace(per_beam=select_beams(cache.per_beam, jnp.asarray(parents)))
        prefixes = np.take_along_axis(prefixes, parents[:, :, None], axis=1)
        prefixes[:, :, position] = newest = random.integers(FIRST_WORD, VOCABULARY, (2, BEAMS)).astype(np.int32)
    repeated = np.tile(np.repeat(sources, BEAMS, axis=0), (length, 1))
    logits_of_all = trial.logits(Sentences(repeated, np.concatenate(seen).reshape(-1, length)))
    full = np.asarray(logits_of_all).reshape(length, 2, BEAMS, length, -1)
    worst = [
        require_near(logits, full[position, :, :, position], f"token {position + 1}")
        for position, logits in enumerate(found)
    ]
    return max(worst, key=float)


def packed_equals_apart(trial: Trial, length: int) -> str:
    """Two sentences in one row give the logits of two rows."""
    pairs = sentences(2, length)
    packed = Batch(*(_packed(side) for side in pairs))
    lengths = np.sum(pairs.target != 0, axis=1)
    found, expected = trial.logits(packed)[0], trial.logits(pairs)
    second = slice(int(lengths[0]), int(lengths.sum()))
    require_near(found[: lengths[0]], expected[0, : lengths[0]], "first sentence")
    return require_near(found[second], expected[1, : lengths[1]], "second sentence")


def _packed(side: np.ndarray) -> Tokens:
    """Two rows as one, and two positions of padding."""
    lengths = np.sum(side != 0, axis=1)
    ids = np.concatenate([row[:length] for row, length in zip(side, lengths, strict=True)] + [np.zeros(2, np.int32)])
    segments = np.repeat([1, 2, 0], [*lengths, 2]).astype(np.int32)
    positions = np.concatenate([np.arange(length) for length in (*lengths, 0)] + [np.zeros(2)]).astype(np.int32)
    return Tokens(ids[None].astype(np.int32), segments[None], positions[None])


def scan_equals_unrolled(trial: Trial, length: int) -> str:
    """Scanned and rematerialized layers give loss and gradient of unrolled ones."""
    pairs = sentences(2, length)
    expected, worst = trial.loss_and_gradient(pairs), []
    for scanned, stored in ((False, "full"), (True, "none"), (True, "full")):
        name = f"scan_layers={scanned}, rematerialize={stored}"
        try:
            found = trial.with_model(scan_layers=scanned, rematerialize=stored).loss_and_gradient(pairs)
        except ConfigError:
            if not scanned:
                raise
            worst.append("0")
            continue
        worst.append(require_near(found, expected, name))
    refused = " (scan refused: depends on the layer)" if "0" in worst else ""
    return max(worst, key=float) + refused


def backends_agree(trial: Trial, length: int) -> str:
    """All attention backends that can run here give loss and gradient of the einsum reference."""
    pairs = sentences(2, length)
    backends: dict[str, AttentionBackend] = {"blockwise": BlockwiseAttention(query_block=2, key_block=3)}
    for name in ("cudnn", "tpu_flash"):
        try:
            config = trial.with_model(attention_backend=name, compute_dtype="bfloat16").config
            backends[name] = attention_of(config.model, single_mesh())
        except ConfigError:
            continue
    expected = trial.loss_and_gradient(pairs, ANY_DEVICES._replace(attention=EinsumAttention()))
    found = {
        name: require_near(
            trial.loss_and_gradient(pairs, ANY_DEVICES._replace(attention=backend)),
            expected,
            name,
            *([] if name == "blockwise" else [ROUNDING_OF_BFLOAT16]),
        )
        for name, backend in backends.items()
    }
    return ", ".join(f"{name} {error}" for name, error in found.items())


def causal_by_gradient(trial: Trial, length: int) -> str:
    """No logit of a target has a gradient with respect to a later token, and each has one to some earlier token."""
    # All words of the target differ, so that each reads its own row of the embedding.
    target = np.arange(FIRST_WORD, FIRST_WORD + length, dtype=np.int32)[None]
    pairs = Sentences(sentences(1, length, unequal=False).source, target)
    direction = jax.random.normal(jax.random.key(2), (VOCABULARY,))
    name = "target_embedding" if trial.has_source else "embedding"

    def projected(table: jax.Array) -> jax.Array:
        params = {**trial.params, name: {**trial.params[name], "table": table}}
        model, batch = trial.model(), pairs.batch
        inputs = batch if trial.has_source else batch[1:]
        return call(model, params, "__call__", *inputs, train=False)[0] @ direction

    jacobian_TVD = jax.jit(jax.jacrev(projected))(trial.params[name]["table"])
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
    """In bfloat16 the logits stay near those of float32."""
    pairs = sentences(2, length)
    found = trial.with_model(compute_dtype="bfloat16").logits(pairs)
    is_token = (pairs.target != 0)[..., None]
    expected = np.where(is_token, trial.logits(pairs), 0.0)
    return require_near(np.where(is_token, found, 0.0), expected, tolerance=ROUNDING_OF_BFLOAT16)


def left_padding_changes_nothing(trial: Trial, length: int) -> str:
    """A language model continues a prompt that is padded on the left as it continues the prompt alone."""
    words = np.arange(FIRST_WORD, FIRST_WORD + length, dtype=np.int32)
    alone = np.concatenate([[BOS_ID], words])[None].astype(np.int32)
    beside = np.concatenate([[BOS_ID], words[::-1], words[:2]])[None].astype(np.int32)
    padded = np.concatenate([np.pad(alone, ((0, 0), (beside.shape[1] - alone.shape[1], 0))), beside])
    found, expected = _continued(trial, padded, 3), _continued(trial, alone, 3)
    return require_near([logits[:1] for logits in found], expected, "a token after the prompt")


def _continued(trial: Trial, prompts: np.ndarray, count: int) -> list[np.ndarray]:
    """Logits of ``count`` words that are given after prompts [B, P]."""
    model = trial.model()
    cache = jax.jit(lambda params, inputs: call(model, params, "init_cache", inputs, beam_width=1, max_length=count))(
        trial.params, jnp.asarray(prompts)
    )
    step, found = jax.jit(trial.step), []
    for word in range(count):
        logits, cache = step(jnp.full((len(prompts), 1), FIRST_WORD + word, jnp.int32), cache)
        found.append(np.asarray(logits))
    return found


def search_ignores_the_batch(trial: Trial, length: int) -> str:
    """Beam search finds the same for a sentence alone as among others."""
    sources = sentences(3, length).source
    together = _searched(trial, sources, length)
    for row in range(len(sources)):
        alone = _searched(trial, sources[row : row + 1], length)
        if not np.array_equal(together.ids[row], alone.ids[0]):
            raise Broken(f"sentence {row + 1}: {together.ids[row, 0].tolist()}, alone {alone.ids[0, 0].tolist()}")
        require_near(together.log_probs[row], alone.log_probs[0], f"sentence {row + 1}")
    return "same sentences"


def _searched(trial: Trial, sources: np.ndarray, length: int) -> Hypotheses:
    @jax.jit
    def search(cache: PyTree, lengths: jax.Array) -> Hypotheses:
        return beam_search(
            trial.step, cache, max_lengths=lengths, max_length=length, beam_width=BEAMS, length_penalty=0.6
        )

    lengths = jnp.asarray(np.sum(sources != 0, axis=1))
    found: Hypotheses = jax.device_get(search(trial.start(sources, BEAMS, length), lengths))
    return found

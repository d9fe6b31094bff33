"""Generation: the tokens of the full forward pass, alone and in a batch, at once and streamed."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks.language_model_settings import language_model_config

from transformer_jax.array_types import BOS_ID, EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.language_model.generator import Generator
from transformer_jax.tasks.language_model.language_model_task import LanguageModelObjective
from transformer_jax.training.sharding import make_mesh

PROMPTS = ["The cat", "", "A house \u00fc"]
TOKENIZER = ByteTokenizer()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = language_model_config(tmp_path_factory.mktemp("cache"))
    objective = LanguageModelObjective(config, TOKENIZER.vocabulary_size, make_mesh(config.mesh, jax.devices()[:1]))
    params = jax.device_get(jax.jit(objective.init_params)(jax.random.key(0)))
    # Sharper than at the beginning, so that prompts matter.
    return objective.model, jax.tree.map(lambda leaf: 2 * leaf, params)


@pytest.fixture(scope="module")
def generator(model):
    """Generators by their settings, each made once, with its programs."""

    @cache
    def make(kind="split", **decoding):
        config = language_model_config("unused", decoding={"max_new_tokens": 8, **decoding}, batching={"kind": kind})
        return Generator(model[0], TOKENIZER, config, make_mesh(config.mesh, jax.devices()[:1]))

    return make


def log_probs_after(model, prompt, token_ids):
    """Of all tokens at each of ``token_ids``, by a full pass over one document after another."""
    ids = np.zeros((1, 32), np.int32)
    context = [EOS_ID, *TOKENIZER.encode(prompt), *token_ids]
    ids[0, : len(context)] = context
    tokens = Tokens(ids, np.ones_like(ids), np.arange(32, dtype=np.int32)[None])
    of_all = np.array(jax.nn.log_softmax(logits_of(*model, tokens)))
    return of_all[0, len(context) - len(token_ids) : len(context)]


@partial(jax.jit, static_argnums=0)
def logits_of(model, params, tokens):
    return call(model, params, "__call__", tokens, train=False)


def test_greedy_takes_the_most_probable_token_of_the_full_forward_pass(model, generator):
    for prompt, result in zip(PROMPTS, generator(temperature=0.0).continuations(model[1], PROMPTS), strict=True):
        of_all = log_probs_after(model, prompt, result.token_ids)
        of_all[:, [0, BOS_ID]] = -np.inf
        assert result.token_ids == of_all.argmax(-1).tolist()
        assert len(result.token_ids) == 8 or result.token_ids[-1] == EOS_ID


@pytest.mark.parametrize(
    "decoding", [{}, pytest.param({"temperature": 0.7, "top_k": 20}, marks=pytest.mark.slow), {"beam_width": 3}]
)
def test_log_probabilities_are_those_of_the_full_forward_pass(model, generator, decoding):
    for prompt, result in zip(PROMPTS, generator(**decoding).continuations(model[1], PROMPTS), strict=True):
        of_all = log_probs_after(model, prompt, result.token_ids)
        assert result.log_prob == pytest.approx(of_all[np.arange(len(of_all)), result.token_ids].sum(), abs=1e-3)


def test_what_is_drawn_for_a_prompt_does_not_depend_on_the_others(model, generator):
    generate = generator()
    together = generate.continuations(model[1], PROMPTS, seed=3)
    assert generate.continuations(model[1], PROMPTS[:1], seed=3)[0].token_ids == together[0].token_ids
    other = generate.continuations(model[1], [PROMPTS[0], "x" * 20, PROMPTS[2]], seed=3)
    assert [other[0].token_ids, other[2].token_ids] == [together[0].token_ids, together[2].token_ids]
    assert generate.continuations(model[1], PROMPTS, seed=4) != together
    assert other[1].token_ids != together[1].token_ids


@pytest.mark.parametrize("decoding", [pytest.param({}, marks=pytest.mark.slow), {"temperature": 0.5, "top_p": 0.8}])
def test_a_stream_adds_up_to_the_continuation(model, generator, decoding):
    generate = generator(**decoding)
    for prompt in PROMPTS:
        pieces = list(generate.stream(model[1], prompt, seed=5))
        assert "".join(pieces) == generate.continuations(model[1], [prompt], seed=5)[0].text


def test_characters_of_several_bytes_are_never_shown_in_part(model, generator, monkeypatch):
    generate = generator()
    coming = iter(TOKENIZER.encode("a\u00fc\U0001f600!"))
    real, asked = generate._next, []

    def told(*arguments):
        asked.append(arguments)
        state = real(*arguments)
        token = next(coming, EOS_ID)
        alive = state.alive._replace(last_ids=jnp.full_like(state.alive.last_ids, token))
        return state._replace(alive=alive, is_done=jnp.array([token == EOS_ID]))

    monkeypatch.setattr(generate, "_next", told)
    seen = [(piece, len(asked)) for piece in generate.stream(model[1], "x")]
    # Each comes as soon as its last byte was generated.
    assert seen == [("a", 1), ("\u00fc", 3), ("\U0001f600", 7), ("!", 8)]


def test_a_line_break_in_a_prompt_ends_a_document(generator):
    expected = [BOS_ID, *TOKENIZER.encode("a"), EOS_ID, *TOKENIZER.encode("b")]
    assert generator().windows(["a\nb"]) == ([expected], "")
    with pytest.raises(DataError, match=r"--prompt: has 2 documents .*batching.kind=packed"):
        generator("packed").windows(["a\nb"], "--prompt")


def test_of_a_prompt_that_leaves_no_room_the_model_sees_the_end_and_says_so(model, generator):
    generate, end = generator(), "the end of the prompt..."
    long, alone = ("\u00fc" * 40 + end, end)
    assert len(end) == 24 and generate.windows(["y", end]).remark == ""
    ids, remark = generate.windows(["y", long, "z" * 99])
    assert [item[1:] for item in ids] == [TOKENIZER.encode(text) for text in ("y", end, "z" * 24)]
    assert remark == (
        "prompt 2: has 104 tokens (1 more are too long, too); decoding.max_new_tokens=8 of a context of 32 tokens leave the "
        "model the last 24"
    )
    actual, expected = generate.continuations(model[1], [long, alone]), generate.continuations(model[1], [alone, alone])
    assert [item.token_ids for item in actual] == [item.token_ids for item in expected]
    assert [item.text for item in actual] == [item.text for item in expected]
    # The end of another document is before a prompt only where it fits too.
    assert [len(row) for row in generate._rows(["", "z" * 23, "z" * 24, "z" * 25])] == [2, 25, 25, 25]
    assert generator("packed")._rows(["z"]) == [[BOS_ID, *TOKENIZER.encode("z")]]
    with pytest.raises(
        DataError, match=r"prompt: decoding.max_new_tokens=32 of a context of 32 tokens do not fit beside"
    ):
        generator(max_new_tokens=32).windows(["y"])

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import lookup_model

from transformer_jax.array_types import PAD_ID
from transformer_jax.decoding.beam_search import Hypotheses, beam_search
from transformer_jax.sequence_types import DecodeCache


@pytest.fixture(scope="module")
def search():
    """Beam search over tables, compiled once for each shape and width."""

    @functools.partial(jax.jit, static_argnames=("max_length", "beam_width", "num_results", "stop"))
    def compiled(cache, max_lengths, alpha, forced, **static):
        limits = {"max_lengths": max_lengths, "length_penalty": alpha, "forced": forced}
        return beam_search(lookup_model.step, cache, **limits, **static)

    def run(
        tables, limits, *, max_length, beam_width, alpha=0.6, num_results=None, stop="exact", forced=None
    ) -> Hypotheses:
        cache = lookup_model.make_cache(tables, beam_width, max_length)
        static = {"max_length": max_length, "beam_width": beam_width, "num_results": num_results, "stop": stop}
        return jax.device_get(compiled(cache, jnp.asarray(limits, jnp.int32), jnp.float32(alpha), forced, **static))

    return run


def ids_with_eos(found: Hypotheses, sentence: int, rank: int) -> tuple[int, ...]:
    return tuple(int(token) for token in found.ids[sentence, rank, : found.lengths[sentence, rank]])


def assert_same_hypotheses(found: Hypotheses, sentence: int, expected) -> None:
    for rank, hypothesis in enumerate(expected):
        assert ids_with_eos(found, sentence, rank) == hypothesis.ids
        assert lookup_model.is_close(found.scores[sentence, rank], hypothesis.score)
        assert lookup_model.is_close(found.log_probs[sentence, rank], hypothesis.log_prob)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_equals_exhaustive_search(search, alpha):
    tables = lookup_model.random_tables(4, 6, seed=1)
    limits = [4, 3, 2, 1]
    found = search(tables, limits, max_length=4, beam_width=81, alpha=alpha)
    for sentence, limit in enumerate(limits):
        expected = lookup_model.exhaustive_search(tables[sentence], limit, alpha)
        assert len(expected) == sum(3**length for length in range(limit))
        assert_same_hypotheses(found, sentence, expected)
        assert (found.lengths[sentence, len(expected) :] == 0).all()
        assert (found.ids[sentence, len(expected) :] == PAD_ID).all()
        assert (found.scores[sentence, len(expected) :] == -np.inf).all()


def test_forced_tokens_begin_every_hypothesis_of_their_sentence(search):
    tables = lookup_model.random_tables(3, 6, seed=1)
    forced = np.array([[3, 5], [4, PAD_ID], [PAD_ID, PAD_ID]], np.int32)
    found = search(tables, [4, 4, 4], max_length=4, beam_width=81, forced=forced)
    for sentence, prefix in enumerate(((3, 5), (4,), ())):
        every = lookup_model.exhaustive_search(tables[sentence], 4, 0.6)
        expected = [each for each in every if each.ids[: len(prefix)] == prefix]
        assert len(expected) > 0 and (len(expected) < len(every) or not prefix)
        assert_same_hypotheses(found, sentence, expected)
        assert (found.lengths[sentence, len(expected) :] == 0).all()


@pytest.mark.parametrize("eos_bias", [-3.0, 0.0, 3.0])
def test_early_stop_changes_nothing(search, eos_bias):
    tables = lookup_model.random_tables(12, 9, seed=3, eos_bias=eos_bias)
    limits = [10, 9, 8, 7, 6, 5, 10, 10, 3, 2, 10, 10]
    found = search(tables, limits, max_length=10, beam_width=3)
    for sentence, limit in enumerate(limits):
        expected = lookup_model.plain_beam_search(tables[sentence], limit, 0.6, 3)
        assert_same_hypotheses(found, sentence, expected)
    best = search(tables, limits, max_length=10, beam_width=3, num_results=1)
    np.testing.assert_array_equal(best.ids, found.ids[:, :1])
    np.testing.assert_array_equal(best.scores, found.scores[:, :1])


def test_search_stops_early():
    """Where EOS is nearly certain the step runs a few times, not ``max_length`` times; for one
    result, once."""
    calls = []

    def counted_step(token_ids, cache):
        jax.debug.callback(lambda: calls.append(None))
        return lookup_model.step(token_ids, cache)

    tables = lookup_model.random_tables(2, 9, eos_bias=12.0)
    counts = []
    for num_results in (1, 3):
        calls.clear()
        cache = lookup_model.make_cache(tables, 3, 30)
        options = {"max_length": 30, "beam_width": 3, "length_penalty": 0.6, "num_results": num_results}
        counted = jax.jit(functools.partial(beam_search, counted_step, **options))
        jax.block_until_ready(counted(cache, max_lengths=jnp.array([30, 0])))
        jax.effects_barrier()
        counts.append(len(calls))
    assert counts[0] == 1
    assert 1 < counts[1] < 10


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_one_beam_is_greedy_search(search, alpha):
    """It ends at the first EOS, also where the penalty would prefer what its second choice leads
    to."""
    tables = lookup_model.random_tables(40, 9, seed=5, scale=4.0)
    limits = [12] * 36 + [4, 3, 2, 1]
    found = search(tables, limits, max_length=12, beam_width=1, alpha=alpha)
    for sentence, limit in enumerate(limits):
        assert ids_with_eos(found, sentence, 0) == lookup_model.greedy_search(tables[sentence], limit)


def test_stopping_at_the_first_beams_takes_the_first_that_finish(search):
    tables = lookup_model.random_tables(12, 9, seed=3)
    options = {"max_length": 10, "beam_width": 3, "alpha": 2.0}
    exact = search(tables, [10] * 12, **options)
    early = search(tables, [10] * 12, **options, stop="first_beams")
    assert (early.scores[:, 0] <= exact.scores[:, 0]).all() and (early.scores[:, 0] < exact.scores[:, 0]).any()
    assert (early.lengths > 0).all() and early.lengths.sum() < exact.lengths.sum()


LIMITS = np.array([12, 5, 9, 2, 12, 1, 0, 7])


@pytest.fixture(scope="module")
def together(search):
    """Eight tables, and their hypotheses."""
    tables = lookup_model.random_tables(8, 9, seed=7, eos_bias=1.0)
    return tables, search(tables, LIMITS, max_length=12, beam_width=4)


def test_the_result_does_not_depend_on_the_batch(search, together):
    tables, expected = together
    order = np.array([4, 2, 0, 5, 3, 7, 6, 1])
    shuffled = search(tables[order], LIMITS[order], max_length=12, beam_width=4)
    # Every second sentence is padding.
    is_padding, limits = np.arange(8) % 2 == 1, LIMITS.copy()
    limits[is_padding] = 0, 0, -3, 0
    padded = search(np.where(is_padding[:, None, None], 0 * tables, tables), limits, max_length=12, beam_width=4)
    wider = search(tables, LIMITS, max_length=15, beam_width=4)
    for field in Hypotheses._fields:
        of_all = getattr(expected, field)
        np.testing.assert_array_equal(getattr(shuffled, field), of_all[order])
        np.testing.assert_array_equal(getattr(padded, field)[~is_padding], of_all[~is_padding])
        assert not np.isnan(getattr(padded, field)).any()
    assert not padded.lengths[is_padding].any() and not padded.ids[is_padding].any()
    np.testing.assert_array_equal(wider.ids[:, :, :12], expected.ids)
    for sentence, limit in enumerate(LIMITS):
        alone = search(tables[sentence : sentence + 1], [limit], max_length=12, beam_width=4)
        np.testing.assert_array_equal(alone.ids[0], expected.ids[sentence])
        np.testing.assert_array_equal(alone.scores[0], expected.scores[sentence])


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
def test_the_result_does_not_depend_on_the_number_of_devices(search, together):
    tables, expected = together
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    by_row = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    many = search(jax.device_put(tables, by_row), LIMITS, max_length=12, beam_width=4)
    for field in Hypotheses._fields:
        np.testing.assert_array_equal(getattr(many, field), getattr(expected, field))


def test_impossible_continuations_give_no_nan(search):
    tables = lookup_model.random_tables(4, 6)
    tables[:, :, 4:] = -np.inf
    found = search(tables, [3, 3, 3, 3], max_length=4, beam_width=81)
    assert (np.sum(found.lengths > 0, axis=1) == 3).all(), "of one word none, one or two"
    assert not np.isnan(found.scores).any() and not np.isnan(found.log_probs).any()


def test_impossible_sizes_are_named():
    cache = lookup_model.make_cache(lookup_model.random_tables(2, 6), 3, 4)
    call = functools.partial(beam_search, lookup_model.step, max_lengths=jnp.array([4, 4]), length_penalty=0.6)
    with pytest.raises(ValueError, match="num_results=4"):
        call(cache, max_length=4, beam_width=3, num_results=4)
    with pytest.raises(ValueError, match=r"per_beam\['lengths'\] has shape \(2,\)"):
        call(DecodeCache({"lengths": jnp.zeros(2)}, {}), max_length=4, beam_width=2)

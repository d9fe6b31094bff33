import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.config import BatchingConfig, ConfigError, load_run_config
from transformer_jax.data.batch_plan import plan_batches
from transformer_jax.data.buckets import max_rows

OLD_RUN = Path(__file__).parent / "old_runs/transformer"

TOKENS = {"kind": "packed", "count": "tokens", "packed_length": 16}
SETTINGS = {"buckets": {}, "packed": {"kind": "packed", "packed_length": 64}, "tokens": TOKENS}
# The pairs of an epoch of a mixture: some twice or three times.
REPEATED = np.repeat(np.arange(57), np.arange(57) % 3 + 1)
KINDS = tuple(SETTINGS)


def lengths_of(number, seed=0):
    return np.random.default_rng(seed).integers(1, 40, (2, number)).astype(np.int32)


def make_plan(kind, number=500, seed=0, epoch_pairs=None, **settings):
    config = BatchingConfig(**{"tokens_per_update": 512} | SETTINGS[kind] | settings)
    return plan_batches(lengths_of(number), config, seed, epoch_pairs)


def epoch_of(plan, epoch):
    first = epoch * plan.batches_per_epoch
    return [plan.batch(update) for update in range(first, first + plan.batches_per_epoch)]


def order_of(plan, epoch):
    return [batch.pairs.tolist() for batch in epoch_of(plan, epoch)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch_pairs", [np.arange(1), np.arange(500), REPEATED], ids=("one", "all", "repeated"))
def test_an_epoch_has_the_pairs_in_batches_of_the_promised_shapes(kind, epoch_pairs):
    plan, sides, result = (
        make_plan(kind, epoch_pairs[-1] + 1, epoch_pairs=epoch_pairs),
        lengths_of(epoch_pairs[-1] + 1),
        {},
    )
    np.testing.assert_array_equal(np.sort(np.concatenate([batch.pairs for batch in epoch_of(plan, 1)])), epoch_pairs)
    for shape, pairs, offsets in epoch_of(plan, 1):
        rows, *widths = shape
        most = max_rows(max(widths), 512, 8) if kind == "tokens" else 512 // max(widths)
        assert rows % 8 == 0 and rows <= most
        assert len(offsets) == rows + 1 and offsets[0] == 0 and offsets[-1] == len(pairs)
        sizes = np.diff(offsets)
        assert kind != "buckets" or sizes.max() == 1
        for side, width in zip(sides, widths, strict=True):
            row_of_pair = np.repeat(np.arange(rows), sizes)
            assert np.bincount(row_of_pair, weights=side[pairs], minlength=rows).max() <= width
        result[shape] = result.get(shape, 0) + 1
    assert result == plan.batches
    for side, reported in enumerate(plan.padding_share):
        positions = sum(count * shape[0] * shape[1 + side] for shape, count in result.items())
        assert reported == pytest.approx(1 - sides[side][epoch_pairs].sum() / positions)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch_pairs", [None, REPEATED], ids=("all", "repeated"))
def test_a_batch_depends_on_seed_and_update_alone(kind, epoch_pairs):
    plan, again, other = (make_plan(kind, seed=seed, epoch_pairs=epoch_pairs) for seed in (0, 0, 1))
    assert order_of(plan, 0) != order_of(plan, 1)
    assert order_of(plan, 0) != order_of(other, 0)
    in_order = [pairs for epoch in range(3) for pairs in order_of(plan, epoch)]
    for update in np.random.default_rng(0).permutation(len(in_order)).tolist():
        assert again.batch(update).pairs.tolist() == in_order[update]


def test_an_update_has_the_tokens_that_were_asked_for_and_little_padding():
    # Log-normal as in WMT, the sides correlated by 0.9.
    source, noise = np.random.default_rng(0).standard_normal((2, 10_000))
    normal = np.stack([source, 0.9 * source + np.sqrt(1 - 0.9**2) * noise])
    lengths = np.clip(np.rint(25 * np.exp(0.62 * normal)), 2, 256).astype(np.int32)
    config = BatchingConfig(**TOKENS | {"tokens_per_update": 25_000, "packed_length": 128, "width_multiple": 16})
    plan = plan_batches(lengths, config, seed=0)
    assert max(plan.padding_share) <= 0.1 and len(plan.shapes) <= 4
    assert all(width % 16 == 0 for _, *widths in plan.shapes for width in widths)
    result = [lengths[:, batch.pairs].sum() / 2 for batch in epoch_of(plan, 0)]
    # An epoch has a whole number of updates.
    assert np.mean(result) == pytest.approx(25_000, rel=max(0.02, 0.6 / len(result)))
    assert np.mean(result) == pytest.approx(sum(plan.tokens_per_update) / 2)


@pytest.mark.parametrize(
    "kind, digest",
    [("buckets", "e0f28aa771f41ab6"), ("packed", "e0ec939beb1b95b8"), ("tokens", "174201085b975504")],
)
def test_a_run_of_an_earlier_version_has_the_batches_that_it_had(kind, digest):
    """The digests are from commits d558726, and 89fce0f where tokens are counted."""
    saved = load_run_config(OLD_RUN).batching
    assert saved.count == "positions"
    old = replace(saved, kind="packed" if kind == "tokens" else kind, tokens_per_update=512, num_buckets=5)
    config = BatchingConfig(**TOKENS, tokens_per_update=512) if kind == "tokens" else replace(old, packed_length=64)
    plan = plan_batches(lengths_of(500), config, seed=0)
    result = hashlib.sha256()
    for batch in [*epoch_of(plan, 0), *epoch_of(plan, 1)]:
        for part in batch:
            result.update(np.asarray(part, np.int64).tobytes())
    assert result.hexdigest()[:16] == digest


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ConfigError, match=r"batching\.packed_length: 16 .* 39"):
        make_plan("packed", packed_length=16)
    with pytest.raises(ValueError, match="no pairs"):
        make_plan("buckets", number=0)
    with pytest.raises(ValueError, match="before the first"):
        make_plan("buckets").batch(-1)
    with pytest.raises(ValueError, match="in 3 parts"):
        make_plan("packed").batch(0).part(0, 3)

"""The arithmetic of the benchmarks: what is counted, and how medians are taken. Nothing is timed here."""

import math

import jax
import numpy as np
import pytest

from transformer_jax.config import TransformerConfig
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params
from transformer_jax.sequence_types import Batch, Tokens


def flops_of_products(jaxpr) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += flops_of_products(inner) if hasattr(inner, "eqns") else 0.0
    return total


def test_the_formula_counts_every_product_of_the_model(benchmark_module):
    workload = benchmark_module("workload")
    config = TransformerConfig(
        num_encoder_layers=2, num_decoder_layers=3, d_model=8, d_ff=12, num_heads=2, dropout=0.0, embedding_dropout=0.0
    )
    model = build_model(config, 17, 17)
    rows, source_width, target_width = 3, 5, 7
    batch = Batch(*(Tokens.from_ids(np.full((rows, width), 4, np.int32)) for width in (source_width, target_width)))
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    traced = jax.make_jaxpr(lambda params: model.apply({"params": params}, *batch, train=False))(params)
    assert workload.padded_flops(batch, config, 17) == 3 * flops_of_products(traced.jaxpr)
    assert workload.useful_flops(batch, config, 17) == workload.padded_flops(batch, config, 17)


def test_padding_is_not_useful(benchmark_module):
    workload = benchmark_module("workload")
    config = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=8, d_ff=12, num_heads=2)
    ids = np.array([[4, 2, 0, 0], [4, 5, 6, 2]], np.int32)
    batch = Batch(Tokens.from_ids(ids), Tokens.from_ids(ids))
    alone = [Batch(*(Tokens.from_ids(row[None, row > 0]) for _ in "st")) for row in ids]
    assert workload.useful_flops(batch, config, 17) == sum(workload.padded_flops(one, config, 17) for one in alone)
    assert workload.target_tokens(batch) == 6


def test_every_shape_is_warmed_up_once(benchmark_module):
    workload = benchmark_module("workload")
    widths = [3, 4, 3, 4, 4]
    batches = [Batch(*(Tokens.from_ids(np.full((2, width), 4, np.int32)) for _ in "st")) for width in widths]
    chosen = list(workload.one_of_each_shape(batches))
    assert sorted(map(workload.shape_of, chosen)) == [(2, 3, 3), (2, 4, 4)]
    assert any(batch is batches[0] for batch in chosen)


def step(shape: tuple[int, int, int], seconds: float, tokens: int) -> dict:
    return {"shape": shape, "seconds": seconds, "target_tokens": tokens}


def test_a_hiccup_does_not_change_the_rate(benchmark_module):
    training_speed = benchmark_module("training_speed")
    short = [step((2, 3, 3), seconds, 10) for seconds in (1.0, 1.0, 60.0)]
    long = [step((2, 9, 9), 4.0, 30)]
    assert training_speed.tokens_per_second(short + long) == pytest.approx(60 / 7)


def test_the_verdict_compares_round_by_round(benchmark_module):
    training_speed = benchmark_module("training_speed")
    contestants = {
        "ours float32": {"target_tokens_per_second": 30.0, "target_tokens_per_second_of_rounds": [20.0, 30.0, 40.0]},
        "torch eager": {"target_tokens_per_second": 20.0, "target_tokens_per_second_of_rounds": [10.0, 20.0, 40.0]},
        "ours bfloat16": {"target_tokens_per_second": 99.0, "target_tokens_per_second_of_rounds": [99.0, 99.0, 99.0]},
    }
    assert training_speed.verdict(contestants) == {
        "ours float32 / torch eager": {"ratio_of_medians": 1.5, "rounds": [2.0, 1.5, 1.0]}
    }


@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_generated_work_is_read_as_it_was_recorded(benchmark_module, monkeypatch, tmp_path, batching):
    workload = benchmark_module("workload")
    monkeypatch.setattr(workload, "GENERATED_PAIRS", 300)
    config = workload.benchmark_config(workload.GENERATED, "tiny", batching, 2048)
    shapes = workload.record(config, tmp_path, 3)
    work = workload.load(tmp_path)
    assert work.config == config
    assert work.vocabulary_size == workload.GENERATED_VOCABULARY
    assert {workload.shape_of(batch) for batch in work.batches} <= set(shapes)
    for batch in work.batches:
        lengths = [workload.sentence_lengths(tokens) for tokens in batch]
        assert len(lengths[0]) == len(lengths[1])
        ends = [int((tokens.ids == 2).sum()) for tokens in batch]
        assert [int((each > 0).sum()) for each in lengths] == ends
        assert workload.useful_flops(batch, config.model, 9) < workload.padded_flops(batch, config.model, 9)
    if batching == "packed":
        assert work.batches[0].source.segments.max() > 1


def test_growth_is_expected_to_follow_the_operations(benchmark_module):
    growth = benchmark_module("growth")
    rows = [{"seconds": seconds, "flops": flops} for seconds, flops in ((9.0, 10), (2.0, 20), (7.0, 60))]
    assert growth.expected(rows) == [1.0, 2.0, 6.0]


def test_what_devices_are_expected_to_send(benchmark_module):
    expected = benchmark_module("weak_scaling").expected
    assert expected("data", 1, 800, 16) == expected("tensor", 1, 800, 16) == 0
    assert expected("data", 4, 800, 16) == 2 * 600
    assert expected("fsdp", 4, 800, 16) == 3 * 600
    assert expected("tensor", 2, 800, 16, layers=1) == 16 * 11

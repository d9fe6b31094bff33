"""Numbers of a run, and what is left of its settings without them."""

import pytest

from transformer_jax.config import (
    ExperimentConfig,
    Numbers,
    Rates,
    apply_overrides,
    from_dict,
    numbers_of,
    structure_of,
    to_dict,
)

ON = [
    ("optimizer.name", "adamw"),
    ("optimizer.weight_decay", "0.1"),
    ("optimizer.clip_norm", "1.0"),
    ("model.attention_dropout", "0.1"),
    ("model.activation_dropout", "0.1"),
]
RNN = {"model": {"kind": "rnn", "scheduled_sampling": 0.2}}
OF_STEP = {
    "optimizer.learning_rate": "0.3",
    "optimizer.warmup_updates": "7",
    "training.num_updates": "99",
    "optimizer.b1": "0.0",
    "optimizer.b2": "0.5",
    "optimizer.epsilon": "1e-4",
    "optimizer.weight_decay": "0.2",
    "optimizer.clip_norm": "0.5",
    "training.label_smoothing": "0.3",
}
OF_MODEL = {
    "model.dropout": "0.3",
    "model.embedding_dropout": "0.4",
    "model.attention_dropout": "0.5",
    "model.activation_dropout": "0.6",
}
UNSEEN = [
    "log_every",
    "evaluate_every",
    "checkpoint_every",
    "patience",
    "validation_sentences",
    "keep_last",
    "keep_best",
]


def changed(config: ExperimentConfig, *overrides: tuple[str, str]) -> ExperimentConfig:
    from ml_collections import ConfigDict

    return from_dict(apply_overrides(ConfigDict(to_dict(config)), overrides))


TRANSFORMER = changed(ExperimentConfig(), *ON)
RECURRENT = from_dict(RNN)
NUMBERS = [(TRANSFORMER, *item) for item in (OF_STEP | OF_MODEL).items()]
NUMBERS += [(RECURRENT, "model.scheduled_sampling", "1.0"), (RECURRENT, "model.dropout", "0.3")]


@pytest.mark.parametrize(("config", "key", "value"), NUMBERS)
def test_another_number_is_told_to_the_same_program(config, key, value):
    other = changed(config, (key, value))
    assert structure_of(other) == structure_of(config)
    assert hash(structure_of(other)) == hash(structure_of(config))
    name = key.rpartition(".")[2]
    found = {**numbers_of(other)._asdict(), **numbers_of(other).rates._asdict()}
    assert found.pop(name) == float(value)
    before = {**numbers_of(config)._asdict(), **numbers_of(config).rates._asdict()}
    assert all(before[each] == value for each, value in found.items() if each != "rates")


def test_every_number_was_tried():
    tried = {key.rpartition(".")[2] for _, key, _ in NUMBERS}
    assert tried == set(Numbers._fields) - {"rates"} | set(Rates._fields)


@pytest.mark.parametrize("key", ["weight_decay", "clip_norm", "label_smoothing", *(key[6:] for key in OF_MODEL)])
def test_what_is_off_is_another_program(key):
    block = "training" if key == "label_smoothing" else "model" if "dropout" in key else "optimizer"
    off = changed(TRANSFORMER, (f"{block}.{key}", "0.0"))
    assert structure_of(off) != structure_of(TRANSFORMER)
    assert {**numbers_of(off)._asdict(), **numbers_of(off).rates._asdict()}[key] is None


@pytest.mark.parametrize("name", UNSEEN)
def test_how_a_run_looks_at_itself_does_not_matter(name):
    assert structure_of(changed(TRANSFORMER, (f"training.{name}", "13"))) == structure_of(TRANSFORMER)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.d_ff", "64"),
        ("optimizer.name", "adafactor"),
        ("optimizer.schedule", "constant"),
        ("batching.tokens_per_update", "8192"),
        ("tokenizer.vocabulary_size", "99"),
        ("data.generated_pairs", "99"),
        ("decoding.beam_width", "2"),
        ("mesh.fsdp", "2"),
    ],
)
def test_everything_else_does(key, value):
    assert structure_of(changed(TRANSFORMER, (key, value))) != structure_of(TRANSFORMER)


def test_runs_with_other_seeds_share_data_only_with_a_seed_of_its_own():
    one, two = changed(TRANSFORMER, ("seed", "1")), changed(TRANSFORMER, ("seed", "2"))
    assert (one.data_seed, two.data_seed) == (1, 2)
    assert structure_of(one) != structure_of(two)
    assert structure_of(changed(one, ("data.seed", "7"))) == structure_of(changed(two, ("data.seed", "7")))
    # To say what is so anyway changes nothing.
    assert structure_of(changed(one, ("data.seed", "1"))) == structure_of(one)

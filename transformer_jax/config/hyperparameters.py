"""Settings that only enter the arithmetic of a training step: runs that differ in nothing else share one compiled program."""

from dataclasses import asdict, replace
from typing import Any, NamedTuple

from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.initialization import InitConfig
from transformer_jax.config.model import TransformerLayersConfig
from transformer_jax.config.rnn import RnnConfig
from transformer_jax.config.word_vectors import GloveConfig, Word2vecConfig

Number = Any
"""A float here, a float32 scalar where a function is compiled; None where 0 means that something is not there at all."""


class Rates(NamedTuple):
    """Probabilities of a model in training, by the names of their settings; None where nothing is dropped or drawn."""

    dropout: Number = None
    embedding_dropout: Number = None
    attention_dropout: Number = None
    activation_dropout: Number = None
    scheduled_sampling: Number = None


class Hyperparameters(NamedTuple):
    """Hyperparameters traced into the training step, by setting name. ``num_updates`` is where the cosine schedule ends."""

    learning_rate: Number
    warmup_updates: Number
    num_updates: Number
    b1: Number
    b2: Number
    epsilon: Number
    weight_decay: Number
    clip_norm: Number
    label_smoothing: Number
    rates: Rates


def rates_of(model: TransformerLayersConfig | RnnConfig | Word2vecConfig | GloveConfig) -> Rates:
    """The probabilities that a model has."""
    return Rates(**{name: value for name, value in asdict(model).items() if name in Rates._fields and value})


def hyperparameters_of(config: ExperimentConfig) -> Hyperparameters:
    """The hyperparameters of a run."""
    optimizer, training = config.optimizer, config.training
    return Hyperparameters(
        learning_rate=optimizer.learning_rate,
        warmup_updates=float(optimizer.warmup_updates),
        num_updates=float(training.num_updates),
        b1=optimizer.b1,
        b2=optimizer.b2,
        epsilon=optimizer.epsilon,
        weight_decay=optimizer.weight_decay or None,
        clip_norm=optimizer.clip_norm or None,
        label_smoothing=training.label_smoothing or None,
        rates=rates_of(config.model),
    )


def structure_of(config: ExperimentConfig) -> ExperimentConfig:
    """``config`` with fixed hyperparameters: equal for runs that compile the same programs and read the same data.

    What is off stays off. Intervals of evaluation, patience and kept checkpoints do not count either.
    """
    optimizer, training = config.optimizer, config.training
    rates: dict[str, Any] = {name: 0.5 for name, rate in rates_of(config.model)._asdict().items() if rate}
    return replace(
        config,
        seed=0,
        init=InitConfig(),
        data=replace(config.data, seed=config.data_seed),
        model=replace(config.model, **rates),
        optimizer=replace(
            optimizer,
            learning_rate=1.0,
            warmup_updates=1,
            b1=0.5,
            b2=0.5,
            epsilon=1.0,
            weight_decay=float(optimizer.weight_decay > 0),
            clip_norm=float(optimizer.clip_norm > 0),
        ),
        training=replace(
            training,
            num_updates=2,
            label_smoothing=0.5 if training.label_smoothing else 0.0,
            evaluate_every=1,
            checkpoint_every=1,
            log_every=1,
            patience=0,
            validation_sentences=0,
            keep_last=1,
            keep_best=0,
            trackers="",
            skip_nonfinite=0,
            hang_factor=0.0,
            budget_seconds=0.0,
            budget_policy="shorten",
        ),
    )

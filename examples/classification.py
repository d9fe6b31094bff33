"""Classification of text: the mean of the states of an encoder, and a projection to the labels.

The label of a pair is the first word of its target: a German article in the generated text. On
other text, for example:

transformer-jax train --plugin=examples/classification.py --config=quickstart \
    --config.task=classification --config.data.source=text --config.data.train=reviews.tsv \
    --config.data.held_out=500 --config.tokenizer.kind=word --config.tokenizer.joint=False \
    --config.model.tying=none --workdir=runs/reviews
"""

from dataclasses import dataclass
from functools import cached_property

import flax.linen as nn
import jax
import jax.numpy as jnp

import transformer_jax
from transformer_jax.config import ConfigError, TransformerConfig, hyperparameters_of, parts_with
from transformer_jax.config.tasks import LOSSES, TASKS, Metric
from transformer_jax.data.batches import scoring_batches
from transformer_jax.data.stores import open_token_store
from transformer_jax.models.build import build_model
from transformer_jax.models.initialization import initialized
from transformer_jax.models.interface import activations, init_params
from transformer_jax.registry.plugins import registered
from transformer_jax.tasks.task import MeasuredSplit
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy
from transformer_jax.training.sharding import put_rows, replicated, row_groups


class Classifier(nn.Module):
    """Logits [B, 1, C] of the labels of the sources; the targets are not read."""

    transformer: nn.Module
    labels: int

    @nn.compact
    def __call__(self, source, target, *, train):
        memory = self.transformer.encode(source, train=train)
        is_token = (memory.segments != 0)[:, :, None]
        mean = (memory.hidden * is_token).sum(1, keepdims=True) / jnp.maximum(is_token.sum(1, keepdims=True), 1)
        return nn.Dense(self.labels)(mean.astype(jnp.float32))


class Objective:
    """Cross entropy of the labels, which are the first words of the targets."""

    update_rule = None

    def __init__(self, config, words, labels):
        for name in ("loss_terms", "corruptions"):
            value = getattr(config.training, name)
            if value:
                raise ConfigError(f"training.{name}", f"{value} is not supported for classification; leave it out")
        self.config, self.words, self.labels = config, words, labels

    def training_model(self, hyperparameters):
        parts = parts_with(self.config, hyperparameters)
        model = build_model(self.config.model, self.words, self.labels, rates=hyperparameters.rates, parts=parts)
        return Classifier(model, self.labels)

    def init_params(self, key):
        params = init_params(self.training_model(hyperparameters_of(self.config)), key)
        inner = initialized(lambda key: params["transformer"], self.config.model, self.config.parts, key)
        return params | {"transformer": inner}

    def loss(self, params, batch, key, hyperparameters):
        model = self.training_model(hyperparameters)
        logits = model.apply({"params": params}, *batch, train=True, rngs={"dropout": key})
        return sums(logits, batch, hyperparameters.label_smoothing)

    def activations(self, params, batch, key, hyperparameters):
        return activations(self.training_model(hyperparameters), params, *batch, key=key)

    def unsmoothed_loss(self, params, batch):
        model = self.training_model(hyperparameters_of(self.config))
        return sums(model.apply({"params": params}, *batch, train=False), batch, None)


def sums(logits, batch, smoothing):
    is_example = (batch.target.segments[:, :1] != 0).astype(jnp.float32)
    return label_smoothed_cross_entropy(logits, batch.target.ids[:, :1], is_example, smoothing)


def check(data, tokenizer, batching, model, decoding):
    TASKS["translation"].check(data, tokenizer, batching, model, decoding)
    if tokenizer.kind != "word" or tokenizer.joint:
        raise ConfigError("tokenizer.kind", "labels are words; use word, and joint=False")
    if batching.kind != "buckets":
        raise ConfigError("batching.kind", "a row has one label; use buckets")


@dataclass(frozen=True)
class EncoderConfig(TransformerConfig):
    """Settings of a Transformer whose decoder is not used."""

    def check_new_run(self, config):
        super().check_new_run(config)
        if self.normalization == "deepnorm":
            problem = "deepnorm has other factors without a decoder; use another normalization"
            raise ConfigError("model.normalization", problem)
        for name in config.training.watch_names:
            if registered("statistic")[name].reads_activations:
                problem = f"{name} reads activations, which classification does not record; leave it out"
                raise ConfigError("training.watch", problem)


@transformer_jax.register("task", "classification")
class Classification(TranslationTask):
    """Reads and batches pairs as translation does; only the settings below differ."""

    settings = TASKS["translation"]._replace(
        model={"transformer": EncoderConfig},
        selection=Metric("accuracy", "maximize"),
        others=LOSSES[:1],
        check=check,
    )
    commands = ()
    # Abilities of a translation that a class of a text does not have.
    score_texts = decoding = ensemble = paired_scores = None

    @staticmethod
    def new_objective(config, vocabularies, mesh):
        return Objective(config, *vocabularies)

    @cached_property
    def measured(self):
        return jax.jit(self.objective.unsmoothed_loss, out_shardings=replicated(self.mesh))

    def validate(self, params, split, *, limit=0):
        name, total = self.config.data.split_name(split), LossSums.zero()
        store = open_token_store(self.corpus, name, self.tokenizers, self.config.data, is_training=False)
        for batch in scoring_batches(store, 4096, row_groups(self.mesh), limit=limit):
            total += self.measured(params, put_rows(batch, self.mesh))
        loss, accuracy = float(total.nll / total.tokens), float(total.correct / total.tokens)
        return MeasuredSplit(name, {"accuracy": accuracy, "loss": loss}, int(total.tokens))

    evaluate = validate

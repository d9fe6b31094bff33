"""The idea that a user names, the setting that selects it, and the models to check it in."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError
from transformer_jax.errors import nearest
from transformer_jax.registry.plugins import OWN_NAMES, names_of, registered
from transformer_jax.registry.python_files import load_plugin

TRANSFORMERS = ("translation", "language_model")


class Kind(NamedTuple):
    """The setting that selects a part of a kind, and the models of ``SIZES`` to check it in."""

    setting: str
    models: tuple[str, ...]
    is_of_training: bool = False
    """Whether it changes updates only, and no model."""
    is_list: bool = False
    """Whether the setting is a list, to which an idea is added."""


KINDS = {
    "attention": Kind("model.attention", TRANSFORMERS, is_list=True),
    "positions": Kind("model.positions", TRANSFORMERS),
    "mixer": Kind("model.mixers", TRANSFORMERS),
    "norm": Kind("model.norm", TRANSFORMERS),
    "residual": Kind("model.normalization", TRANSFORMERS),
    "feed_forward": Kind("model.feed_forward", TRANSFORMERS),
    "projection": Kind("model.projection", TRANSFORMERS),
    "initialization": Kind("model.initialization", TRANSFORMERS),
    "rnn_attention": Kind("model.attention", ("rnn",)),
    "optimizer": Kind("optimizer.name", ("translation",), is_of_training=True),
    "averaging": Kind("optimizer.averaging", ("translation",), is_of_training=True),
    "after_update": Kind("optimizer.after_update", TRANSFORMERS, is_of_training=True, is_list=True),
    "schedule": Kind("optimizer.schedule", ("translation",), is_of_training=True),
    "loss_term": Kind("training.loss_terms", TRANSFORMERS, is_of_training=True, is_list=True),
    "corruption": Kind("training.corruptions", TRANSFORMERS, is_of_training=True, is_list=True),
    "statistic": Kind("training.watch", TRANSFORMERS, is_of_training=True, is_list=True),
    "task": Kind("task", ("task",)),
}
NEEDED: dict[str, dict[str, Any]] = {
    "language_model": {"tokenizer": {"kind": "byte"}},
    "word_vectors": {
        "tokenizer": {"kind": "lower_word"},
        "optimizer": {"name": "sgd"},
        "training": {"label_smoothing": 0.0},
    },
    "parsing": {
        "data": {"source": "generated_treebank", "max_target_tokens": 191},
        "tokenizer": {"kind": "word_class", "vocabulary_size": 1000, "joint": False},
        "batching": {"tokens_per_update": 2048},
        "model": {"tying": "output"},
    },
    "load_balance": {"model": {"feed_forward": "mixture_of_experts"}},
    "balance_bias": {
        "model": {"feed_forward": "mixture_of_experts"},
        "parts": {"mixture_of_experts": {"balance_bias": True}},
    },
    "ngpt": {
        "model": dict.fromkeys(("positions", "normalization", "feed_forward", "projection"), "ngpt"),
        "optimizer": {"after_update": "ngpt"},
    },
    "mup": {"optimizer": {"name": "mup"}, "model": {"initialization": "mup", "attention": "mup", "tying": "none"}},
    "gradient_noise": {"batching": {"accumulation_steps": 2}},
    **{name: {"model": {"bidirectional_encoder": False}} for name in ("dot", "scaled_dot")},
}
"""Settings that parts need."""


class Idea(NamedTuple):
    """A part by its kind and name."""

    kind: str
    name: str

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``values``, nested by block, with the idea and the settings that it needs."""
        values = with_values(NEEDED.get(self.name, {}), values)
        block, _, key = KINDS[self.kind].setting.partition(".")
        if not key:
            return {**values, block: self.name}
        names = _names(values.get(block, {}).get(key, "")) if KINDS[self.kind].is_list else []
        others = [name for name in names if name not in ("multi_head", self.name)]
        return with_values(values, {block: {key: ",".join([*others, self.name])}})

    def settings_without(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``values`` with the settings that the idea needs, without the idea itself."""
        needed = {
            block: {key: value for key, value in settings.items() if value != self.name}
            for block, settings in NEEDED.get(self.name, {}).items()
        }
        values = with_values(needed, values)
        block, _, key = KINDS[self.kind].setting.partition(".")
        others = dict(values.get(block, {}))
        names = _names(others.get(key, ""))
        if self.name in names:
            names.remove(self.name)
            del others[key]
            if names and KINDS[self.kind].is_list:
                others[key] = ",".join(names)
        parts = {name: settings for name, settings in values.get("parts", {}).items() if name != self.name}
        return {**values, block: others, "parts": parts}


def _names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def find_ideas(text: str) -> list[Idea]:
    """Return the parts named ``rope`` or ``schedule:cosine``, or the parts that a file registers.

    Raises ConfigError if there are none.
    """
    if text.endswith(".py"):
        return _registered_by(text)
    kind, colon, name = text.rpartition(":")
    if colon and kind not in KINDS:
        raise ConfigError(f"{kind!r} is not one of the kinds {', '.join(KINDS)}")
    ideas = [Idea(kind, name) for kind in ([kind] if colon else KINDS) if name in names(kind)]
    if not ideas:
        near = nearest(name, [other for kind in KINDS for other in names(kind)])
        hint = f"did you mean {near}?" if near else "transformer-jax config --explain=model.attention lists names"
        raise ConfigError(f"there is no part {text!r}", remedy=hint)
    return ideas


def names(kind: str) -> list[str]:
    """Return the names of all parts of a kind, of the core, of the kit and of plugins."""
    return [*sorted(OWN_NAMES[kind]), *names_of(kind)]


def _registered_by(file: str) -> list[Idea]:
    before = _parts()
    load_plugin(file)
    # A file that --plugin loaded already registers its names again.
    new = [idea for idea, part in _parts().items() if part is not before.get(idea)]
    if not new:
        raise ConfigError(f"{file} registers none of {', '.join(KINDS)}, the kinds that can be checked")
    return new


def _parts() -> dict[Idea, Any]:
    return {Idea(kind, name): part for kind in KINDS for name, part in registered(kind).items()}


def with_values(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``base`` and ``values``, which win, at every level."""
    inner = {name: value for name, value in values.items() if name in base and isinstance(value, Mapping)}
    return {**base, **values, **{name: with_values(base[name], value) for name, value in inner.items()}}

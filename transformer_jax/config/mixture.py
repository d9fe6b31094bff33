"""Settings of a mixture of corpora, of the form ``de=train.{en,de} fr=train.{en,fr}``."""

import math
import re
import shlex
from collections.abc import Collection, Mapping

from transformer_jax.errors import ConfigError

_NAME = re.compile(r"(?:^|\s+)([\w-]+)=")


def by_corpus(text: str, key: str, allowed: Collection[str] = ()) -> dict[str, str]:
    """Return the value of each corpus by name. White space before ``NAME=`` separates them.

    Raises ConfigError, which names ``key``, at text of another form, at a comma between two
    corpora, and at names that are not in ``allowed`` or occur twice.
    """
    before, *parts = _NAME.split(text.strip())
    names, values = parts[::2], [value.strip() for value in parts[1::2]]
    if before or not all(values):
        raise ConfigError(key, f"{text!r}: write NAME=VALUE for each corpus, separated by spaces: de=... fr=...")
    for name, value in zip(names, values, strict=True):
        if re.search(r",(?:\s*[\w-]+=|$)", value):
            raise ConfigError(key, f"{value!r} of {name}: separate corpora by spaces, without commas: de=... fr=...")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(key, f"the corpus {twice!r} is named twice", "give it one value")
    for name in names:
        if allowed and name not in allowed:
            raise ConfigError(key, f"no corpus {name!r} in data.train", f"it has {', '.join(allowed)}")
    return dict(zip(names, values, strict=True))


def written(values: Mapping[str, str]) -> str:
    """Return the inverse of ``by_corpus``."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def weights_of(text: str, corpora: Collection[str]) -> dict[str, float]:
    """Return the weights of all ``corpora``. Raises ConfigError unless all are above 0."""
    weights = {}
    for name, value in by_corpus(text, "data.weights", corpora).items():
        try:
            weights[name] = float(value)
        except ValueError:
            weights[name] = math.nan
        remedy = "; to leave the corpus out, remove it from data.train" if weights[name] == 0 else ""
        if not (0 < weights[name] < math.inf):
            raise ConfigError("data.weights", f"{value!r} of {name} is not a number above 0{remedy}")
    missing = [name for name in corpora if name not in weights]
    if weights and missing:
        raise ConfigError("data.weights", f"{', '.join(missing)} has none", "give every corpus one, or no corpus")
    return weights


def tags_of(text: str, corpora: Collection[str]) -> dict[str, str]:
    """Return the tags of ``corpora``. Raises ConfigError at a tag that is not one word."""
    tags = by_corpus(text, "data.tags", corpora)
    for name, tag in tags.items():
        if len(tag.split()) != 1 or not tag.isprintable() or "\u2581" in tag:
            raise ConfigError(
                "data.tags", f"{tag!r} of {name} is not one word", f"write it without spaces, such as <2{name}>"
            )
    return tags


def tagging_command(tag: str) -> str:
    """Return the shell command that puts a tag at the beginning of every line."""
    return f"sed {shlex.quote(f's/^/{tag} /')}"

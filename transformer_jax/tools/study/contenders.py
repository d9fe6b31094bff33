"""The contenders of a duel: one recipe, and the settings that each idea changes in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from operator import attrgetter
from pathlib import Path

from transformer_jax.config import ConfigError, ExperimentConfig, resolve
from transformer_jax.config.checks import Declared, declared
from transformer_jax.tools.conform.ideas import KINDS, Idea, ideas_named

BASE = "base"
EQUAL = "flops", "time", "updates", "parameters"
"""Budgets that a duel can make equal."""
OFF = "training.patience", "training.budget_seconds"
"""Settings that are 0 in a duel, whose runs end together."""
# Not the plus sign of a number, 1e+5.
PLUS = re.compile(r"\+(?=[^\d\s])")

# A label has no dot, as settings have: diff=FILE.py.
LABEL = re.compile(r"([A-Za-z_][\w-]*)=(.+)")
PATH = re.compile(r"[^+:;]*\.py(?=$|[+:;])")

Overrides = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Contender:
    """The base or an idea: overrides of the recipe, as text, and the digests of the ``files`` that register parts.

    ``name``: in reports, a label or the idea itself, with the name of a file instead of its path.
    """

    name: str
    settings: dict[str, str]
    files: dict[str, str]


def read_contenders(recipe: str, overrides: Overrides, ideas: Sequence[str]) -> list[Contender]:
    """Return the base and the ideas, the base first.

    Raises ConfigError where an idea is not one, is there twice, or does not fit the recipe.
    """
    pairs = [_labeled(text.strip()) for text in ideas]
    names = [name for name, _ in pairs]
    if not all(names) or BASE in names:
        raise ConfigError(
            "--ideas", f"{','.join(ideas)}: name ideas, each once, and not {BASE!r}, which is there anyway"
        )
    for name in names:
        if "," in name:
            raise ConfigError("--ideas", f"{name!r} has a comma, which separates ideas", "join parts with +, as in a+b")
        if names.count(name) > 1:
            raise ConfigError("--ideas", f"two ideas are called {name}", "label one, as in other=FILE.py")
    base = resolve(recipe, overrides)
    owners: dict[Idea, str] = {}
    contenders = [Contender(BASE, {}, {}), *(Contender(name, *_read_idea(text, base, owners)) for name, text in pairs)]
    for first, second in combinations(contenders[1:], 2):
        if first.settings == second.settings:
            problem = "have the same settings; leave one out, or give their parts different names"
            raise ConfigError("--ideas", f"{first.name} and {second.name} {problem}")
    for each in contenders:
        try:
            config = resolve(recipe, overrides, each.settings)
            config.check_new_run()
            if each.name != BASE and config == base and not each.files:
                raise ConfigError("has the settings of the base", remedy="leave it out")
        except ConfigError as error:
            raise ConfigError("--ideas", f"{each.name}: {error}") from None
    return contenders


def _labeled(text: str) -> tuple[str, str]:
    """Return the name of an idea, its label in ``diff=FILE.py`` or else the idea with files as their stems, and the idea."""
    if match := LABEL.fullmatch(text):
        return match[1], match[2]
    return PATH.sub(lambda found: Path(found[0]).stem, text), text


def _read_idea(text: str, base: ExperimentConfig, owners: dict[Idea, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of ``rope+qk_norm``, ``my_idea.py``, ``grouped_query:key_value_heads=2`` or ``model.dropout=0.2``.

    Adds the parts of files to ``owners``, each with its file.
    """
    settings: dict[str, str] = {}
    files: dict[str, str] = {}
    for term in PLUS.split(text):
        name, options = _split(term.strip())
        parts = _parts_of(name, base) if name else []
        if name.endswith(".py"):
            file = Path(name).expanduser().absolute()
            files[str(file)] = sha256(file.read_bytes()).hexdigest()
            for part in parts:
                if (owner := owners.setdefault(part, str(file))) != str(file):
                    raise ConfigError(
                        "--ideas", f"{owner} and {file} both register {part.name}", "give one another name"
                    )
        for part in parts:
            key = KINDS[part.kind].setting
            each = _declared(base, part.kind)
            assert each is not None
            is_list = KINDS[part.kind].is_list
            if key in settings and not is_list:
                raise ConfigError("--ideas", f"{text}: {settings[key]} and {part.name} both set {key}", "leave one out")
            before = each.choices_in(settings.get(key) or str(attrgetter(key)(base))) if is_list else []
            settings[key] = ",".join([*(other for other in before if other != each.default), part.name])
        for option in filter(None, options.split(";")):
            key, equals, value = option.partition("=")
            if not equals or ("." not in key and len(parts) != 1):
                near = f"{name}:FIELD=VALUE" if parts else "model.dropout=0.2"
                raise ConfigError("--ideas", f"{text}: {option!r} is not a setting", f"write {near}")
            settings[key if "." in key else f"parts.{parts[0].name}.{key}"] = value
    return settings, files


def _split(term: str) -> tuple[str, str]:
    """``schedule:cosine:optimizer.b2=0.9`` is ``("schedule:cosine", "optimizer.b2=0.9")``."""
    before = term.partition("=")[0]
    if before == term:
        return term, ""
    name = before.rpartition(":")[0]
    return name, term[len(name) :].removeprefix(":")


def _parts_of(name: str, base: ExperimentConfig) -> list[Idea]:
    try:
        named = ideas_named(name)
    except ConfigError as error:
        raise ConfigError("--ideas", error) from None
    found = [idea for idea in named if _declared(base, idea.kind)]
    if not found:
        needed = " or ".join(KINDS[idea.kind].setting for idea in named)
        raise ConfigError("--ideas", f"{name}: {needed} is not a setting of this recipe's model", "leave the idea out")
    if len(found) > 1 and not name.endswith(".py"):
        raise ConfigError("--ideas", f"{name}: write {' or '.join(f'{each.kind}:{each.name}' for each in found)}")
    return found


def _declared(base: ExperimentConfig, kind: str) -> Declared | None:
    """Return the setting of ``base`` that selects a part of this kind; None if its model has none."""
    block, _, key = KINDS[kind].setting.partition(".")
    found = declared(type(getattr(base, block))).get(key)
    return found if found and found.facts.get("plugin") == kind else None

"""The contenders of a duel: one recipe, and the settings that ideas change in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from operator import attrgetter
from pathlib import Path

from transformer_jax.config import ConfigError, ExperimentConfig, resolve
from transformer_jax.config.checks import Declared, declared
from transformer_jax.tools.conform.ideas import KINDS, Idea, find_ideas

BASE = "base"
EQUAL = "flops", "time", "updates"
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
    """The base or an idea: a name for reports, overrides of the recipe, digests of plugin files."""

    name: str
    settings: dict[str, str]
    files: dict[str, str]


def read_contenders(recipe: str, overrides: Overrides, ideas: Sequence[str]) -> list[Contender]:
    """Return the base and the ideas, the base first, after checking that they fit the recipe."""
    pairs = [_labeled(text.strip()) for text in ideas]
    names = [name for name, _ in pairs]
    if not all(names) or BASE in names:
        raise ConfigError("--ideas", f"{','.join(ideas)}: name ideas, and not {BASE!r}, which is there anyway")
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
            problem = f"{first.name} and {second.name} have the same settings"
            raise ConfigError("--ideas", problem, "leave one out, or give their parts different names")
    for contender in contenders:
        try:
            config = resolve(recipe, overrides, contender.settings)
            config.check_new_run()
            if contender.name != BASE and config == base and not contender.files:
                raise ConfigError("has the settings of the base", remedy="leave it out")
        except ConfigError as error:
            raise ConfigError("--ideas", f"{contender.name}: {error}") from None
    return contenders


def _labeled(text: str) -> tuple[str, str]:
    """Split ``diff=FILE.py`` into name and idea. By default the name has the stems of files."""
    if match := LABEL.fullmatch(text):
        return match[1], match[2]
    return PATH.sub(lambda path: Path(path[0]).stem, text), text


def _read_idea(text: str, base: ExperimentConfig, owners: dict[Idea, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return settings of ``rope+qk_norm``, ``mine.py`` or ``rope:base=1e5``, and digests of files.

    Adds the parts that files register to ``owners``, with their file.
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
            field = _declared(base, part.kind)
            assert field is not None
            is_list = KINDS[part.kind].is_list
            if key in settings and not is_list:
                raise ConfigError("--ideas", f"{text}: {settings[key]} and {part.name} both set {key}", "leave one out")
            before = field.choices_in(settings.get(key) or str(attrgetter(key)(base))) if is_list else []
            settings[key] = ",".join([*(other for other in before if other != field.default), part.name])
        for option in filter(None, options.split(";")):
            key, equals, value = option.partition("=")
            if not equals or ("." not in key and len(parts) != 1):
                near = f"{name}:FIELD=VALUE" if parts else "model.dropout=0.2"
                raise ConfigError("--ideas", f"{text}: {option!r} is not a setting", f"write {near}")
            settings[key if "." in key else f"parts.{parts[0].name}.{key}"] = value
    return settings, files


def _split(term: str) -> tuple[str, str]:
    """Split ``schedule:cosine:optimizer.b2=0.9`` into ``schedule:cosine`` and its settings."""
    before = term.partition("=")[0]
    if before == term:
        return term, ""
    name = before.rpartition(":")[0]
    return name, term[len(name) :].removeprefix(":")


def _parts_of(name: str, base: ExperimentConfig) -> list[Idea]:
    try:
        ideas = find_ideas(name)
    except ConfigError as error:
        raise ConfigError("--ideas", error) from None
    fitting = [idea for idea in ideas if _declared(base, idea.kind)]
    if not fitting:
        needed = " or ".join(KINDS[idea.kind].setting for idea in ideas)
        raise ConfigError("--ideas", f"{name}: {needed} is not a setting of this recipe's model", "leave the idea out")
    if len(fitting) > 1 and not name.endswith(".py"):
        raise ConfigError("--ideas", f"{name}: write {' or '.join(f'{idea.kind}:{idea.name}' for idea in fitting)}")
    return fitting


def _declared(base: ExperimentConfig, kind: str) -> Declared | None:
    """Return the setting of ``base`` that selects a part of this kind, or None."""
    block, _, key = KINDS[kind].setting.partition(".")
    field = declared(type(getattr(base, block))).get(key)
    return field if field and field.facts.get("plugin") == kind else None

"""Explanations of the settings: meaning, type, choices, default, and the tasks and models that have them."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.keys import fields_of, leaf_keys, type_of
from transformer_jax.config.meanings import MEANINGS
from transformer_jax.config.plugins import registered
from transformer_jax.config.renamed import current_key
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, TASKS, kinds_of


class Reader(NamedTuple):
    """A task, and where it has several models the ``kind`` of one, that has a setting; its default and choices there."""

    name: str
    default: Any
    choices: tuple[str, ...]


class Explained(NamedTuple):
    """A setting: its dotted key, meaning, type, and readers."""

    key: str
    meaning: str
    type_name: str
    readers: tuple[Reader, ...]

    def text(self) -> str:
        """A few lines for the terminal."""
        lines = [f"{self.key}  ({self.type_name})", f"  {self.meaning}"]
        for label, values in (("choices", self.by("choices")), ("default", self.by("default"))):
            lines += [f"  {label}: {value}{f'  [{names}]' if names else ''}" for value, names in values]
        lines.append(f"  read by: {', '.join(reader.name for reader in self.readers)}")
        return "\n".join(lines)

    def by(self, field: str) -> list[tuple[str, str]]:
        """The values of a field of the readers as text, each with the readers that have it; no readers where all agree."""
        grouped: dict[str, list[str]] = {}
        for reader in self.readers:
            value = getattr(reader, field)
            shown = ", ".join(value) if isinstance(value, tuple) else str(value) if value != "" else "''"
            grouped.setdefault(shown, []).append(reader.name)
        grouped.pop("", None)
        return [(value, ", ".join(names) if len(grouped) > 1 else "") for value, names in grouped.items()]


def explained(key: str) -> Explained:
    """The explanation of the setting ``key``; raises ConfigError, with the nearest one, when there is none."""
    kind, key = type_of(key), current_key(key)
    return Explained(key, MEANINGS.get(key) or _meaning_in_plugin(key), kind.__name__, tuple(_readers(key)))


def all_explained() -> list[Explained]:
    """Every setting, in the order of its blocks."""
    return [explained(key) for key, _ in leaf_keys()]


def _readers(key: str) -> Iterator[Reader]:
    path, _, name = key.rpartition(".")
    if path not in BLOCKS_OF_TASKS:
        block = fields_of(ExperimentConfig)[path] if path else ExperimentConfig
        yield Reader("every task", _default(block, name), _choices(block, key))
        return
    for task in TASKS:
        kinds = kinds_of(task, path)
        if name == "kind" and len(kinds) > 1:
            yield Reader(task, next(iter(kinds)), tuple(kinds))
            continue
        for kind, settings in kinds.items():
            if name in fields_of(settings):
                reader = f"{task} {kind}" if len(kinds) > 1 else task
                yield Reader(reader, _default(settings, name), _choices(settings, key))


def _meaning_in_plugin(key: str) -> str:
    """The ``meaning`` in the metadata of a field of a task that a plugin adds."""
    path, _, name = key.rpartition(".")
    blocks = [block for task in TASKS for block in kinds_of(task, path).values()] if path in BLOCKS_OF_TASKS else []
    found = [field.metadata.get("meaning", "") for block in blocks for field in fields(block) if field.name == name]
    return next(filter(None, found), "")


def _default(block: type, name: str) -> Any:
    return next(field.default for field in fields(block) if field.name == name)


def _choices(block: type, key: str) -> tuple[str, ...]:
    """The choices with which a settings dataclass, or one that it extends, checks ``key`` by ``require_choice``."""
    for settings in block.__mro__[:-1]:
        # The module of a plugin's file is gone.
        if settings.__module__ not in sys.modules:
            continue
        for node in ast.walk(_parsed(settings.__module__)):
            if not (isinstance(node, ast.ClassDef) and node.name == settings.__name__):
                continue
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "require_choice":
                    checked, _, choices, *kind = call.args
                    if isinstance(checked, ast.Constant) and checked.value == key:
                        added = [registered(str(each.value)) for each in kind if isinstance(each, ast.Constant)]
                        named = _named_choices(choices, sys.modules[settings.__module__])
                        return (*named, *(name for names in added for name in names))
    return ()


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _named_choices(node: ast.expr, module: Any) -> tuple[str, ...]:
    """``NORMALIZATIONS``, or ``tuple(TASKS)``, as the module has it."""
    name = node.args[0] if isinstance(node, ast.Call) else node
    return tuple(getattr(module, name.id)) if isinstance(name, ast.Name) else ()


BLOCK_TITLES = {
    "": "The run",
    "data": "data: where the text comes from",
    "tokenizer": "tokenizer: text to tokens",
    "batching": "batching: examples to batches",
    "model": "model: what is trained",
    "init": "init: where the parameters of a new run come from",
    "optimizer": "optimizer: the update rule and its rate",
    "training": "training: length, log, validations, checkpoints",
    "decoding": "decoding: from the model to text",
    "evaluation": "evaluation: scores of translations",
    "mesh": "mesh: the devices",
}


def settings_page() -> str:
    """docs/settings.md."""
    parts = [
        "# Settings",
        "Every setting of every recipe: `--config.KEY=VALUE` changes it, `transformer-jax config --explain=KEY` explains it. "
        "This page is written by `transformer-jax config --list --markdown`.",
    ]
    for block, title in BLOCK_TITLES.items():
        rows = ["| setting | meaning | type | default | choices |", "|---|---|---|---|---|"]
        for each in all_explained():
            if each.key.rpartition(".")[0] == block:
                columns = each.meaning, each.type_name, _cell(each.by("default")), _cell(each.by("choices"))
                rows.append(" | ".join([f"| `{each.key}`", *(column.replace("|", "\\|") for column in columns)]) + " |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _cell(values: list[tuple[str, str]]) -> str:
    return "; ".join(f"{value} ({names})" if names else value for value, names in values)

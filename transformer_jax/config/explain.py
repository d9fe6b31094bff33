"""Explanations of settings: meaning, type, allowed values, default, and the tasks and models that have them."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

from transformer_jax.config.checks import Declared, declared
from transformer_jax.config.conversion import PARTS, block_at, fields_of, keys_of_parts, leaf_keys, type_of
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.plugins import kind_with_settings, registered, setting_of
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, TASKS, kinds_of

BLOCK_TITLES = {
    "": "The run",
    "data": "data: source of the text",
    "tokenizer": "tokenizer: text to tokens",
    "batching": "batching: examples to batches",
    "model": "model: the network",
    "init": "init: initial parameters of a new run",
    "optimizer": "optimizer: update rule and learning rate",
    "training": "training: length, log, validations, checkpoints",
    "decoding": "decoding: from the model to text",
    "evaluation": "evaluation: scores of translations",
    "mesh": "mesh: the devices",
    PARTS: "parts: settings of parts of the kit",
}


class Reader(NamedTuple):
    """A task, or one model of a task, that has a setting, as declared there."""

    name: str
    declared: Declared


class Explained(NamedTuple):
    """A setting: its dotted key, type, and readers."""

    key: str
    type_name: str
    readers: tuple[Reader, ...]

    @property
    def meaning(self) -> str:
        """The meaning, or the meanings with their readers."""
        return " ".join(f"{value} [{names}]" if names else value for value, names in self.by("meaning"))

    def text(self) -> str:
        """The explanation for the terminal."""
        lines = [f"{self.key}  ({self.type_name})"]
        for field, label in (("meaning", ""), ("values", "values: "), ("default", "default: ")):
            lines += [f"  {label}{value}{f'  [{names}]' if names else ''}" for value, names in self.by(field)]
        lines.append(f"  read by: {', '.join(reader.name for reader in self.readers)}")
        for kind in dict.fromkeys(reader.declared.facts.get("plugin") for reader in self.readers):
            for name, part in registered(kind).items() if kind else ():
                if summary := ((inspect.getdoc(part) if callable(part) else "") or "").partition("\n")[0]:
                    lines.append(f"  {name}: {summary}")
        return "\n".join(lines)

    def by(self, field: str) -> list[tuple[str, str]]:
        """The distinct values of ``meaning``, ``default`` or ``values`` as text, with readers (empty if all agree)."""
        grouped: dict[str, list[str]] = {}
        for reader in self.readers:
            value = getattr(reader.declared, field)
            shown = ", ".join(value) if isinstance(value, tuple) else str(value) if value != "" else "''"
            grouped.setdefault(shown, []).append(reader.name)
        grouped.pop("", None)
        return [(value, ", ".join(names) if len(grouped) > 1 else "") for value, names in grouped.items()]


def explained(key: str) -> Explained:
    """The explanation of the setting ``key``; raises ConfigError, with the nearest key, if there is none."""
    return Explained(key, type_of(key).__name__, tuple(_readers(key)))


def all_explained() -> list[Explained]:
    """The explanations of all settings, also of parts; imports the whole kit."""
    return [explained(key) for key in (*(key for key, _ in leaf_keys()), *keys_of_parts())]


def _readers(key: str) -> Iterator[Reader]:
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        part = path.removeprefix(f"{PARTS}.")
        yield Reader(f"{setting_of(str(kind_with_settings(part)))}={part}", declared(block_at(path))[name])
        return
    if path not in BLOCKS_OF_TASKS:
        yield Reader("every task", declared(fields_of(ExperimentConfig)[path] if path else ExperimentConfig)[name])
        return
    for task in TASKS:
        kinds = kinds_of(task, path)
        if name == "kind" and len(kinds) > 1:
            first, settings = next(iter(kinds.items()))
            yield Reader(task, declared(settings)[name]._replace(default=first, choices=tuple(kinds)))
            continue
        for kind, settings in kinds.items():
            if name in declared(settings):
                yield Reader(f"{task} {kind}" if len(kinds) > 1 else task, declared(settings)[name])


def block_of(key: str) -> str:
    """The key in ``BLOCK_TITLES`` under which a setting is listed."""
    return key.partition(".")[0] if "." in key else ""


def settings_page() -> str:
    """The text of docs/settings.md."""
    parts = [
        "# Settings",
        "Every setting of every recipe: `--config.KEY=VALUE` changes it, `transformer-jax config --explain=KEY` "
        "explains it. This page is written by `transformer-jax config --list --markdown`.",
    ]
    found = all_explained()
    for block, title in BLOCK_TITLES.items():
        rows = ["| setting | meaning | type | default | values |", "|---|---|---|---|---|"]
        for each in (each for each in found if block_of(each.key) == block):
            meaning, default, values = (_cell(each.by(field)) for field in ("meaning", "default", "values"))
            columns = meaning, each.type_name, default, values
            rows.append(" | ".join([f"| `{each.key}`", *(column.replace("|", "\\|") for column in columns)]) + " |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _cell(values: list[tuple[str, str]]) -> str:
    shown = ((value if value != "''" else "`''`", names) for value, names in values)
    return "<br>".join(f"{value} ({names})" if names else value for value, names in shown)

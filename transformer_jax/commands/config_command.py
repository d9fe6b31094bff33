"""Settings before a run: ``config`` and ``recipes``."""

import inspect
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, flatten, from_dict, resolve, to_json
from transformer_jax.config.checks import Declared, check_choice, declared
from transformer_jax.config.conversion import (
    block_at,
    fields_of,
    keys_of_parts,
    leaf_keys,
    leaves,
    settings_called,
    type_of,
)
from transformer_jax.config.experiment import PARTS
from transformer_jax.config.recipes import SHIPPED
from transformer_jax.config.run_settings import stated_settings
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, TASKS, kinds_of
from transformer_jax.config.update_schedules import FORMS
from transformer_jax.errors import complain, nearest
from transformer_jax.files.json_text import printable
from transformer_jax.files.terminal import INDENT, listing, paragraph
from transformer_jax.registry.plugins import kind_with_settings, load_installed_plugins, registered, setting_of
from transformer_jax.registry.python_files import names_in_file

EVERY_TASK = "every task"
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


class ListedVariant(NamedTuple):
    """A variant of a recipe; ``measured``: hardware, time and score of its run, if any."""

    spec: str
    summary: str
    measured: tuple[str, ...]


class ListedRecipe(NamedTuple):
    """A recipe of the package: the first line of its docstring, and its variants."""

    name: str
    summary: str
    variants: tuple[ListedVariant, ...]


def listed_recipes() -> list[ListedRecipe]:
    recipes = []
    for file in sorted(SHIPPED.glob("[!_]*.py")):
        names, variants = names_in_file(file), []
        for variant in names.get("VARIANTS", ("",)):
            described = names.get(variant)
            text = inspect.getdoc(described) if inspect.isfunction(described) else None
            spec = f"{file.stem}:{variant}" if variant else file.stem
            measured = names.get("MEASURED", {}).get(variant, ())
            variants.append(ListedVariant(spec, (text or "").split("\n")[0], measured))
        recipes.append(ListedRecipe(file.stem, names["__doc__"].split("\n")[0], tuple(variants)))
    return recipes


@flags.command(flags.arguments("NAME ...", "only these recipes, for example multi30k"))
def recipes(values: flags.Values) -> int:
    """List the recipes of the package: their purpose, and measured hardware, run time and score.

    Example:
        transformer-jax recipes multi30k
        transformer-jax train --config=multi30k:tiny --workdir=runs/m30k

    Your recipe is a file: --config=mine.py, or --config=mine.py:VARIANT.
    """
    listed = listed_recipes()
    names = [recipe.name for recipe in listed]
    for name in values.arguments:
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"recipes are {', '.join(names)}"
            raise ConfigError("recipes", f"no recipe {name!r}", hint)
    for recipe in listed:
        if recipe.name in (values.arguments or names):
            print(f"{paragraph(recipe.summary)}\n")
            width = max(len(variant.spec) for variant in recipe.variants)
            for variant in recipe.variants:
                measured = ", ".join(variant.measured) or "not yet run"
                print(paragraph(f"  {variant.spec:<{width}}  {measured}", rest=" " * (width + 4)))
                if variant.summary:
                    print(paragraph(variant.summary, INDENT, INDENT))
            print()
    print(f"files: {SHIPPED}")
    return 0


@flags.command(
    flags.optional_config,
    flags.string(
        "explain", None, "a setting, for example model.normalization, a group, such as model, or a word, such as beam"
    ),
    flags.boolean("list", False, "print every setting of a task in groups, with its meaning"),
    flags.boolean("markdown", False, "--list as docs/settings.md has it"),
    flags.string("against", None, "another recipe or run directory: print only the difference"),
    flags.boolean("json", False, "print JSON, as in the config.json of a run"),
)
def config(values: flags.Values) -> int:
    """Print every setting of a recipe or a run, or the difference from another.

    Example:
        transformer-jax config --config=multi30k:tiny --config.model.dropout=0.2
        transformer-jax config --config=multi30k:tiny --against=runs/multi30k
        transformer-jax config --explain=model.normalization
        transformer-jax config --list --config.task=language_model

    Each line is a setting that --config.KEY=VALUE changes. --explain prints the meaning, the
    allowed values, the default and the readers of one setting, or the settings that a word fits.
    --list prints the meaning of all settings of a task, by default translation, and --explain=model
    of a group. JAX is imported only for parts of the kit.
    """
    overrides = flags.overrides_of(values)
    if values.explain is not None or values.list:
        if values.json:
            raise ConfigError("--json", "prints the settings of a recipe or a run", "leave out --list and --explain")
        key = (values.explain or "").removeprefix("--config.").removeprefix("config.").lower().replace("-", "_")
        if values.explain is not None and not key:
            raise ConfigError("--explain", "is empty", "give a setting, a group or a word")
        if not values.markdown:
            load_installed_plugins()
        recipe = stated_settings(values.config, overrides) if values.config else {}
        task = apply_overrides({"task": recipe.get("task", DEFAULT_TASK)}, overrides)["task"]
        if values.list and values.markdown:
            print(settings_page(), end="")
        elif values.explain is None or key in BLOCK_TITLES:
            print(_settings_list(task, key), end="")
        else:
            print(_explanation(key))
        return 0
    if values.config is None:
        raise ConfigError("--config", "is required", "--help shows an example")
    if values.against is None:
        resolved = flags.resolve_config(values)
        print(json.dumps(to_json(resolved), indent=2, ensure_ascii=False) if values.json else _settings_text(resolved))
        return 0
    after, before = _settings_of(flags.required_config(values), overrides), _settings_of(values.against)
    keys = sorted(before.keys() | after.keys())
    changes = [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]
    if values.json:
        print(json.dumps({key: {"against": left, "config": right} for key, left, right in changes}, indent=2))
    else:
        print(difference_text(changes, values.against, values.config))
    return 0


def _settings_of(source: str, overrides: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the settings of a recipe or a run by key, with defaults for those left open."""
    try:
        return flatten(resolve(source, overrides))
    except ConfigError as error:
        recipe = apply_overrides(stated_settings(source, overrides), overrides)
        if not str(error).startswith("data."):
            raise
        complain(f"transformer-jax: {source}: {error} (compared without)")
        kinds = {"task": recipe["task"]} if "task" in recipe else {}
        if kind := recipe.get("model", {}).get("kind"):
            kinds["model"] = {"kind": kind}
        return flatten(from_dict(kinds)) | dict(leaves(recipe))


def _settings_list(task: str, only: str) -> str:
    """Return every setting of a task, or of one group of them, with its meaning."""
    check_choice("task", task, (), "task")
    settings = [setting.of_task(task) for setting in all_explained() if only in ("", block_of(setting.key))]
    rows = [(setting.key, setting.meaning) for setting in settings if setting.readers]
    groups = itertools.groupby(rows, lambda row: block_of(row[0]))
    lines = [f"{BLOCK_TITLES[block]}\n\n{listing(list(group))}\n" for block, group in groups]
    others = ", ".join(f"--config.task={name}" for name in TASKS if name != task)
    return "".join(lines) + paragraph(f"These are the settings of task={task}. For others add {others}.") + "\n"


def _explanation(key: str) -> str:
    """Return the explanation of a setting, or the settings in whose texts the key occurs."""
    try:
        return explained(key).text()
    except ConfigError:
        meanings = {setting.key: setting.meaning for setting in all_explained()}
        by_name = [*settings_called(key), *(name for name in meanings if key in name)]
        words = key.replace("_", " ")
        by_meaning = [name for name, meaning in meanings.items() if len(key) > 2 and words in _words(meaning)]
        if not (keys := list(dict.fromkeys([*by_name, *by_meaning]))):
            raise
        return listing([(name, meanings[name]) for name in keys]).rstrip("\n")


def _words(meaning: str) -> str:
    return meaning.lower().replace("_", " ").replace("-", " ")


def _settings_text(config: ExperimentConfig) -> str:
    """Return a line ``key = value`` for each setting, sorted, with an empty line between blocks."""
    flat = flatten(config)
    paragraphs = ["\n".join(f"{key} = {_shown(flat[key])}" for key in sorted(flat) if "." not in key)]
    for block in sorted({key.partition(".")[0] for key in flat if "." in key}):
        keys = sorted(key for key in flat if key.startswith(f"{block}."))
        width = max(map(len, keys))
        paragraphs.append("\n".join(f"{key:<{width}} = {_shown(flat[key])}" for key in keys))
    return "\n\n".join(paragraphs)


def difference_text(changes: list[tuple[str, object, object]], left: str, right: str) -> str:
    """Return a line for each setting that differs, ``model.d_ff  2048 -> 1024``."""
    if not changes:
        return f"No setting differs between {left} and {right}."
    width = max(len(key) for key, _, _ in changes)
    count = f"{len(changes)} setting{'s differ' if len(changes) > 1 else ' differs'}"
    lines = [f"{key:<{width}} = {_shown(before)} -> {_shown(after)}" for key, before, after in changes]
    return "\n".join([f"{count}, {left} -> {right}:", *lines])


def _shown(value: object) -> str:
    """Return a value as written after ``--config.KEY=``, an empty string as quotes."""
    return printable(str(value)) if value != "" else "''"


class Reader(NamedTuple):
    """A task, or one of its models, that has a setting.

    ``task`` is empty for all tasks and for parts.
    """

    name: str
    declared: Declared
    task: str = ""


class Explained(NamedTuple):
    """A setting: its dotted key, type, and readers."""

    key: str
    type_name: str
    readers: tuple[Reader, ...]

    def of_task(self, task: str) -> "Explained":
        """Return the setting with the readers of one task."""
        return self._replace(readers=tuple(reader for reader in self.readers if reader.task in ("", task)))

    @property
    def meaning(self) -> str:
        """The meaning, or the meanings with their readers."""
        return " ".join(f"{value} [{names}]" if names else value for value, names in self.by("meaning"))

    def text(self) -> str:
        """Return the explanation for the terminal."""
        lines = []
        for field, label in (("meaning", ""), ("values", "values: "), ("default", "default: ")):
            lines += [f"{label}{value}{f'  [{names}]' if names else ''}" for value, names in self.by(field)]
        if any(reader.declared.may_be_scheduled for reader in self.readers):
            lines.append(f"schedules: {'; '.join(form for _, form in FORMS.values())}")
        lines.append(f"read by: {', '.join(reader.name for reader in self.readers)}")
        for kind in dict.fromkeys(reader.declared.facts.get("plugin") for reader in self.readers):
            for name, part in registered(kind).items() if kind else ():
                if summary := ((inspect.getdoc(part) if callable(part) else "") or "").partition("\n")[0]:
                    lines.append(f"{name}: {summary}")
        return "\n".join([f"{self.key}  ({self.type_name})", *(paragraph(line, "  ", "    ") for line in lines)])

    def by(self, field: str) -> list[tuple[str, str]]:
        """Return the distinct values of a field with their readers, or without if all agree."""
        grouped: dict[str, list[str]] = {}
        for reader in self.readers:
            value = getattr(reader.declared, field)
            shown = ", ".join(value) if isinstance(value, tuple) else str(value) if value != "" else "''"
            grouped.setdefault(shown, []).append(reader.name)
        grouped.pop("", None)
        return [(value, ", ".join(names) if len(grouped) > 1 else "") for value, names in grouped.items()]


def explained(key: str) -> Explained:
    """Return the setting ``key``. Raises ConfigError, with the nearest key, if there is none."""
    return Explained(key, type_of(key).__name__, tuple(_readers(key)))


def all_explained() -> list[Explained]:
    """Return all settings, also of parts. Imports the whole kit."""
    return [explained(key) for key in (*(key for key, _ in leaf_keys()), *keys_of_parts())]


def _readers(key: str) -> Iterator[Reader]:
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        part = path.removeprefix(f"{PARTS}.")
        yield Reader(f"{setting_of(str(kind_with_settings(part)))}={part}", declared(block_at(path))[name])
        return
    if path not in BLOCKS_OF_TASKS:
        yield Reader(EVERY_TASK, declared(fields_of(ExperimentConfig)[path] if path else ExperimentConfig)[name])
        return
    for task in TASKS:
        kinds = kinds_of(task, path)
        if name == "kind" and len(kinds) > 1:
            first, settings = next(iter(kinds.items()))
            yield Reader(task, declared(settings)[name]._replace(default=first, choices=tuple(kinds)), task)
            continue
        for kind, settings in kinds.items():
            if name in declared(settings):
                yield Reader(f"{task} {kind}" if len(kinds) > 1 else task, declared(settings)[name], task)


def block_of(key: str) -> str:
    """Return the key in ``BLOCK_TITLES`` under which a setting is listed."""
    return key.partition(".")[0] if "." in key else ""


def settings_page() -> str:
    """Return the text of docs/settings.md."""
    parts = [
        "# Settings",
        "Every setting of every recipe: `--config.KEY=VALUE` changes it, `transformer-jax config --explain=KEY` "
        "explains it. This page is written by `transformer-jax config --list --markdown`.",
    ]
    settings = all_explained()
    for block, title in BLOCK_TITLES.items():
        rows = ["| setting | meaning | type | default | values |", "|---|---|---|---|---|"]
        for setting in settings:
            if block_of(setting.key) == block:
                meaning, default, values = (_cell(setting.by(field)) for field in ("meaning", "default", "values"))
                columns = [column.replace("|", "\\|") for column in (meaning, setting.type_name, default, values)]
                rows.append(f"| {' | '.join([f'`{setting.key}`', *columns])} |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _cell(values: list[tuple[str, str]]) -> str:
    shown = ((value if value != "''" else "`''`", names) for value, names in values)
    return "<br>".join(f"{value} ({names})" if names else value for value, names in shown)

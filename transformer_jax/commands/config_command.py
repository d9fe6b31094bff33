"""Settings before a run: ``config`` and ``recipes``."""

import itertools
import json
import textwrap

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, ExperimentConfig, difference, flatten, resolve, to_json
from transformer_jax.config.errors import nearest
from transformer_jax.config.explain import BLOCK_TITLES, all_explained, block_of, explained, settings_page
from transformer_jax.config.json_text import printable
from transformer_jax.config.plugins import load_installed_plugins
from transformer_jax.config.recipes import SHIPPED, listed_recipes

WIDTH = 110
INDENT = " " * 6


@flags.command(flags.arguments("NAME ...", "only these recipes, for example multi30k"))
def recipes(values: flags.Values) -> int:
    """List the recipes of the package: their purpose, and measured hardware, run time and score.

    Example:
        transformer-jax recipes multi30k
        transformer-jax train --config=multi30k:tiny_hour --config.data.directory=multi30k --workdir=runs/m30k

    A recipe of your own is a file: --config=mine.py, or --config=mine.py:VARIANT.
    """
    listed = listed_recipes()
    names = [recipe.name for recipe in listed]
    for name in values.arguments:
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"recipes are {', '.join(names)}"
            raise ConfigError(f"recipes: no recipe {name!r}; {hint}")
    for recipe in listed:
        if recipe.name in (values.arguments or names):
            print(f"{textwrap.fill(recipe.summary, WIDTH)}\n")
            width = max(len(variant.spec) for variant in recipe.variants)
            for variant in recipe.variants:
                print(f"  {variant.spec:<{width}}  {', '.join(variant.measured) or 'not yet run'}")
                if variant.summary:
                    print(textwrap.fill(variant.summary, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT))
            print()
    print(f"files: {SHIPPED}")
    return 0


@flags.command(
    flags.optional_config,
    flags.string("explain", None, "a setting, for example model.normalization, or a group, such as model"),
    flags.boolean("list", False, "print every setting in groups, with its meaning"),
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
        transformer-jax config --list

    Each line is a setting that --config.KEY=VALUE changes. --explain prints the meaning, the allowed values, the default
    and the readers of one setting; --list the meaning of all, --explain=model of a group. JAX is imported only for parts of
    the kit.
    """
    if values.explain is not None or (values.list and not values.markdown):
        load_installed_plugins()
    if values.explain is not None:
        key = values.explain.removeprefix("--config.").removeprefix("config.")
        print(_settings_list(key) if key in BLOCK_TITLES else explained(key).text())
        return 0
    if values.list:
        print(settings_page() if values.markdown else _settings_list(), end="")
        return 0
    if values.config is None:
        raise ConfigError("--config: is required; --help shows an example")
    found = flags.resolve_config(values)
    if values.against is None:
        print(json.dumps(to_json(found), indent=2, ensure_ascii=False) if values.json else _settings_text(found))
        return 0
    changes = difference(resolve(values.against), found)
    if values.json:
        print(json.dumps({key: {"against": left, "config": right} for key, left, right in changes}, indent=2))
    else:
        print(difference_text(changes, values.against, values.config))
    return 0


def _settings_list(only: str = "") -> str:
    """Every setting with its meaning, in groups, or the settings of one group."""
    found = [each for each in all_explained() if only in ("", block_of(each.key))]
    width = max(len(each.key) for each in found)
    lines = []
    for block, group in itertools.groupby(found, key=lambda each: block_of(each.key)):
        lines += [f"{BLOCK_TITLES[block]}\n", *(f"  {each.key:<{width}}  {each.meaning}" for each in group), ""]
    return "\n".join(lines)


def _settings_text(found: ExperimentConfig) -> str:
    """A line ``key = value`` for each setting, sorted; blocks are separated by empty lines."""
    flat = flatten(found)
    paragraphs = ["\n".join(f"{key} = {_shown(flat[key])}" for key in sorted(flat) if "." not in key)]
    for block in sorted({key.partition(".")[0] for key in flat if "." in key}):
        keys = sorted(key for key in flat if key.startswith(f"{block}."))
        width = max(map(len, keys))
        paragraphs.append("\n".join(f"{key:<{width}} = {_shown(flat[key])}" for key in keys))
    return "\n\n".join(paragraphs)


def difference_text(changes: list[tuple[str, object, object]], left: str, right: str) -> str:
    """A line for each setting that differs, ``model.d_ff  2048 -> 1024``, under a heading that names both."""
    if not changes:
        return f"No setting differs between {left} and {right}."
    width = max(len(key) for key, _, _ in changes)
    count = f"{len(changes)} setting{'s differ' if len(changes) > 1 else ' differs'}"
    lines = [f"{key:<{width}} = {_shown(before)} -> {_shown(after)}" for key, before, after in changes]
    return "\n".join([f"{count}, {left} -> {right}:", *lines])


def _shown(value: object) -> str:
    """A value as written after ``--config.KEY=``; an empty string is shown as quotes."""
    return printable(str(value)) if value != "" else "''"

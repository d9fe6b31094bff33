"""Print the settings of a recipe or a run, every one of them, or the difference from another.

Example:
    transformer-jax config --config=multi30k:tiny --config.model.dropout=0.2
    transformer-jax config --config=multi30k:tiny --against=runs/multi30k

    transformer-jax config --explain=model.normalization
    transformer-jax config --list

Each line is a setting that --config.KEY=VALUE changes. --explain prints the meaning, the allowed values, the default
and the readers of one; --list the meaning of every one. Nothing is started and JAX is not loaded.
"""

import itertools
import json

from absl import flags

from transformer_jax.commands.flag_parsing import define_config_flag, resolve_config
from transformer_jax.config import ConfigError, ExperimentConfig, difference, flatten, resolve, to_json
from transformer_jax.config.explain import BLOCK_TITLES, all_explained, explained, settings_page
from transformer_jax.config.plugins import load_installed_plugins


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_config_flag(values, required=False)
    flags.DEFINE_string("explain", None, "a setting, for example model.normalization", flag_values=values)
    flags.DEFINE_boolean("list", False, "print every setting in groups, with its meaning", flag_values=values)
    flags.DEFINE_boolean("markdown", False, "--list as docs/settings.md has it", flag_values=values)
    flags.DEFINE_string(
        "against", None, "another recipe or run directory: print only the difference", flag_values=values
    )
    flags.DEFINE_boolean("json", False, "print JSON, as in the config.json of a run", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Prints; always 0."""
    if values.explain is not None or (values.list and not values.markdown):
        load_installed_plugins()
    if values.explain is not None:
        print(explained(values.explain.removeprefix("--config.").removeprefix("config.")).text())
        return 0
    if values.list:
        print(settings_page() if values.markdown else settings_list(), end="")
        return 0
    if values.config is None:
        raise ConfigError("--config: is required; --help shows an example")
    config = resolve_config(values)
    if values.against is None:
        print(json.dumps(to_json(config), indent=2, ensure_ascii=False) if values.json else settings_text(config))
        return 0
    changes = difference(resolve(values.against), config)
    if values.json:
        print(json.dumps({key: {"against": left, "config": right} for key, left, right in changes}, indent=2))
    else:
        print(difference_text(changes, values.against, values.config))
    return 0


def settings_list() -> str:
    """Every setting with its meaning, in groups."""
    found = all_explained()
    width = max(len(each.key) for each in found)
    lines = []
    for block, group in itertools.groupby(found, key=lambda each: each.key.rpartition(".")[0]):
        lines.append(f"{BLOCK_TITLES[block]}\n")
        lines += [f"  {each.key:<{width}}  {each.meaning}" for each in group]
        lines.append("")
    return "\n".join(lines)


def settings_text(config: ExperimentConfig) -> str:
    """One ``key = value`` line a setting, sorted, aligned within a block, blocks apart."""
    flat = flatten(config)
    single = [f"{key} = {_shown(flat[key])}" for key in sorted(flat) if "." not in key]
    paragraphs = ["\n".join(single)]
    for block in sorted({key.partition(".")[0] for key in flat if "." in key}):
        keys = sorted(key for key in flat if key.startswith(f"{block}."))
        width = max(map(len, keys))
        paragraphs.append("\n".join(f"{key:<{width}} = {_shown(flat[key])}" for key in keys))
    return "\n\n".join(paragraphs)


def difference_text(changes: list[tuple[str, object, object]], left: str, right: str) -> str:
    """A line for each setting that differs, ``model.d_ff  2048 -> 1024``, under a heading that names both."""
    if not changes:
        return f"No difference between {left} and {right}."
    width = max(len(key) for key, _, _ in changes)
    count = f"{len(changes)} setting{'s differ' if len(changes) > 1 else ' differs'}"
    lines = [f"{key:<{width}} = {_shown(before)} -> {_shown(after)}" for key, before, after in changes]
    return "\n".join([f"{count}, {left} -> {right}:", *lines])


def _shown(value: object) -> str:
    """A value as written after ``--config.KEY=``; an empty string is shown as quotes."""
    return str(value) if value != "" else "''"

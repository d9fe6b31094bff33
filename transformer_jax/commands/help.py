"""The text of ``transformer-jax --help`` and ``transformer-jax COMMAND --help``."""

import inspect
import textwrap

from absl import flags

from transformer_jax.commands.flag_parsing import ARGUMENTS_FLAG, OVERRIDE_FLAG, OVERRIDE_MEANING, define_common_flags
from transformer_jax.commands.registry import COMMANDS, CommandModule

WIDTH = 100


def overview() -> str:
    """The list of commands, one line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Sequence transduction with attention: train, evaluate, translate, look.",
            "",
            "Usage: transformer-jax COMMAND [--flag=value ...]",
            "",
            *lines,
            "",
            "transformer-jax COMMAND --help says more about a command, with an example.",
            "Try: transformer-jax quickstart",
        ]
    )


def command_help(name: str, module: CommandModule) -> str:
    """The docstring of a command, then its arguments, then its flags with their defaults."""
    values = flags.FlagValues()
    module.define_flags(values)
    define_common_flags(values)
    arguments = [_describe(values[ARGUMENTS_FLAG])] if ARGUMENTS_FLAG in values else []
    described = [_describe(values[flag]) for flag in sorted(set(values) - {ARGUMENTS_FLAG})]
    described.append(("--help", "show this and exit"))
    usage = " ".join(["Usage: transformer-jax", name, *(head for head, _ in arguments), "[--flag=value ...]"])
    parts = [usage, inspect.cleandoc(module.__doc__ or "")]
    parts += [
        f"{title}:\n{_listed(items)}" for title, items in (("Arguments", arguments), ("Flags", described)) if items
    ]
    return "\n\n".join(parts)


def _listed(items: list[tuple[str, str]]) -> str:
    return "\n".join(_paragraph(*item) for item in items)


def _describe(flag: flags.Flag) -> tuple[str, str]:
    """Syntax and meaning of a flag; absl shows the default as text, None where there is none."""
    if flag.name == OVERRIDE_FLAG:
        return "--config.KEY=VALUE", OVERRIDE_MEANING
    if flag.name == ARGUMENTS_FLAG:
        # absl adds that the flag can be repeated.
        name, _, meaning = str(flag.help).partition(";\n")[0].partition(": ")
        return name, meaning
    written = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={_placeholder(flag)}"
    default = "" if flag.default in (None, "", []) else f" (default: {flag.default})"
    # absl adds that the flag can be repeated.
    meaning = " ".join(str(flag.help).partition(";\n    repeat this")[0].split())
    # absl writes the choices of an enum once more in front of the meaning.
    return written, meaning.removeprefix(f"<{_placeholder(flag)}>: ") + default


def _placeholder(flag: flags.Flag) -> str:
    """The word that stands for the value: the choices of an enum, a number, a list, else VALUE."""
    choices = getattr(flag.parser, "enum_values", None)
    if choices:
        return "|".join(choices)
    return {"int": "N", "float": "NUMBER", "multi string": "VALUE"}.get(flag.flag_type(), "VALUE")


def _paragraph(head: str, text: str) -> str:
    """A flag on its own line, what it means indented below."""
    return f"  {head}\n" + textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)

"""Commands by name, and the text of ``transformer-jax COMMAND --help``."""

import inspect
import textwrap
from typing import Any

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.config.errors import nearest
from transformer_jax.index import commands

WIDTH = 100


def load_command(name: str) -> flags.Command:
    """Import a command; raise ConfigError, which names the nearest one, when it does not exist."""
    listed = commands()
    if name not in listed:
        near = nearest(name, listed)
        hint = f"did you mean {near}?" if near else f"commands are {', '.join(listed)}"
        raise ConfigError(f"{name!r} is not a command; {hint}")
    command: flags.Command = listed[name].load()
    return command


def command_help(name: str) -> str:
    """The docstring of a command, then its arguments, then its flags with their defaults."""
    command, values = load_command(name), flags.Values()
    for define in (*command.flags, flags.common):
        define(values)
    arguments = [_describe(values[flags.ARGUMENTS_FLAG])] if flags.ARGUMENTS_FLAG in values else []
    if flags.takes_run(values):
        arguments = [("[RUN]", f"the same as --{flags.WORKDIR_FLAG}=RUN")]
    described = [_describe(values[flag]) for flag in sorted(set(values) - {flags.ARGUMENTS_FLAG})]
    described.append(("--help", "show this and exit"))
    usage = " ".join(["Usage: transformer-jax", name, *(head for head, _ in arguments), "[--flag=value ...]"])
    parts = [usage, inspect.cleandoc(command.run.__doc__ or "")]
    parts += [
        f"{title}:\n" + "\n".join(_paragraph(*item) for item in items)
        for title, items in (("Arguments", arguments), ("Flags", described))
        if items
    ]
    return "\n\n".join(parts)


def _describe(flag: Any) -> tuple[str, str]:
    """Syntax and meaning of a flag."""
    if flag.name == flags.OVERRIDE_FLAG:
        return "--config.KEY=VALUE", flags.OVERRIDE_MEANING
    if flag.name == flags.ARGUMENTS_FLAG:
        # absl appends that the flag can be repeated.
        name, _, meaning = str(flag.help).partition(";\n")[0].partition(": ")
        return name, meaning
    written = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={_placeholder(flag)}"
    default = "" if flag.default in (None, "", []) else f" (default: {flag.default})"
    # absl appends that the flag can be repeated, and puts the choices of an enum before the meaning.
    meaning = " ".join(str(flag.help).partition(";\n    repeat this")[0].split())
    return written, meaning.removeprefix(f"<{_placeholder(flag)}>: ") + default


def _placeholder(flag: Any) -> str:
    """Placeholder of the value: the choices of an enum, N, NUMBER, or VALUE."""
    choices = getattr(flag.parser, "enum_values", None)
    if choices:
        return "|".join(choices)
    return {"int": "N", "float": "NUMBER", "multi string": "VALUE"}.get(flag.flag_type(), "VALUE")


def _paragraph(head: str, text: str) -> str:
    """A flag, and its meaning, indented, in the lines below."""
    return f"  {head}\n" + textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)

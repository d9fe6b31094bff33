"""Commands by name, and the text of ``transformer-jax COMMAND --help``."""

import inspect
import re
import textwrap
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import other_toolkits
from transformer_jax.errors import nearest
from transformer_jax.registry.index import commands, own_commands

WIDTH = 100
PAGES = Path(__file__).parents[1] / "pages"
"""The pages of the documentation in an installed wheel."""


def load_command(name: str) -> flags.Command:
    """Import a command; raise ConfigError, which names the nearest one, when it does not exist."""
    listed = own_commands()
    if name not in listed:
        listed = commands()
    if name not in listed:
        meant = [each for each in other_toolkits("commands").get(name, []) if each in listed]
        near = meant[0] if meant else nearest(name, listed)
        hint = f"did you mean {near}?" if near else f"commands are {', '.join(listed)}"
        raise ConfigError(f"{name!r} is not a command", remedy=hint)
    command: flags.Command = listed[name].load()
    return command


def command_help(name: str) -> str:
    """The docstring of a command, then its arguments, then its flags with their defaults."""
    command = load_command(name)
    parser = flags.Parser(command.flags)
    arguments = [(parser.words, parser.meaning_of_words)] if parser.words else []
    if parser.takes_run:
        arguments = [("[RUN]", "the same as --workdir=RUN")]
    described = [parser.flags[flag].described() for flag in sorted(parser.flags)]
    described += [("--config.KEY=VALUE", flags.OVERRIDE_MEANING)] * parser.takes_settings
    described.append(("--help", "show this and exit"))
    usage = " ".join(["Usage: transformer-jax", name, *(head for head, _ in arguments), "[--flag=value ...]"])
    parts = [usage, inspect.cleandoc(command.run.__doc__ or "")]
    parts += [
        f"{title}:\n" + "\n".join(_paragraph(*item) for item in items)
        for title, items in (("Arguments", arguments), ("Flags", described))
        if items
    ]
    return with_pages("\n\n".join(parts))


def with_pages(text: str) -> str:
    """Return text with the paths of the installed pages for ``docs/NAME.md``, which only a checkout has."""
    return re.sub(r"\bdocs/(?=\w+\.md\b)", f"{PAGES}/", text) if PAGES.is_dir() else text


def _paragraph(head: str, text: str) -> str:
    """A flag, and its meaning, indented, in the lines below."""
    return f"  {head}\n" + textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)

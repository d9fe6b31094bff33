"""Commands by name, and the text of ``transformer-jax COMMAND --help``."""

import inspect
import re
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import other_toolkits
from transformer_jax.errors import nearest
from transformer_jax.files.terminal import INDENT, MAX_WIDTH, paragraph, width
from transformer_jax.registry.index import commands, own_commands

PAGES = Path(__file__).parents[1] / "pages"
"""The pages of the documentation in an installed wheel."""


def load_command(name: str) -> flags.Command:
    """Import a command. Raises ConfigError, with the nearest name, when it does not exist."""
    listed = own_commands()
    if name not in listed:
        listed = commands()
    if name not in listed:
        meant = [synonym for synonym in other_toolkits("commands").get(name, []) if synonym in listed]
        near = meant[0] if meant else nearest(name, listed)
        hint = f"did you mean {near}?" if near else f"commands are {', '.join(listed)}"
        raise ConfigError(f"{name!r} is not a command", remedy=hint)
    return listed[name].load()


def command_help(name: str) -> str:
    """Return the docstring of a command, then its arguments, then its flags with their defaults."""
    command = load_command(name)
    parser = flags.Parser(command.flags)
    arguments = [(parser.words, parser.meaning_of_words)] if parser.words else []
    if parser.takes_run:
        arguments = [("[RUN]", "the same as --workdir=RUN")]
    described = [parser.flags[flag].described() for flag in sorted(parser.flags)]
    described += [("--config.KEY=VALUE", flags.OVERRIDE_MEANING)] * parser.takes_settings
    described.append(("--help", "show this and exit"))
    usage = " ".join(["Usage: transformer-jax", name, *(head for head, _ in arguments), "[--flag=value ...]"])
    columns = min(width(), MAX_WIDTH)
    parts = [paragraph(usage, "", INDENT, columns)]
    parts += [_fitting(part, columns) for part in inspect.cleandoc(command.run.__doc__ or "").split("\n\n")]
    parts += [
        f"{title}:\n" + "\n".join(f"  {head}\n{paragraph(text, INDENT, INDENT, columns)}" for head, text in items)
        for title, items in (("Arguments", arguments), ("Flags", described))
        if items
    ]
    return with_pages("\n\n".join(parts))


def with_pages(text: str) -> str:
    """Replace ``docs/NAME.md``, which only a checkout has, by the paths of the installed pages."""
    return re.sub(r"\bdocs/(?=\w+\.md\b)", f"{PAGES}/", text) if PAGES.is_dir() else text


def _fitting(part: str, columns: int) -> str:
    """Wrap a paragraph of a docstring, in which indented lines are commands."""
    lines: list[str] = []
    for line in re.sub(r"\n(?! )", " ", part).split("\n"):
        if line.startswith(" "):
            # A quoted word is one word.
            words = re.sub(r"'[^']*'|\"[^\"]*\"", lambda quoted: quoted[0].replace(" ", "\0"), line)
            *several, last = paragraph(words, rest=" " * 8, columns=columns - 2).replace("\0", " ").split("\n")
            lines += [*(f"{part} \\" for part in several), last]
        else:
            lines.append(paragraph(line, columns=columns))
    return "\n".join(lines)

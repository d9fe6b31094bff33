"""The text of ``transformer-jax --help``: all commands in their groups. Imports no library."""

from itertools import groupby

from transformer_jax.files.terminal import MAX_WIDTH, paragraph, width
from transformer_jax.registry.index import COMMAND_GROUPS, commands

HEAD = "Sequence transduction with attention: train, evaluate, translate, inspect."
END = """transformer-jax COMMAND --help describes a command, with examples.
Try: transformer-jax quickstart"""


def overview() -> str:
    """Return the complete commands with their summaries, wrapped at the width of the terminal."""
    listed = {name: command for name, command in commands().items() if not command.missing}
    column = max(map(len, listed)) + 4
    columns = min(width(), MAX_WIDTH)
    blocks = [HEAD, "Usage: transformer-jax COMMAND [--flag=value ...]"]
    for group, items in groupby(listed.items(), key=lambda item: item[1].group):
        lines = [
            paragraph(command.summary, f"  {name}".ljust(column), " " * column, columns) for name, command in items
        ]
        blocks.append("\n".join([f"{COMMAND_GROUPS[group]}:", *lines]))
    return "\n\n".join([*blocks, END])

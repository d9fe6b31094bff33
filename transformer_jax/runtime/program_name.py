"""Command line of this package as the user typed it, so that printed commands work when pasted."""

import shlex
import shutil
import sys
from pathlib import Path

NAME = "transformer-jax"


def program_name() -> str:
    """``transformer-jax`` where the shell finds this installation under that name, else the path by which it was started."""
    started = Path(sys.argv[0])
    if started.name != NAME:
        return NAME
    found = shutil.which(NAME)
    return NAME if found and Path(found).resolve() == started.resolve() else shlex.quote(str(started))

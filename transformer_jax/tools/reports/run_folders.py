"""Run directories named on the command line, and short names for them."""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.config.errors import natural_order
from transformer_jax.runs.run_directory import RunDirectory


def find_runs(arguments: Sequence[str]) -> list[Path]:
    """The run directories that the arguments name, without repetitions, in order.

    An argument is a run directory, or a folder that contains run directories, such as the ``trials`` of a sweep, which are
    listed in natural order (``trial-2`` before ``trial-10``). Raises ConfigError for an argument that is neither.
    """
    found: dict[Path, None] = {}
    for argument in arguments:
        folder = Path(argument).expanduser()
        if not argument.strip() or not folder.is_dir():
            raise ConfigError(f"{argument!r} is not a folder; give a run, or a folder of runs")
        inside = sorted(filter(_is_run, folder.iterdir()), key=lambda run: natural_order(run.name))
        runs = [folder] if _is_run(folder) else inside
        if not runs:
            raise ConfigError(f"{folder}: no config.json in it or one level below (found {_listing(folder)})")
        found |= dict.fromkeys(run.resolve() for run in runs)
    return list(found)


def run_of(path: Path) -> Path:
    """The run directory ``path``, or the run directory of a file ``path``; raises ConfigError if there is none."""
    run = path if path.is_dir() else path.parent
    if not path.exists() or not _is_run(run):
        problem = f"no config.json in {run}" if path.exists() else "does not exist"
        raise ConfigError(f"{path}: {problem}; give a run directory, or a file that evaluate wrote into one")
    return run


def short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest suffix of each path that distinguishes it from the others.

    ``[a/x/run, b/x/run, b/other]`` gives ``["a/x/run", "b/x/run", "other"]``.
    """
    lengths = dict.fromkeys(paths, 1)
    while True:
        names = {path: "/".join(path.parts[-length:]) for path, length in lengths.items()}
        same = [path for path, name in names.items() if list(names.values()).count(name) > 1]
        if not same:
            return [names[path] for path in paths]
        lengths |= {path: lengths[path] + 1 for path in same}


def _listing(folder: Path) -> str:
    return ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"


def _is_run(folder: Path) -> bool:
    return RunDirectory(folder).config.is_file()

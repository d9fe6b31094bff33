"""Python files with settings, such as recipes: read by calling a function in them; errors become one line."""

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.names import nearest


def call_in_file(path: Path, function: str, argument: str, kind: str) -> Any:
    """Calls a function of a Python file and returns its result; ``argument`` is passed unless it is empty.

    ``kind``: what such a file is, for messages. Raises ConfigError when the file fails, has no such function, or the argument
    is not one of those it lists in ``VARIANTS``.
    """
    spec = f"{path}:{argument}" if argument else str(path)
    with _sibling_imports(path.parent), _as_config_error(spec, path):
        # Under a separate name: run_path puts the module where a file called copy.py would hide the real copy.
        namespace = runpy.run_path(str(path), run_name=f"file_{path.stem}")
        called = namespace.get(function)
        if not callable(called):
            raise ConfigError(f"{path}: not {kind}: it has no function {function}()")
        _require_variant(spec, path, argument, called, namespace.get("VARIANTS"))
        return called(argument) if argument else called()


def names_in_file(path: Path) -> dict[str, Any]:
    """The names that a Python file defines; raises ConfigError when it fails."""
    with _sibling_imports(path.parent), _as_config_error(str(path), path):
        return runpy.run_path(str(path), run_name=f"file_{path.stem}")


def _require_variant(spec: str, path: Path, argument: str, function: Callable[..., Any], variants: Any) -> None:
    """Raises ConfigError unless ``function`` can be called with this argument (or with none, when it is empty)."""
    parameters = inspect.signature(function).parameters.values()
    names = [str(variant) for variant in variants or ()]
    listing = f"; one of {', '.join(names)}" if names else ""
    if not argument:
        if any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters):
            raise ConfigError(f"{spec}: needs an argument after a colon, {path.name}:ARGUMENT{listing}")
        return
    if not parameters:
        raise ConfigError(f"{spec}: {path.name} has no variants; leave out {':' + argument!r}")
    if names and argument not in names:
        near = nearest(argument, names)
        hint = f"; did you mean {path.name}:{near}?" if near else listing
        raise ConfigError(f"{spec}: unknown variant {argument!r}{hint}")


@contextmanager
def _sibling_imports(folder: Path) -> Iterator[None]:
    """Lets a file import its siblings, and forgets them afterwards: another folder may have files of the same name."""
    before = set(sys.modules)
    # At the end: a recipe called copy.py must not hide the module of the standard library.
    sys.path.append(str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder.resolve():
                del sys.modules[name]


@contextmanager
def _as_config_error(spec: str, path: Path) -> Iterator[None]:
    """Turns whatever the file raises into one ConfigError with the file and the line in it."""
    try:
        yield
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    # A file that calls sys.exit would end the command without a word.
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).resolve().parent == path.resolve().parent]
        where = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else spec
        raise ConfigError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error

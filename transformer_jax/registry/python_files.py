"""Execution of Python files of users: plugins, recipes and sweeps. Errors name file and line."""

import inspect
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformer_jax.errors import ConfigError, nearest

_LOADED: dict[str, tuple[str, bytes]] = {}
"""The loaded plugins by absolute path: the file as the command named it, and its text."""


def load_plugin(file: str) -> None:
    """Run the Python file of a plugin. Raises ConfigError when it does not exist or fails."""
    path = Path(file).expanduser()
    if not path.is_file():
        hint = "; repeat --plugin for each file" if "," in file else ""
        raise ConfigError("--plugin", f"{path} is not a file{hint}")
    text = path.read_bytes()
    try:
        names_in_file(path)
    except ConfigError as error:
        if str(error).startswith("register: "):
            raise ConfigError(path, error) from error
        raise
    _LOADED[str(path.absolute())] = file, text


def module_of_file(file: str | Path) -> str:
    """Return the module name of an executed file, which no standard module has."""
    return f"file_{Path(file).stem}"


def loaded_plugins() -> dict[str, str]:
    """Return the loaded files with their SHA-256 when they were loaded."""
    return {file: sha256(text).hexdigest() for file, (_, text) in _LOADED.items()}


def text_of_plugin(file: str) -> bytes:
    """Return the text of a loaded file when it was loaded."""
    return _LOADED[file][1]


def line_of_plugin(error: BaseException) -> str:
    """Return ``FILE, line N`` of a loaded file in the traceback of an error, or ""."""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if is_loaded(frame.filename)]
    return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else ""


def is_of_plugin(error: BaseException) -> bool:
    """Return whether a loaded file, not code of this package that it called, raised an error."""
    package = Path(__file__).parents[1]
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours_or_loaded = [file for file in files if is_loaded(file) or Path(file).is_relative_to(package)]
    return bool(ours_or_loaded) and is_loaded(ours_or_loaded[-1])


def is_loaded(file: str) -> bool:
    return str(Path(file).absolute()) in _LOADED


def plugin_flags() -> str:
    """Return the ``--plugin`` flags of this command after spaces, for a printed command."""
    return "".join(f" --plugin={shlex.quote(file)}" for file, _ in _LOADED.values())


def call_in_file(path: Path, function: str, argument: str, kind: str) -> Any:
    """Call a function of a Python file, with ``argument`` unless it is empty.

    ``kind`` names such files in messages. Raises ConfigError when the file fails or has no such
    function, or the argument is not in its ``VARIANTS``.
    """
    spec = f"{path}:{argument}" if argument else str(path)
    with _running(path, spec):
        # Under a separate name: a file called copy.py would hide the real copy.
        namespace = runpy.run_path(str(path), run_name=module_of_file(path))
        called = namespace.get(function)
        if not callable(called):
            raise ConfigError(path, f"not {kind}: it has no function {function}()")
        variants = [str(variant) for variant in namespace.get("VARIANTS", ())]
        if argument and variants and argument not in variants:
            near = nearest(argument, variants)
            hint = f"did you mean {path.name}:{near}?" if near else f"one of {', '.join(variants)}"
            raise ConfigError(spec, f"unknown variant {argument!r}", hint)
        if argument and not inspect.signature(called).parameters:
            raise ConfigError(spec, f"{path.name} has no variants")
        return called(argument) if argument else called()


def names_in_file(path: Path) -> dict[str, Any]:
    """Return the names that a Python file defines. Raises ConfigError when it fails."""
    with _running(path, str(path)):
        return runpy.run_path(str(path), run_name=module_of_file(path))


@contextmanager
def _running(path: Path, spec: str) -> Iterator[None]:
    """Let a file import its siblings inside the block.

    They leave ``sys.modules`` afterwards, since other folders may have the same names. Raises
    ConfigError, with file and line, for every exception of the file.
    """
    folder, before = path.resolve().parent, set(sys.modules)
    # At the end: a recipe called copy.py must not hide the module of the standard library.
    sys.path.append(str(folder))
    try:
        yield
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}", error.msg) from error
    # A file that calls sys.exit would end the command without a message.
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).resolve().parent == folder]
        line = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else spec
        raise ConfigError(line, f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder:
                del sys.modules[name]

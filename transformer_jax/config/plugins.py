"""Plugins: attentions, positions, data sources, tasks, optimizers and trackers of users, and the Python files of users.

A plugin is a Python file, given by ``--plugin=FILE``, or a module that an installed distribution names as an entry point of the
group ``transformer_jax.plugins``; running it registers what it adds. A run records the names of its files, never code.
"""

import importlib
import inspect
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.config.errors import ConfigError, nearest
from transformer_jax.kit import KIT

EXTENSIONS = {
    "attention": "model.attention of Transformers: an AttentionChange",
    "rnn_attention": "model.attention of recurrent models: settings -> RnnAttention",
    "positions": "model.positions: settings, model settings, site -> module of positions, AttentionChange or None",
    "data_source": "data.source of translation: settings, seed -> Corpus",
    "task": "task: a subclass of tasks.task.Task with its settings",
    "optimizer": "optimizer.name: hyperparameters -> list of optax transformations",
    "word_table": "init.embeddings: path of a file -> table of words and their vectors",
    "tracker": "training.trackers: run folder, settings, first update -> Tracker",
}
KINDS_WITH_PARAMETERS = ("attention", "rnn_attention", "positions", "task")
ENTRY_POINTS = "transformer_jax.plugins"
BUILT_IN = ("transformer_jax.tools.word_vectors.task.registration",)
"""Modules of the package that register what lies outside of its core, loaded as installed plugins are."""

Registered = TypeVar("Registered")
Entry = TypeVar("Entry")
_REGISTERED: dict[str, dict[str, Any]] = {kind: {} for kind in EXTENSIONS}
_SETTINGS: dict[tuple[str, str], Any] = {}
_BUILT_IN: set[tuple[str, str]] = set()
_LOADED: list[str] = []


def register(kind: str, name: str, settings: type | None = None) -> Callable[[Registered], Registered]:
    """Decorator that adds a function or class under ``name``, which the setting of its ``kind`` then takes.

    Raises ConfigError when there is no such kind.
    """
    if kind not in EXTENSIONS:
        raise ConfigError(f"register: {kind!r} is not one of {', '.join(EXTENSIONS)}")

    def add(made: Registered) -> Registered:
        _REGISTERED[kind][name] = made
        _SETTINGS[kind, name] = settings
        return made

    return add


def registered(kind: str) -> dict[str, Any]:
    """What was added of a kind, by name, by installed plugins too."""
    load_installed_plugins()
    for (of, _), module in KIT.items():
        if of == kind:
            importlib.import_module(f"transformer_jax.kit.{module}")
    return dict(_REGISTERED[kind])


def default_settings(kind: str, name: str) -> Any:
    """The default settings of a registered part; None if it has none."""
    made = _SETTINGS.get((kind, name))
    return made and made()


def may_add_parameters() -> bool:
    """Whether a plugin of a user registered a part or a task, whose parameters the package does not know."""
    own = _BUILT_IN | KIT.keys()
    return any((kind, name) not in own for kind in KINDS_WITH_PARAMETERS for name in _REGISTERED[kind])


def is_registered(kind: str, name: str) -> bool:
    """Whether ``name`` was added; installed plugins are loaded before it is denied."""
    if name not in _REGISTERED[kind] and (kind, name) in KIT:
        importlib.import_module(f"transformer_jax.kit.{KIT[kind, name]}")
    if name not in _REGISTERED[kind]:
        load_installed_plugins()
    return name in _REGISTERED[kind]


class WithRegistered(Mapping[str, Entry]):
    """A table of the package, then what plugins register of one kind under other names; ``made`` turns that into entries."""

    def __init__(self, own: Mapping[str, Entry], kind: str, made: Callable[[Any], Entry]) -> None:
        self._own, self._kind, self._made = own, kind, made

    def __getitem__(self, name: str) -> Entry:
        if name in self._own or not is_registered(self._kind, name):
            return self._own[name]
        return self._made(_REGISTERED[self._kind][name])

    def __iter__(self) -> Iterator[str]:
        load_installed_plugins()
        return iter(dict.fromkeys((*self._own, *_REGISTERED[self._kind])))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def load_plugin(file: str) -> None:
    """Runs a Python file that registers something; raises ConfigError when there is none, or it fails."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise ConfigError(f"--plugin: {path} is not a file")
    names_in_file(path)
    _LOADED.append(str(path.absolute()))


def loaded_plugins() -> list[str]:
    return list(dict.fromkeys(_LOADED))


def plugin_flags() -> str:
    """The flags that load them again, each after a space, for a command that is printed."""
    return "".join(f" --plugin={shlex.quote(file)}" for file in loaded_plugins())


def _all_registered() -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in _REGISTERED.items() for name in names}


@cache
def load_installed_plugins() -> None:
    """Imports the built-in plugins and those of installed distributions, once; raises ConfigError when one fails."""
    before = _all_registered()
    for module in BUILT_IN:
        importlib.import_module(module)
    _BUILT_IN.update(_all_registered() - before)
    for entry_point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            problem = f"plugin {entry_point.name} ({entry_point.value}) fails: {type(error).__name__}: {error}"
            raise ConfigError(f"{problem}; mend or uninstall it") from error


def call_in_file(path: Path, function: str, argument: str, kind: str) -> Any:
    """Calls a function of a Python file and returns its result; ``argument`` is passed unless it is empty.

    ``kind``: what such a file is, for messages. Raises ConfigError when the file fails, has no such function, or the argument
    is not one of those it lists in ``VARIANTS``.
    """
    spec = f"{path}:{argument}" if argument else str(path)
    with _running(path, spec):
        # Under a separate name: run_path puts the module where a file called copy.py would hide the real copy.
        namespace = runpy.run_path(str(path), run_name=f"file_{path.stem}")
        called = namespace.get(function)
        if not callable(called):
            raise ConfigError(f"{path}: not {kind}: it has no function {function}()")
        _require_variant(spec, path, argument, called, namespace.get("VARIANTS"))
        return called(argument) if argument else called()


def names_in_file(path: Path) -> dict[str, Any]:
    """The names that a Python file defines; raises ConfigError when it fails."""
    with _running(path, str(path)):
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
def _running(path: Path, spec: str) -> Iterator[None]:
    """Lets a file import its siblings, which are forgotten afterwards: another folder may have files of the same name.

    Raises one ConfigError with the file and the line for whatever the file raises.
    """
    folder, before = path.resolve().parent, set(sys.modules)
    # At the end: a recipe called copy.py must not hide the module of the standard library.
    sys.path.append(str(folder))
    try:
        yield
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    # A file that calls sys.exit would end the command without a message.
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).resolve().parent == folder]
        where = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else spec
        raise ConfigError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder:
                del sys.modules[name]

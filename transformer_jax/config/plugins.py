"""Registry of what users add without editing the package: attentions, positions, data sources, tasks, optimizers, trackers.

A plugin is a Python file, given by ``--plugin=FILE``, or a module that an installed distribution names as an entry point of the
group ``transformer_jax.plugins``; it registers what it has when it is run. A run keeps the names of its files, never code.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.python_files import names_in_file

EXTENSIONS = {
    "attention": "model.attention of Transformers: a ScoredAttention",
    "rnn_attention": "model.attention of recurrent models: settings -> RnnAttention",
    "positions": "model.positions: settings -> module of positions",
    "data_source": "data.source of translation: settings, seed -> Corpus",
    "task": "task: nothing -> NewTask",
    "optimizer": "optimizer.name: hyperparameters -> list of optax transformations",
    "tracker": "training.trackers: run folder, settings, first update -> Tracker",
}
KINDS_WITH_PARAMETERS = ("attention", "rnn_attention", "positions", "task")
ENTRY_POINTS = "transformer_jax.plugins"

Registered = TypeVar("Registered")
Entry = TypeVar("Entry")
_REGISTERED: dict[str, dict[str, Any]] = {kind: {} for kind in EXTENSIONS}
_LOADED: list[str] = []


def register(kind: str, name: str) -> Callable[[Registered], Registered]:
    """Decorator that adds a function or class under ``name``, which the setting of its ``kind`` then takes.

    Raises ConfigError when there is no such kind.
    """
    if kind not in EXTENSIONS:
        raise ConfigError(f"register: {kind!r} is not one of {', '.join(EXTENSIONS)}")

    def add(made: Registered) -> Registered:
        _REGISTERED[kind][name] = made
        return made

    return add


def registered(kind: str) -> dict[str, Any]:
    """What was added of a kind, by name."""
    return dict(_REGISTERED[kind])


def is_registered(kind: str, name: str) -> bool:
    """Whether ``name`` was added; installed plugins are loaded before it is denied."""
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
    """The files that were loaded, each once."""
    return list(dict.fromkeys(_LOADED))


def plugin_flags() -> str:
    """The flags that load them again, each after a space, for a command that is printed."""
    return "".join(f" --plugin={shlex.quote(file)}" for file in loaded_plugins())


@cache
def load_installed_plugins() -> None:
    """Imports the plugins of installed distributions, once; raises ConfigError when one fails."""
    for entry_point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"plugin {entry_point.name} ({entry_point.value}) fails: {problem}; mend or uninstall it"
            ) from error

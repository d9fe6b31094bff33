"""Parts of models, optimizers, data sources, tasks and trackers by name, also of plugins.

A plugin is a Python file (``--plugin=FILE``) or a module that an installed distribution names as an
entry point of the group ``transformer_jax.plugins``. It calls ``register``. A run records the
digests of plugin files, and keeps their text, which no command runs. The package registers the
parts of the core and of the kit (``transformer_jax.kit``) in the same way, on first use.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeVar

from transformer_jax.errors import ConfigError
from transformer_jax.registry.index import ListedPart, all_parts, entry_points, own_parts
from transformer_jax.registry.kinds import KINDS
from transformer_jax.registry.python_files import loaded_plugins, module_of_file

EXAMPLES = {("tracker", name): f"examples/{name}_tracker.py" for name in ("mlflow", "trackio")}
"""Files of the repository that register parts which users may know from elsewhere."""
LOGGED_KINDS = ("loss_term", "statistic", "after_update")
LOGGED = ("loss", "nll", "accuracy", "tokens", "gradient_norm", "learning_rate", "target_tokens", "skipped_updates")
"""Metrics train/NAME of every run; parts of ``LOGGED_KINDS`` add others."""
OF_VALIDATIONS = ("loss", "perplexity", "search_tokens_per_second", "distinct_outputs", "cross_attention_entropy")
"""Metrics validation/NAME of translations, without scores of sacreBLEU and parts ``metric``."""
PLUGIN_ENTRY_POINTS = "transformer_jax.plugins"
Registered = TypeVar("Registered")
OWN_NAMES: dict[str, set[str]] = {kind: set() for kind in KINDS}
"""Values of settings without a registered part: scores of sacreBLEU, and mostly ``none``."""
_REGISTERED: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
_SETTINGS: dict[tuple[str, str], type] = {}
_REFERENCES: dict[tuple[str, str], Callable[..., Any]] = {}


def register(
    kind: str, name: str, settings: type | None = None, reference: Callable[..., Any] | None = None
) -> Callable[[Registered], Registered]:
    """Return a decorator that adds a function or class as ``name``, a value of the kind's setting.

    ``settings``: a frozen dataclass of fields made by ``config.setting``, which a run has at
    ``parts.NAME.FIELD``. ``reference``: a function ``(params, inputs, mask)`` that computes the
    same in NumPy; ``conform`` compares the two.

    Raises ConfigError when there is no such kind, or its parts have no settings. The name must not
    be taken by the package, by settings of another kind, or by a metric of the log. A function must
    take exactly the arguments that its kind passes.
    """
    if kind not in KINDS:
        raise ConfigError("register", f"{kind!r} is not one of {', '.join(KINDS)}")
    if settings and not KINDS[kind].has_settings:
        raise ConfigError("register", f"{kind} {name!r} would not get its settings", "parts of this kind have none")
    others = [other for other in KINDS if other != kind and settings and settings_class(other, name)]
    if others:
        raise ConfigError(
            "register", f"parts.{name} are already the settings of {others[0]} {name!r}", "use another name"
        )
    if name in OWN_NAMES[kind]:
        raise ConfigError("register", f"{kind} {name!r} is taken by the core", "use another name")
    taken = [
        other
        for other in LOGGED_KINDS
        if other != kind and (name in _REGISTERED[other] or (other, name) in own_parts())
    ]
    if kind in LOGGED_KINDS and (name in LOGGED or taken):
        raise ConfigError("register", f"the log has another train/{name}", f"use another name than {kind} {name!r}")
    if kind == "metric" and name in OF_VALIDATIONS:
        raise ConfigError(
            "register", f"the log has another validation/{name}", f"use another name than {kind} {name!r}"
        )

    def add(part: Registered) -> Registered:
        listed = own_parts().get((kind, name))
        module, origin = listed and listed.module, getattr(part, "__module__", "") if callable(part) else ""
        # A module may be loaded again, and settings of a task do not name theirs.
        if module and origin != module and (origin or name in _REGISTERED[kind]):
            raise ConfigError("register", f"{kind} {name!r} is in {module}", "use another name")
        if inspect.isfunction(part):
            _require_call(kind, name, part, has_settings=settings is not None)
        _REGISTERED[kind][name] = part
        _SETTINGS.pop((kind, name), None)
        if settings:
            _SETTINGS[kind, name] = settings
        _REFERENCES.pop((kind, name), None)
        if reference:
            _REFERENCES[kind, name] = reference
        return part

    return add


def _require_call(kind: str, name: str, part: Callable[..., Any], *, has_settings: bool) -> None:
    """Raise ConfigError unless this function takes the arguments that its kind passes."""
    maker: Any = KINDS[kind].maker
    if maker is None:
        raise ConfigError("register", f"{kind} {name!r} is a function", f"it must be {KINDS[kind].part}")
    _, *passed = inspect.signature(maker.__call__).parameters.values()
    positional = [argument.name for argument in passed if argument.kind is not argument.KEYWORD_ONLY]
    options = [argument.name for argument in passed if argument.kind is argument.KEYWORD_ONLY]
    if has_settings and not {"settings", "config"} & {*positional}:
        positional = ["settings", *positional]
    signature = inspect.signature(part, follow_wrapped=False)
    try:
        signature.bind(*positional, **dict.fromkeys(options))
    except TypeError:
        arguments = ", ".join([*positional, *(["*", *options] if options else [])])
        problem = f"takes {signature}; the arguments are ({arguments})"
        raise ConfigError("register", f"{kind} {name!r} {problem}") from None


def setting_of(kind: str) -> str:
    """Return the setting that selects parts of a kind, such as ``model.norm``."""
    return KINDS[kind].setting


def registered(kind: str, convert: Callable[[Any], Any] = lambda part: part) -> Mapping[str, Any]:
    """Return the parts of a kind by name. A part is imported, and converted, on first use."""
    return _PartsOfKind(kind, convert)


def names_of(kind: str) -> tuple[str, ...]:
    """Return the names of all parts of a kind, the core first, without importing them."""
    load_installed_plugins()
    names = (*(name for owner, name in all_parts() if owner == kind), *sorted(_REGISTERED[kind]))
    return tuple(dict.fromkeys(names))


def settings_class(kind: str, name: str) -> type | None:
    """Return the settings of a part, or None. Parts of the core have none."""
    listed = _listed(kind, name) if KINDS[kind].has_settings else None
    if listed and not listed.owner.is_core:
        _import_part(kind, name)
    return _SETTINGS.get((kind, name))


def parts_of_file(file: str) -> list[tuple[str, str]]:
    """Return kind and name of the parts that a loaded file defines and registers."""
    module = module_of_file(file)
    parts = ((kind, name, part) for kind, by_name in _REGISTERED.items() for name, part in by_name.items())
    return [(kind, name) for kind, name, part in parts if getattr(part, "__module__", "") == module]


def reference_of(kind: str, name: str) -> Callable[..., Any] | None:
    """Return the NumPy function that a part was registered with, or None."""
    return _REFERENCES.get((kind, name))


def with_settings(kind: str, name: str, parts: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a part. Settings, from ``parts`` or the defaults, are bound to its first argument."""
    part, settings = registered(kind)[name], settings_class(kind, name)
    return partial(part, parts[name] if name in parts else settings()) if settings else part


def kind_with_settings(name: str) -> str | None:
    """Return the kind of the part with settings of this name, or None."""
    return next((kind for kind in KINDS if is_registered(kind, name) and settings_class(kind, name)), None)


def names_with_settings() -> tuple[str, ...]:
    """Return the names of all parts that have settings. Imports the whole kit."""
    load_installed_plugins()
    for (kind, name), listed in all_parts().items():
        if KINDS[kind].has_settings and not listed.owner.is_core:
            _import_part(kind, name)
    return tuple(sorted(name for _, name in _SETTINGS))


def _listed(kind: str, name: str) -> ListedPart | None:
    """Return the entry of a part in an index. The indices of the package come first."""
    if (kind, name) in own_parts():
        return own_parts()[kind, name]
    return None if name in _REGISTERED[kind] else all_parts().get((kind, name))


def _import_part(kind: str, name: str) -> None:
    listed = _listed(kind, name)
    if name not in _REGISTERED[kind] and listed:
        importlib.import_module(listed.module)


def may_add_parameters() -> bool:
    """Return whether a plugin registered a part or task that may add parameters."""
    return _has_other_parts([kind for kind, row in KINDS.items() if row.has_parameters])


def is_extended() -> bool:
    """Return whether this process has plugins or tools that are not of this package."""
    return bool(loaded_plugins()) or all_parts().keys() != own_parts().keys() or _has_other_parts(KINDS)


def _has_other_parts(kinds: Iterable[str]) -> bool:
    return any((kind, name) not in own_parts() for kind in kinds for name in _REGISTERED[kind])


def is_registered(kind: str, name: str) -> bool:
    """Return whether a part is registered, also by installed plugins, which are then loaded."""
    if name not in _REGISTERED[kind] and (kind, name) not in own_parts():
        load_installed_plugins()
    return name in _REGISTERED[kind] or _listed(kind, name) is not None


class _PartsOfKind(Mapping[str, Any]):
    def __init__(self, kind: str, convert: Callable[[Any], Any]) -> None:
        self._kind, self._convert = kind, convert

    def __getitem__(self, name: str) -> Any:
        if not is_registered(self._kind, name):
            raise KeyError(name)
        _import_part(self._kind, name)
        if name not in _REGISTERED[self._kind]:
            module, index = all_parts()[self._kind, name]
            raise ConfigError(index.file, f"parts.{self._kind}: {module} does not register {name!r}")
        return self._convert(_REGISTERED[self._kind][name])

    def __iter__(self) -> Iterator[str]:
        return iter(names_of(self._kind))

    def __len__(self) -> int:
        return len(names_of(self._kind))


@cache
def load_installed_plugins() -> None:
    """Import the installed plugins. Raises ConfigError when one fails."""
    for entry_point in entry_points(PLUGIN_ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            problem = f"plugin {entry_point.name} ({entry_point.value}) fails: {type(error).__name__}: {error}"
            raise ConfigError(problem, remedy="fix or uninstall it") from error

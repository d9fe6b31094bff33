"""Settings of the parts that other settings select: ``parts.NAME.FIELD``."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from transformer_jax.config.checks import check_settings, declared
from transformer_jax.config.update_schedules import Scheduled
from transformer_jax.errors import ConfigError, nearest
from transformer_jax.registry.plugins import kind_with_settings, names_with_settings, setting_of, settings_class


class Parts(Mapping[str, Any]):
    """Immutable mapping of part names to settings dataclasses, sorted."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = dict(sorted((settings or {}).items()))

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(tuple(self._settings.items()))

    def __repr__(self) -> str:
        return f"Parts({self._settings})"


class Selection(NamedTuple):
    """A part that a setting selects: ``rmsnorm`` of kind ``norm`` by ``model.norm``."""

    key: str
    kind: str
    name: str


def selections(block: Any, path: str) -> list[Selection]:
    """Return the parts, also of the package, that the settings of a block at ``path`` select."""
    return [
        Selection(f"{path}.{key}" if path else key, declaration.facts["plugin"], name)
        for key, declaration in declared(type(block)).items()
        if "plugin" in declaration.facts
        for name in declaration.choices_in(getattr(block, key))
    ]


def default_parts(block: Any) -> Parts:
    """Return the default settings of the parts that a block selects."""
    return complete_parts({}, selections(block, ""))


def complete_parts(settings_of: Mapping[str, Any], selected: list[Selection]) -> Parts:
    """Return the settings of the selected parts, from ``settings_of`` or their defaults.

    Raises ConfigError when a value is not allowed, or nothing selects a part in ``settings_of``.
    """
    parts = {}
    for _, kind, name in selected:
        if settings := settings_class(kind, name):
            parts[name] = settings_of[name] if name in settings_of else settings()
            check_settings(f"parts.{name}", parts[name])
            if kind == "schedule" and any(isinstance(value, Scheduled) for value in vars(parts[name]).values()):
                raise ConfigError(f"parts.{name}", "a schedule of the rate takes numbers", "no schedules of the update")
    for name in settings_of:
        if name not in parts:
            by = setting_of(owner) if (owner := kind_with_settings(name)) else "any setting"
            raise ConfigError(
                f"parts.{name}", "no setting selects this part", f"set {by}={name}, or leave its settings out"
            )
    return Parts(parts)


def settings_of_part(name: str) -> type:
    """Return the settings dataclass of a part. Raises ConfigError, with the nearest name."""
    kind = kind_with_settings(name)
    settings = settings_class(kind, name) if kind else None
    if settings is None:
        near = nearest(name, names_with_settings())
        hint = f"did you mean parts.{near}?" if near else f"parts with settings are {', '.join(names_with_settings())}"
        raise ConfigError(f"parts.{name}", "no part of this name has settings", hint)
    return settings

"""Results as HTML for notebooks. Only ``element`` writes HTML, and escapes every text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from html import escape
from typing import Any

CELL = "text-align: left; padding: 2px 12px; vertical-align: top"


class Markup(str):
    """HTML that ``element`` wrote."""


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an element. Attributes, and all content that is not ``Markup``, are escaped."""
    written = "".join(f' {name}="{escape(str(value))}"' for name, value in attributes.items())
    inside = "".join(part if isinstance(part, Markup) else escape(str(part)) for part in content)
    return Markup(f"<{tag}{written}>{inside}</{tag}>")


def table(rows: Iterable[Sequence[object]], headings: Sequence[str] = ()) -> Markup:
    """Return rows of cells under ``headings``."""
    cells = [element("tr", *(element("td", cell, style=CELL) for cell in row)) for row in rows]
    head = [element("tr", *(element("th", name, scope="col", style=CELL) for name in headings))] if headings else []
    return element("table", *head, *cells)


def folded(title: str, content: Markup) -> Markup:
    """Return ``content`` folded under a title: a click on the title opens it."""
    return element("details", element("summary", title), content)


def settings_table(config: Any) -> Markup:
    """Return the settings of nested dataclasses, folded if they have their defaults."""
    settings = list(_settings(config))
    changed = [(key, _shown(value), _shown(default)) for key, value, default in settings if value != default]
    others = [(key, _shown(value)) for key, value, default in settings if value == default]
    return element(
        "div",
        table(changed, ("setting", "value", "default")),
        folded(f"{len(others)} settings with their defaults", table(others)),
    )


def _settings(block: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value and default of every setting. Parts are a mapping of blocks."""
    values = (
        block if isinstance(block, Mapping) else {field.name: getattr(block, field.name) for field in fields(block)}
    )
    defaults = {} if isinstance(block, Mapping) else {field.name: _default(field) for field in fields(block)}
    for name, value in values.items():
        is_block = is_dataclass(value) or isinstance(value, Mapping)
        yield from _settings(value, f"{path}{name}.") if is_block else [(path + name, value, defaults.get(name))]


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _shown(value: object) -> str:
    return "" if value is MISSING else repr(value) if value == "" else str(value)

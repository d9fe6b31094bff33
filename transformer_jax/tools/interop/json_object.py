"""JSON objects of other toolkits; errors name the file, and the key that is missing or of another type."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json

Value = TypeVar("Value")


def read_object(path: Path, expected: str = "a folder that save_pretrained wrote") -> dict[str, Any]:
    """The object in a file; raises DataError naming the file that is missing or no such object."""
    try:
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; expected {expected}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; copy it again")
    return content


def value_of(content: Mapping[str, Any], key: str, kind: type[Value], where: object) -> Value:
    """``content[key]``; raises DataError naming ``where`` and key unless it is there and a ``kind``."""
    if key not in content:
        raise DataError(f"{where}: has no {key}")
    value = content[key]
    if type(value) is not kind:
        raise DataError(f"{where}: {key}={value!r} is not of type {kind.__name__}")
    return value

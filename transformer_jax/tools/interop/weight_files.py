"""Files of other toolkits: JSON, safetensors, PyTorch. Code in a file is never run."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from transformer_jax.config import ConfigError, DataError
from transformer_jax.errors import first_line
from transformer_jax.files.json_text import parse_json

NAMES = ("model.safetensors", "pytorch_model.bin")
Value = TypeVar("Value")


@contextlib.contextmanager
def needing(package: str) -> Iterator[None]:
    """Turn ImportError into a ConfigError with the command that installs ``package``."""
    try:
        yield
    except ImportError:
        raise ConfigError(f"{package} is not installed", remedy=f"pip install {package}") from None


def torch_library() -> Any:
    """Import torch. Raise ConfigError if it is missing."""
    with needing("torch"):
        import torch
    return torch


def require_plain_files(source: Path) -> None:
    """Raise DataError for a pipe or a device, which might never end."""
    for path in (source, *source.rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path}: a pipe or a device, not a file; copy the model again")


def read_bytes(path: Path) -> bytes:
    """Read a file. Raise DataError if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give the whole folder") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raise DataError if there is none."""
    data = read_bytes(path)
    with contextlib.suppress(ValueError):
        if isinstance(content := parse_json(data), dict):
            return content
    raise DataError(f"{path}: not a JSON object; copy it again")


def value_of(content: Mapping[str, Any], key: str, kind: type[Value], where: object) -> Value:
    """Return ``content[key]``. Raise DataError if it is missing or not of type ``kind``."""
    value = content.get(key)
    # In Python JSON's true is an int.
    if type(value) is not kind:
        raise DataError(f"{where}: {key}={value!r} is not of type {kind.__name__}")
    return value


def require_values(content: Mapping[str, Any], needed: Mapping[str, Any], where: object) -> None:
    """Raise ConfigError unless each key of ``needed`` has that value or is missing."""
    for name, value in needed.items():
        if content.get(name, value) != value:
            raise ConfigError(where, f"{name}={content[name]!r} is not supported", f"expected {value!r}")


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file. Raise ConfigError if the library is missing."""
    with needing("safetensors"):
        from safetensors.numpy import save_file
    path.touch()
    mode = path.stat().st_mode
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    # The library writes a file that only its owner can read.
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a safetensors file by name.

    Raises ConfigError if the library is missing, DataError if the file is missing, damaged, or has
    tensors of an unknown type.
    """
    with needing("safetensors"):
        from safetensors.numpy import load_file
    try:
        arrays: dict[str, np.ndarray] = load_file(path)
    # A damaged file can raise any error.
    except Exception as error:
        raise DataError(f"{path}: missing, damaged, or of an unknown type: {first_line(error)}") from None
    return arrays


def load_tensors_only(path: Path) -> Any:
    """Read a ``.bin`` file of tensors and containers.

    Raises DataError if it is missing or damaged, or has other objects, which could run code.
    """
    torch = torch_library()
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file can raise any error.
    except Exception as error:
        problem = "missing, damaged, or has other objects than tensors, which are not loaded"
        raise DataError(f"{path}: {problem} ({first_line(error)})") from None


def as_arrays(tensors: Any, where: object) -> dict[str, np.ndarray]:
    """Return dense tensors in float32, and integers unchanged. Raise DataError for others."""
    torch = torch_library()
    if not isinstance(tensors, dict):
        raise DataError(f"{where}: expected tensors by name, and not a {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise DataError(f"{where}: {name!r} is not a dense tensor but a {type(tensor).__name__}")
    floats = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return {name: tensor.detach().numpy() for name, tensor in floats.items()}


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """Read ``model.safetensors``, else ``pytorch_model.bin``, by name in float32.

    An index such as ``model.safetensors.index.json`` lists the parts of a split file. Raises
    DataError if there is neither, or a file cannot be read.
    """
    for name in NAMES:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _read_part(folder / name)
        if index.is_file():
            # Without folders: an index must not lead to files elsewhere.
            parts = {Path(str(part)).name for part in value_of(read_object(index), "weight_map", dict, index).values()}
            return {name: leaf for part in sorted(parts) for name, leaf in _read_part(folder / part).items()}
    raise DataError(f"{folder}: has neither {NAMES[0]} nor {NAMES[1]}")


def _read_part(path: Path) -> dict[str, np.ndarray]:
    arrays = read_tensors(path) if path.suffix == ".safetensors" else as_arrays(load_tensors_only(path), path)
    return {name: leaf.astype(np.float32) for name, leaf in arrays.items()}

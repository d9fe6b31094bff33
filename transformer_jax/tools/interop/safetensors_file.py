"""Files of named arrays in the format safetensors (https://github.com/huggingface/safetensors), which cannot hold code."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.tools.interop.needed_library import needing


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays under their names; raises ConfigError where the library is missing."""
    with needing("safetensors"):
        from safetensors.numpy import save_file
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name.

    Raises ConfigError where the library is missing, DataError naming the file when it is not there, cut short or damaged.
    """
    with needing("safetensors"):
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    try:
        arrays: dict[str, np.ndarray] = load_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path}: damaged or cut short ({error}); copy it again") from None
    return arrays

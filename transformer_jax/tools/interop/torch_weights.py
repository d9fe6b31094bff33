"""Weights as PyTorch stores them, read without running code from a pickle."""

from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.tools.interop.needed_library import needing


def torch_library() -> Any:
    """The package torch; raises ConfigError where it is missing."""
    with needing("torch"):
        import torch
    return torch


def load_tensors_only(path: Path) -> Any:
    """The content of a ``.bin`` or ``.pt`` file: tensors, containers, and ``argparse.Namespace``, which holds settings.

    Raises DataError when it is not there, damaged, or holds objects of any other class: those would be built by running code.
    """
    from argparse import Namespace

    torch = torch_library()
    try:
        with torch.serialization.safe_globals([Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    # A damaged file can raise anything.
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise DataError(f"{path}: damaged, or more than tensors, which is never run ({reason})") from None


def as_arrays(tensors: Any, where: object) -> dict[str, np.ndarray]:
    """Tensors as float32 arrays, integers as they are; raises DataError unless it is a dictionary of dense tensors."""
    torch = torch_library()
    if not isinstance(tensors, dict):
        raise DataError(f"{where}: expected tensors by name, found a {type(tensors).__name__}")
    for name, each in tensors.items():
        if not isinstance(name, str) or not isinstance(each, torch.Tensor) or each.layout != torch.strided:
            raise DataError(f"{where}: {name!r} is no dense tensor but a {type(each).__name__}")
    return {
        name: (each.float() if each.is_floating_point() else each).detach().numpy() for name, each in tensors.items()
    }

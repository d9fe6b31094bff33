"""The weights in a folder that ``save_pretrained`` of transformers wrote."""

from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.interop.safetensors_file import read_tensors
from transformer_jax.interop.torch_weights import as_arrays, load_tensors_only


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of ``model.safetensors``, of its parts, or else of ``pytorch_model.bin``, in float32 by name.

    Raises DataError when there is none of them, or it cannot be read.
    """
    parts = sorted(folder.glob("model*.safetensors"))
    if parts:
        state = {name: leaf for part in parts for name, leaf in read_tensors(part).items()}
        return {name: leaf.astype(np.float32) for name, leaf in state.items()}
    path = folder / "pytorch_model.bin"
    if not path.is_file():
        raise DataError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")
    return as_arrays(load_tensors_only(path))

"""The weights in a folder that ``save_pretrained`` of transformers wrote."""

from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.safetensors_file import read_tensors
from transformer_jax.tools.interop.torch_weights import as_arrays, load_tensors_only

NAMES = ("model.safetensors", "pytorch_model.bin")


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of ``model.safetensors``, or else ``pytorch_model.bin``, or of their parts, in float32 by name.

    The parts are those that ``model.safetensors.index.json`` lists. Raises DataError when there is none of these files, or one
    cannot be read.
    """
    for name in NAMES:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _read(folder / name)
        if index.is_file():
            parts = sorted(set(value_of(read_object(index), "weight_map", dict, index).values()))
            if any(not isinstance(part, str) or Path(part).name != part for part in parts):
                raise DataError(f"{index}: weight_map names files of another folder")
            return {name: leaf for part in parts for name, leaf in _read(folder / part).items()}
    raise DataError(f"{folder}: neither {NAMES[0]} nor {NAMES[1]} is there")


def _read(path: Path) -> dict[str, np.ndarray]:
    named = read_tensors(path) if path.suffix == ".safetensors" else as_arrays(load_tensors_only(path), path)
    return {name: leaf.astype(np.float32) for name, leaf in named.items()}

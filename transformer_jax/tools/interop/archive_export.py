"""The archive format: parameters in safetensors, settings, tokenizers, and a manifest by which damage is found.

``model.safetensors`` has the parameters by path, as this package keeps them; ``golden.safetensors`` the token ids of a few
sentences and their logits, so that another implementation can be checked; ``manifest.json`` names, shapes, types and digests.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from transformer_jax.config import to_json
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.runs.run_directory import write_json
from transformer_jax.tools.interop.opened_model import OpenedModel
from transformer_jax.tools.interop.safetensors_file import write_tensors

SCHEMA_VERSION = 1
GOLDEN_SENTENCES = 5
MANIFEST, MODEL, GOLDEN, CONFIG, TOKENIZER = (
    "manifest.json",
    "model.safetensors",
    "golden.safetensors",
    "config.json",
    "tokenizer",
)


def export(model: OpenedModel, folder: Path, texts: Sequence[str]) -> None:
    """Writes the archive of a run of any sequence model, with the logits of the first of ``texts``, which may be none."""
    write_tensors(folder / MODEL, model.named)
    golden = golden_tensors(model, texts[:GOLDEN_SENTENCES])
    write_tensors(folder / GOLDEN, golden)
    write_json(folder / CONFIG, to_json(model.saved_config))
    save_tokenizers(model.tokenizers, folder / TOKENIZER)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {
        "format": "transformer_jax",
        "schema_version": SCHEMA_VERSION,
        "steps": list(model.steps),
        "files": {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        "tensors": described(model.named),
        "golden": described(golden),
    }
    write_json(folder / MANIFEST, manifest)


def golden_tensors(model: OpenedModel, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Token ids and logits of texts: ``source_0``, ``target_0``, ``logits_0`` ..."""
    examples = model.examples(texts) if texts else []
    tensors = {}
    for number, (example, logits) in enumerate(zip(examples, model.logits(examples), strict=True)):
        tensors[f"target_{number}"] = np.asarray(example.target, np.int32)
        tensors[f"logits_{number}"] = logits
        if model.translates:
            tensors[f"source_{number}"] = np.asarray(example.source, np.int32)
    return tensors


def described(tensors: Mapping[str, np.ndarray]) -> dict[str, dict[str, object]]:
    """Shape, type and SHA-256 of the bytes of each array, by name."""
    return {
        name: {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        }
        for name, array in sorted(tensors.items())
    }

"""A model imported from another toolkit, and the run directory written for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.config import DataError, ExperimentConfig, MeshConfig, to_json
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.task import task_class
from transformer_jax.tools.checkpoint_tools import write_run_directory
from transformer_jax.tools.interop.opened_model import OpenedModel, in_float32
from transformer_jax.training.parameters import named_leaves, some_of
from transformer_jax.training.sharding import make_mesh, path_of

# Step of the only checkpoint of an imported run; 0 would mean untrained.
STEP = 1


@dataclass(frozen=True)
class ImportedModel:
    """Settings, tokenizers, and parameters by path in float32, in the layout of this package."""

    config: ExperimentConfig
    tokenizers: TokenizerPair
    named: dict[str, np.ndarray]

    def write(self, folder: Path, **origin: Any) -> None:
        """Writes a run directory; raises DataError as ``params`` does."""
        params = self.params()
        progress = {
            "config": to_json(self.config),
            "data": self._fingerprints(),
            "tokenizer": tokenizers_to_json(self.tokenizers),
            "counters": {},
        }
        write_run_directory(folder, self.config, self.tokenizers, STEP, params, progress, imported_from=origin)

    def opened(self, mesh: Mesh | None = None) -> OpenedModel:
        """The opened model without a run, by default on one device; raises DataError as ``params`` does."""
        mesh = _one_device() if mesh is None else mesh
        config = in_float32(self.config)
        model = replace(self, config=config).objective(mesh).model
        return OpenedModel(config, self.config, self.tokenizers, model, self.params(), mesh, (STEP,))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters by path, according to the settings."""
        return {name: leaf.shape for name, leaf in named_leaves(self._abstract()).items()}

    def objective(self, mesh: Mesh) -> Any:
        """The model on the devices of ``mesh``, and its loss."""
        source, target = (each.vocabulary_size for each in self.tokenizers)
        return task_class(self.config.task).new_objective(self.config, (source, target), mesh)

    def _abstract(self) -> Any:
        return jax.eval_shape(self.objective(_one_device()).init_params, jax.random.key(0))

    def _fingerprints(self) -> dict[str, str]:
        if self.config.task == "language_model":
            return {"tokenizer": self.tokenizers.source.fingerprint()}
        source, target = self.tokenizers
        return {"source tokenizer": source.fingerprint(), "target tokenizer": target.fingerprint()}

    def params(self) -> Any:
        """The parameters as a tree; raises DataError naming a tensor that does not fit the settings or is not finite."""
        tree = self._abstract()
        expected = {name: leaf.shape for name, leaf in named_leaves(tree).items()}
        require_same_shapes(self.named, expected, "the model")
        for name in expected:
            if not np.all(np.isfinite(self.named[name])):
                raise DataError(
                    f"{name}: has values that are not finite; the model is damaged, or diverged in training"
                )
        return jax.tree_util.tree_map_with_path(lambda path, leaf: self.named[path_of(path)], tree)


def _one_device() -> Mesh:
    return make_mesh(MeshConfig(), jax.devices()[:1])


def require_same_names(found: set[str], expected: set[str], where: object) -> None:
    """Raises DataError naming tensors that are missing or unexpected in ``where``."""
    missing, unexpected = sorted(expected - found), sorted(found - expected)
    if missing:
        raise DataError(f"{where}: tensors are missing: {some_of(missing)}")
    if unexpected:
        raise DataError(f"{where}: unexpected tensors: {some_of(unexpected)}")


def require_same_shapes(
    found: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]], where: object
) -> None:
    """Raises DataError naming tensors that are missing, unexpected or of another shape in ``where``."""
    require_same_names(set(found), set(expected), where)
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise DataError(f"{where}: {name} has shape {found[name].shape}, expected {shape}")

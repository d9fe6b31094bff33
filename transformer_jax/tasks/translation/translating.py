"""Decoding with a trained model: the part of a translation task without data and evaluation."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ExperimentConfig, to_json
from transformer_jax.runtime.hardware import device_of, evaluation_dtype
from transformer_jax.runtime.kept_programs import ProgramStore
from transformer_jax.tasks.objective import OpenTask
from transformer_jax.tasks.translation.translator import Translator

if TYPE_CHECKING:
    from transformer_jax.decoding.constraints import Constraint
    from transformer_jax.tasks.translation.translation_objective import TranslationObjective


class Translating(OpenTask):
    """A model, its tokenizers, and translation with them."""

    keeps_programs: ClassVar[bool] = True
    """Whether the programs of its search are kept on disk, for commands, whose code stays."""

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> "TranslationObjective":
        from transformer_jax.tasks.translation.translation_objective import TranslationObjective

        return TranslationObjective(config, *vocabularies, mesh)

    def ensemble(self, others: Sequence[Any]) -> Any:
        from transformer_jax.tasks.translation.translation_ensemble import EnsembleObjective

        objective = EnsembleObjective([self.objective, *(other.objective for other in others)])
        return type(self)(self.config, self.tokenizers, self.mesh, objective)

    @cached_property
    def programs(self) -> ProgramStore | None:
        """The kept programs of one model on one CPU, which need neither the model nor Flax."""
        device, is_ensemble = device_of(self.mesh), "objective" in vars(self)
        if is_ensemble or not self.keeps_programs or self.mesh.size > 1 or device.platform != "cpu":
            return None
        return ProgramStore([to_json(self.config), self._sizes], device)

    def param_shapes(self) -> PyTree:
        return self.programs.shapes(super().param_shapes) if self.programs else super().param_shapes()

    @cached_property
    def translator(self) -> Translator:
        return self.new_translator(self.config)

    def new_translator(self, config: ExperimentConfig, constraint: "Constraint | None" = None) -> Translator:
        if self.programs and constraint is None:
            of_decoding, of_model = self.config.decoding.compute_dtype, self.config.model.compute_dtype
            dtype = evaluation_dtype(of_decoding, of_model, device_of(self.mesh))
            longest, store = self.config.model.longest_sequence, self.programs.with_settings(to_json(config))
        else:
            longest, dtype, store = self.objective.longest_sequence, self.objective.evaluation_dtype, None

        of_run = self.tokenizers, config.decoding, self.mesh, longest, dtype
        return Translator(lambda: self.objective.model, *of_run, constraint, config.parts, store)

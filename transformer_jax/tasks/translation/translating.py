"""Decoding with a trained model: the part of a translation task without data and evaluation."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.conversion import to_json
from transformer_jax.tasks.objective import OpenTask
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translator import Translator

if TYPE_CHECKING:
    from transformer_jax.decoding.constraints import Constraint


class Translating(OpenTask):
    """A model, its tokenizers, and translation with them; an ensemble of several has the settings of the first."""

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> TranslationObjective:
        return TranslationObjective(config, *vocabularies, mesh)

    def ensemble(self, others: Sequence[Any]) -> Any:
        from transformer_jax.tasks.translation.translation_ensemble import EnsembleObjective

        objective = EnsembleObjective([self.objective, *(other.objective for other in others)])
        return type(self)(self.config, self.tokenizers, self.mesh, objective)

    @cached_property
    def translator(self) -> Translator:
        return self.new_translator(self.config)

    def new_translator(self, config: ExperimentConfig, constraint: "Constraint | None" = None) -> Translator:
        """Return a translator with the decoding settings of ``config``."""
        model, longest, dtype = self.objective.model, self.objective.longest_sequence, self.objective.evaluation_dtype
        of_run = self.tokenizers, config.decoding, self.mesh, longest, dtype
        settings = to_json(config) if isinstance(self.objective, TranslationObjective) else None
        return Translator(model, *of_run, constraint, config.parts, settings)

"""The part of a translation task that decodes with a trained model, without data and evaluation."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.translator import Translator

if TYPE_CHECKING:
    from transformer_jax.decoding.constraints import Constraint


class Translating:
    """A model, its tokenizers, and translation with them; an ensemble of several has the settings of the first."""

    translator_type = Translator

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        """``objective``: by default the one of the settings."""
        self.config, self.tokenizers, self.mesh = config, tokenizers, mesh
        sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        self.objective = self.new_objective(config, sizes, mesh) if objective is None else objective

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> TranslationObjective:
        return TranslationObjective(config, *vocabularies, mesh)

    def ensemble(self, others: Sequence[Any]) -> Any:
        from transformer_jax.tasks.translation.ensemble import EnsembleObjective

        objective = EnsembleObjective([self.objective, *(other.objective for other in others)])
        return type(self)(self.config, self.tokenizers, self.mesh, objective)

    @cached_property
    def translator(self) -> Translator:
        return self.new_translator(self.config)

    def new_translator(self, config: ExperimentConfig, constraint: "Constraint | None" = None) -> Translator:
        """A translator with the decoding settings of ``config``."""
        own, decoding = self.objective, config.decoding
        model = own.model, self.tokenizers, decoding, self.mesh, own.longest_sequence, own.evaluation_dtype
        return self.translator_type(*model, constraint, config.parts)

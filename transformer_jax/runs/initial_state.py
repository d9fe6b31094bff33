"""Initial state of a run: random parameters, partly another run's, or word vectors; and which of them are trained."""

from typing import Any

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.runs.initial_embeddings import InitialEmbeddings, find_initial_embeddings
from transformer_jax.runs.initial_parameters import InitialParameters, find_initial_parameters
from transformer_jax.training.freezing import trained_share
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update


class InitialState:
    """The state before the first update of a run; one that ``is_resumed`` needs none, and no longer looks at ``init``.

    Raises ConfigError and CheckpointError when the parameters cannot come from where ``init`` says.
    """

    def __init__(
        self, config: ExperimentConfig, update: Update, tokenizers: TokenizerPair, *, is_resumed: bool
    ) -> None:
        self._update, self._seed, self._freeze = update, config.seed, config.optimizer.freeze
        self._shapes = update.state_shapes.params
        self._initial: InitialParameters | InitialEmbeddings | None = None
        if config.init.run and not is_resumed:
            self._initial = find_initial_parameters(config.init, self._shapes, tokenizers)
        elif config.init.embeddings and not is_resumed:
            self._initial = find_initial_embeddings(config.init.embeddings, self._shapes, tokenizers)

    def state(self) -> TrainState:
        """Counters and optimizer as of a new run, every leaf where it will live."""
        state = self._update.initial_state(self._seed)
        return state._replace(params=self._initial.put_into(state.params)) if self._initial else state

    def notes(self) -> list[str]:
        """Notes for the log: the origin of the parameters, and how many of them train."""
        notes = [self._initial.report()] if self._initial else []
        return [*notes, trained_share(self._shapes, self._freeze)] if self._freeze else notes

    def origin(self) -> dict[str, Any]:
        """Origin of the parameters for ``run.json``; empty where they are randomly initialized."""
        return {"initial_parameters": self._initial.to_json()} if self._initial else {}

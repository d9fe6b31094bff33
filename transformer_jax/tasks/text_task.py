"""The part that tasks on plain text share: the source of documents, one tokenizer, the tokenized splits."""

from functools import cached_property
from typing import Any

from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.data.documents import open_documents
from transformer_jax.data.token_store import DocumentStore, open_document_store
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.training.losses import LossSums


class TextTask:
    """Settings, tokenizer and ``objective`` of a task on documents.

    Serves every run of the same structure on the same data: no hyperparameter of a run is in it.
    """

    def __init__(self, config: ExperimentConfig, tokenizer: Tokenizer, objective: Any, mesh: Mesh) -> None:
        self.config, self.tokenizer, self.objective, self._mesh = config, tokenizer, objective, mesh
        self.tokenizers = TokenizerPair(tokenizer, tokenizer)
        self.source = open_documents(config.data, config.data_seed)
        self._stores: dict[str, DocumentStore] = {}

    @cached_property
    def identity(self) -> dict[str, str]:
        """Digests of what the training reads: another one is another run."""
        fingerprint = self.source.fingerprint(self.config.data.train_split)
        return {"training data": fingerprint, "tokenizer": self.tokenizer.fingerprint()}

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        return self.objective.init_params(key)

    def loss(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Sums over a training batch; ``loss`` is differentiated."""
        sums: LossSums = self.objective.loss(params, batch, key, hyperparameters)
        return sums

    def _store(self, split: str) -> DocumentStore:
        if split not in self._stores:
            with first_goes_first():
                self._stores[split] = open_document_store(
                    self.source, split, self.tokenizer, self.config.data.cache_directory
                )
        return self._stores[split]

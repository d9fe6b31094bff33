"""Base of tasks on plain text: source of documents, one tokenizer, tokenized splits."""

from collections.abc import Callable
from functools import cache, cached_property, partial

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.corpora import require_readable
from transformer_jax.data.documents import open_documents
from transformer_jax.data.sentence_pairs import DocumentSource, content_of
from transformer_jax.data.stores import finished_manifest, open_document_store
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.data.tokenization import DocumentTokenization
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.tasks.task import Task


class TextTask(Task):
    """A task on documents, with one tokenizer, which stands for both sides."""

    @staticmethod
    def open_source(config: ExperimentConfig) -> DocumentSource:
        return open_documents(config.data, config.data_seed)

    @staticmethod
    def require_split(config: ExperimentConfig, split: str) -> None:
        require_readable(config, split)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source

    @cached_property
    def source(self) -> DocumentSource:
        return self.open_source(self.config)

    @cached_property
    def identity(self) -> dict[str, str]:
        store, split = self.config.data.store, self.config.data.train_split
        text = finished_manifest(store)["digest"] if store else content_of(self.source, split)
        return {"training data": text, "tokenizer": self.tokenizer.fingerprint()}

    def tokenization(self) -> DocumentTokenization:
        data = self.config.data
        return DocumentTokenization(self.source, data.train_split, self.tokenizer, data)

    @cached_property
    def _store(self) -> Callable[[str], DocumentStore]:
        """Return the tokens of a split, tokenized if necessary, in a store that stays open."""
        return cache(partial(self._open_store, self.source))

    @cached_property
    def _text(self) -> Callable[[str], str]:
        """Return the digest of a split."""
        train_split = self.config.data.train_split
        return cache(
            lambda split: self.identity["training data"] if split == train_split else content_of(self.source, split)
        )

    def _open_store(self, source: DocumentSource, split: str) -> DocumentStore:
        data = self.config.data
        with first_goes_first("tokenized data"):
            return open_document_store(source, split, self.tokenizer, data, is_training=split == data.train_split)

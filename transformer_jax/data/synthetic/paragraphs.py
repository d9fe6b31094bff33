"""Paragraphs of generated sentences, for language models."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from transformer_jax.data.sentence_pairs import Document, digest
from transformer_jax.data.synthetic.grammar import GrammarCorpus
from transformer_jax.data.synthetic.symbols import split_random

SENTENCES_IN_PARAGRAPH = (3, 7)


@dataclass(frozen=True)
class GeneratedParagraphs:
    """English sentences of the embedded grammar in paragraphs of 3 to 7; each paragraph is a line."""

    training_sentences: int
    seed: int

    def documents(self, split: str) -> Iterator[Document]:
        """Streams ``train``, ``validation`` or ``test``."""
        sentences = (pair.source for pair in self._grammar.pairs(split))
        rng = split_random(split, self.seed)
        while paragraph := list(itertools.islice(sentences, rng.randint(*SENTENCES_IN_PARAGRAPH))):
            text = " ".join(paragraph)
            yield Document(text, len(text.encode()) + 1)

    def count_bytes(self, split: str) -> int:
        """An estimate of 40 bytes a sentence."""
        return 40 * self._grammar.count(split)

    def fingerprint(self, split: str) -> str:
        """Digest of the sentences and the range of paragraph lengths."""
        return digest(["paragraphs", str(SENTENCES_IN_PARAGRAPH), self._grammar.fingerprint(split)])

    @property
    def _grammar(self) -> GrammarCorpus:
        return GrammarCorpus(self.training_sentences, self.seed)

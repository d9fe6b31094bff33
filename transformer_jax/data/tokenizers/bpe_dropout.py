"""BPE-dropout: segmentation by a random part of the merges (Provilkov et al. 2020, algorithm 1)."""

import random
import re
from collections.abc import Callable, Iterator

import sentencepiece

from transformer_jax.data.tokenizers.tokenizer_interface import SPACE_SIGN


class BpeDropout:
    """Segments text by the merges of a BPE model, and leaves out some of them at random.

    The sampling of sentencepiece never tries a merge again that it left out once, so that it splits
    words into more pieces. ``processor``: of a model of ``train_subword_tokenizer``.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._bytes = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        # Special tokens and tags come before the bytes, characters and merges after them.
        learned = range(self._bytes[-1] + 1, processor.vocab_size())
        self._ids = {processor.id_to_piece(i): i for i in learned}
        self._priorities = {piece: processor.get_score(i) for piece, i in self._ids.items() if len(piece) > 1}
        specials = (i for i in range(self._bytes[0]) if not (processor.is_control(i) or processor.is_unknown(i)))
        self._tags = {processor.id_to_piece(i): i for i in specials}
        tags = sorted(map(re.escape, self._tags), key=len, reverse=True)
        self._parts = re.compile("|".join([*tags, f"{SPACE_SIGN}?[^{SPACE_SIGN}]+", SPACE_SIGN]))

    def encode(self, text: str, dropout: float, seed: int) -> list[int]:
        """Return the ids of a text by ``seed``, or its usual ids if ``dropout`` is 0."""
        draw = random.Random(seed).random
        marked = f"{SPACE_SIGN}{text.replace(' ', SPACE_SIGN)}" if text else ""
        return [i for part in self._parts.findall(marked) for i in self._encoded(part, dropout, draw)]

    def _encoded(self, part: str, dropout: float, draw: Callable[[], float]) -> Iterator[int]:
        if part in self._tags:
            yield self._tags[part]
            return
        for piece in self._segmented(list(part), dropout, draw):
            if piece in self._ids:
                yield self._ids[piece]
            else:
                yield from (self._bytes[byte] for byte in piece.encode())

    def _segmented(self, pieces: list[str], dropout: float, draw: Callable[[], float]) -> list[str]:
        """Merge ``pieces`` until no merge is possible, or a step leaves all of them out."""
        priorities = self._priorities
        while True:
            best, position, merged = -float("inf"), -1, ""
            for index, pair in enumerate(map(str.__add__, pieces, pieces[1:])):
                priority = priorities.get(pair)
                if priority is not None and draw() >= dropout and priority > best:
                    best, position, merged = priority, index, pair
            if position < 0:
                return pieces
            pieces[position : position + 2] = [merged]

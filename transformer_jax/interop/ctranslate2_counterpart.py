"""An exported model as CTranslate2 runs it, to be compared with the run that it came from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.interop.ctranslate2_export import library
from transformer_jax.interop.opened_model import Example, OpenedModel

# Largest difference of a token's log-probability that rounding of the weights explains.
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "int8": 1.0}


def recognizes(folder: Path) -> bool:
    """Whether this is a model directory of CTranslate2."""
    return (folder / "model.bin").is_file()


class Counterpart:
    """A model directory, run on the CPU with the precision that it was exported in."""

    compares_logits = False
    longest_source = None

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        try:
            quantization = parse_json((folder / "config.json").read_text(encoding="utf-8"))["quantization"]
            self._translator = library().Translator(str(folder), device="cpu")
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise DataError(f"{folder}: not a whole model that export wrote for CTranslate2: {error}") from None
        self.name = f"CTranslate2 {quantization}"
        self.tolerance = TOLERANCES[quantization]
        self._source, self._target = model.tokenizers
        pieces = self._target.pieces(range(self._target.vocabulary_size))
        self._ids = {piece: number for number, piece in enumerate(pieces)}

    def encode(self, texts: Sequence[str]) -> None:
        """None: it takes tokens."""

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """The log-probability of every target token [T]."""
        sources = [self._source.pieces(example.source[:-1]) for example in examples]
        targets = [self._target.pieces(example.target[:-1]) for example in examples]
        scored = self._translator.score_batch(sources, targets, max_input_length=0)
        return [np.asarray(each.log_probs, np.float32) for each in scored]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""
        pieces = [self._source.pieces(source[:-1]) for source in sources]
        found = self._translator.translate_batch(
            pieces,
            beam_size=1,
            min_decoding_length=0,
            max_input_length=0,
            max_decoding_length=longest,
            max_batch_size=32,
        )
        return [[self._ids[piece] for piece in each.hypotheses[0]] for each in found]

"""An exported model as CTranslate2 runs it, to be compared with the run that it came from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tools.interop.counterpart import Check, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.ctranslate2_export import library, longest_sequence
from transformer_jax.tools.interop.json_object import read_object
from transformer_jax.tools.interop.opened_model import Example, OpenedModel

# Of a token's log-probability, as rounding of the weights explains it: a trained model had 0.13 and 0.010 with int8, one of
# base size 0.04 and 0.022; the first 0.004 and 0.0006 with float16. The largest of many tokens is far out with int8: there
# the mean decides. Sources without EOS, or another norm epsilon, are beyond.
TOLERANCES = {
    "float32": Tolerance(1e-4, 1e-5),
    "float16": Tolerance(1e-2, 2e-3, greedy=0.9),
    "int8": Tolerance(0.5, 0.03, greedy=0.6),
}


def recognizes(folder: Path) -> bool:
    """Whether this is a model directory of CTranslate2."""
    return (folder / "model.bin").is_file()


class Counterpart:
    """A model directory, run on the CPU with the precision that it was exported in."""

    compares_logits = False

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        quantization = read_object(folder / "config.json").get("quantization")
        if quantization not in TOLERANCES:
            known = ", ".join(TOLERANCES)
            raise DataError(
                f"{folder / 'config.json'}: quantization={quantization!r} is none that export writes: {known}"
            )
        require_same_tokenizers(folder, model)
        self._source, self._target = model.tokenizers
        for side, tokenizer in (("source", self._source), ("target", self._target)):
            _require_vocabulary(folder, side, tokenizer)
        try:
            self._translator = library().Translator(str(folder), device="cpu")
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"{folder}: not a whole model that export wrote for CTranslate2: {error}") from None
        self.name = f"CTranslate2 {quantization}"
        self.tolerance = TOLERANCES[quantization]
        self.longest_source = self.longest_target = longest_sequence(model.config.model)
        pieces = self._target.pieces(range(self._target.vocabulary_size))
        self._ids = {piece: number for number, piece in enumerate(pieces)}

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """The log-probability of every target token [T]."""
        sources = [self._source.pieces(example.source[:-1]) for example in examples]
        targets = [self._target.pieces(example.target[:-1]) for example in examples]
        scored = self._translator.score_batch(sources, targets, max_input_length=0)
        return [np.asarray(each.log_probs, np.float32) for each in scored]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""
        pieces = [self._source.pieces(source[:-1]) for source in sources]
        # Such as the token of a language, which the run puts before every translation.
        prefix = self._target.pieces(self._target.encode(""))
        found = self._translator.translate_batch(
            pieces,
            target_prefix=[prefix] * len(pieces) if prefix else None,
            beam_size=1,
            min_decoding_length=0,
            max_input_length=0,
            max_decoding_length=longest,
            max_batch_size=32,
        )
        return [[self._ids[piece] for piece in each.hypotheses[0]] for each in found]

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """None: tokenizers and vocabularies were compared when it was opened."""
        del model, texts, examples
        return []


def _require_vocabulary(folder: Path, side: str, tokenizer: Tokenizer) -> None:
    """Raises DataError unless the runtime numbers the pieces as the tokenizer does."""
    shared = folder / "shared_vocabulary.json"
    path = shared if shared.is_file() else folder / f"{side}_vocabulary.json"
    try:
        pieces = parse_json(path.read_bytes())
    except (OSError, ValueError):
        raise DataError(f"{path}: missing or damaged; export the model again") from None
    if pieces != tokenizer.pieces(range(tokenizer.vocabulary_size)):
        raise DataError(f"{path}: not the vocabulary of the {side} tokenizer beside it")

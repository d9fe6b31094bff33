"""A folder of transformers, run by that library, to be compared with a run."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers.subword import is_escaped
from transformer_jax.tools.interop import m2m_reader, marian_reader
from transformer_jax.tools.interop.counterpart import Check, Tolerance
from transformer_jax.tools.interop.hugging_face_reader import model_type
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.m2m_reader import MODEL_TYPE
from transformer_jax.tools.interop.needed_library import needing
from transformer_jax.tools.interop.opened_model import ROWS_AT_ONCE, Example, OpenedModel, until_eos
from transformer_jax.tools.interop.torch_weights import torch_library
from transformer_jax.tools.interop.vocabulary_order import NOWHERE

CLASSES = {"marian": "MarianMTModel", MODEL_TYPE: "M2M100ForConditionalGeneration"}
VOCABULARIES = {"marian": marian_reader.vocabulary_orders, MODEL_TYPE: m2m_reader.vocabulary_orders}


def recognizes(folder: Path) -> bool:
    """Whether this is a folder of one of the ``CLASSES``."""
    return (folder / "config.json").is_file() and model_type(folder) in CLASSES


class Counterpart:
    """A ``MarianMTModel`` or ``M2M100ForConditionalGeneration`` and its tokenizer, in float32 on the CPU."""

    compares_logits = True
    tolerance = Tolerance(1e-4, 2e-5)

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        self._torch, transformers = torch_library(), library()
        path = folder / "config.json"
        theirs = read_object(path)
        kind = theirs["model_type"]
        self.name = f"transformers {CLASSES[kind]}"
        self._source, self._target = VOCABULARIES[kind](folder, theirs)
        self.longest_source = self.longest_target = value_of(theirs, "max_position_embeddings", int, path)
        # What the run puts before every translation.
        self._forced = self._target.to_theirs(model.tokenizers.target.encode(""))
        for order, tokenizer in zip((self._source, self._target), model.tokenizers, strict=True):
            if len(order.theirs) != tokenizer.vocabulary_size:
                problem = f"{len(order.theirs):,} ids, but the run has {tokenizer.vocabulary_size:,}"
                raise DataError(f"{folder}: a vocabulary of {problem}: another model")
        try:
            with warnings.catch_warnings():
                # It recommends sacremoses, which would change punctuation.
                warnings.simplefilter("ignore")
                self._model = getattr(transformers, CLASSES[kind]).from_pretrained(folder, dtype=self._torch.float32)
                self._model.eval()
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        # The library raises whatever a damaged folder makes it raise.
        except Exception as error:
            raise DataError(f"{folder}: transformers cannot load it: {str(error)[:200]}") from None
        if kind == MODEL_TYPE:
            self._tokenizer.src_lang = model.config.data.source_language

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Logits [T, V] of every target."""
        inputs = self._sources([example.source for example in examples])
        targets = [self._target.to_theirs([BOS_ID, *example.target[:-1]]) for example in examples]
        decoder = padded(self._torch, targets, int(self._target.theirs[BOS_ID]))
        with self._torch.inference_mode():
            logits = self._model(**inputs, decoder_input_ids=decoder).logits.numpy()
        ours = self._target.logits(logits)
        return [row[: len(example.target)] for row, example in zip(ours, examples, strict=True)]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""
        theirs = self._target.to_theirs([PAD_ID, BOS_ID])
        never = [[i] for i in set(theirs) if i not in (NOWHERE, self._target.theirs[EOS_ID])]
        found: list[list[int]] = []
        for start in range(0, len(sources), ROWS_AT_ONCE):
            inputs = self._sources(sources[start : start + ROWS_AT_ONCE])
            with self._torch.inference_mode():
                ids = self._model.generate(
                    **inputs,
                    num_beams=1,
                    do_sample=False,
                    max_new_tokens=longest,
                    bad_words_ids=never,
                    max_length=None,
                    forced_bos_token_id=self._forced[0] if self._forced else None,
                )
            found += [until_eos(self._target.to_ours(row[1:])) for row in ids.tolist()]
        return found

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Texts as tokens of their own tokenizer, but for those that only this package escapes."""
        del model
        plain = [(text, each.source) for text, each in zip(texts, examples, strict=True) if not is_escaped(text)]
        alike = [self._source.to_ours(self._tokenizer(text).input_ids) == ids for text, ids in plain]
        return [Check("tokenized alike", sum(alike), len(plain))]

    def _sources(self, sources: Sequence[list[int]]) -> dict[str, Any]:
        rows = [self._source.to_theirs(source) for source in sources]
        lengths = self._torch.tensor([len(row) for row in rows])
        ids = padded(self._torch, rows, rows[0][-1])
        mask = self._torch.arange(ids.shape[1])[None] < lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}


def library() -> Any:
    """The package transformers, quiet; raises ConfigError where it is missing."""
    with needing("transformers", "torch"):
        import transformers
    # It warns of what is not asked for here.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def padded(torch: Any, rows: Sequence[list[int]], filler: int) -> Any:
    """Rows as a tensor, shorter ones filled up."""
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])

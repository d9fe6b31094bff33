"""Folders of the library transformers: export, import, and counterparts that it runs."""

import itertools
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.tokenizers.subword import is_escaped
from transformer_jax.tools.interop import gpt2, m2m, marian
from transformer_jax.tools.interop.fairseq_family import NOWHERE
from transformer_jax.tools.interop.models import ROWS_AT_ONCE, Example, ImportedModel, OpenedModel
from transformer_jax.tools.interop.parity import Check, Counterpart, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.weight_files import needing, read_object, torch_library, value_of

READERS = {marian.MODEL_TYPE: marian.read, m2m.MODEL_TYPE: m2m.read}
CLASSES = {marian.MODEL_TYPE: "MarianMTModel", m2m.MODEL_TYPE: "M2M100ForConditionalGeneration"}
VOCABULARIES = {marian.MODEL_TYPE: marian.vocabulary_orders, m2m.MODEL_TYPE: m2m.vocabulary_orders}


def export(model: OpenedModel, folder: Path) -> None:
    """Write a folder for ``from_pretrained``: Marian for translation, GPT-2 for a language model.

    Raises ConfigError for a setting that the class does not support.
    """
    (marian if model.translates else gpt2).export(model, folder)


def read(folder: Path, **languages: str) -> ImportedModel:
    """Read a folder that ``save_pretrained`` wrote. ``languages`` are for M2M-100 alone.

    Raises ConfigError for an unsupported architecture, and errors of its ``read``.
    """
    kind = _model_type(folder, READERS)
    if languages and kind != m2m.MODEL_TYPE:
        problem = f"a model of model_type={kind} takes no languages"
        raise ConfigError(f"--{next(iter(languages))}", problem, "leave it out")
    return READERS[kind](folder, **languages)


def open_counterpart(folder: Path, model: OpenedModel) -> Counterpart:
    """Open the model in ``folder``. Raise ConfigError for an unsupported architecture."""
    is_gpt2 = _model_type(folder, [*READERS, gpt2.MODEL_TYPE]) == gpt2.MODEL_TYPE
    return Gpt2Counterpart(folder, model) if is_gpt2 else TranslationCounterpart(folder, model)


def _model_type(folder: Path, kinds: Collection[str]) -> str:
    """Return the architecture in ``config.json``. Raise ConfigError unless it is of ``kinds``."""
    path = folder / "config.json"
    kind = str(read_object(path).get("model_type"))
    if kind not in kinds:
        raise ConfigError(path, f"model_type={kind!r} is not one of {', '.join(kinds)}")
    return kind


class HuggingFaceCounterpart(Counterpart):
    """A model of transformers in float32 on the CPU."""

    tolerance = Tolerance(1e-4, 2e-5)

    def _load(self, folder: Path, class_name: str) -> Any:
        """Load the model, and return the library. Raise DataError if it cannot be loaded."""
        self._torch = torch_library()
        with needing("transformers"):
            import transformers
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.name = f"transformers {class_name}"
        try:
            self._model = getattr(transformers, class_name).from_pretrained(folder, dtype=self._torch.float32).eval()
        # A damaged folder can raise any error.
        except Exception as error:
            raise DataError(f"{folder}: transformers cannot load it: {str(error)[:200]}") from None
        return transformers

    def _padded(self, rows: Sequence[list[int]], filler: int) -> Any:
        width = max(map(len, rows))
        return self._torch.tensor([row + [filler] * (width - len(row)) for row in rows])


class Gpt2Counterpart(HuggingFaceCounterpart):
    """A ``GPT2LMHeadModel``."""

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        require_same_tokenizers(folder / gpt2.TOKENIZER, model)
        self._load(folder, "GPT2LMHeadModel")
        self.longest = self._model.config.n_positions

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        inputs = self._padded([[BOS_ID, *example.target[:-1]] for example in examples], BOS_ID)
        with self._torch.inference_mode():
            logits = self._model(input_ids=inputs).logits.numpy()
        return [row[: len(example.target)] for row, example in zip(logits, examples, strict=True)]


class TranslationCounterpart(HuggingFaceCounterpart):
    """A ``MarianMTModel`` or ``M2M100ForConditionalGeneration`` and its tokenizer."""

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        path = folder / "config.json"
        theirs = read_object(path)
        kind = theirs["model_type"]
        self._source, self._target = VOCABULARIES[kind](folder, theirs)
        self.longest = value_of(theirs, "max_position_embeddings", int, path)
        # Tokens that begin every translation of the run.
        self._forced = self._target.to_theirs(model.tokenizers.target.encode(""))
        for order, tokenizer in zip((self._source, self._target), model.tokenizers, strict=True):
            if len(order.theirs) != tokenizer.vocabulary_size:
                problem = f"{len(order.theirs):,} ids, but the run has {tokenizer.vocabulary_size:,}"
                raise DataError(f"{folder}: a vocabulary of {problem}; give the same model")
        with warnings.catch_warnings():
            # It recommends sacremoses, which would change punctuation.
            warnings.simplefilter("ignore")
            self._tokenizer = self._load(folder, CLASSES[kind]).AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False
            )
        if kind == m2m.MODEL_TYPE:
            # The settings may have another name of the language, for a corpus.
            source = model.tokenizers.source
            self._tokenizer.src_lang = "".join(source.pieces(source.encode(""))).strip("_")

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        inputs = self._sources([example.source for example in examples])
        targets = [self._target.to_theirs([BOS_ID, *example.target[:-1]]) for example in examples]
        decoder = self._padded(targets, int(self._target.theirs[BOS_ID]))
        with self._torch.inference_mode():
            logits = self._model(**inputs, decoder_input_ids=decoder).logits.numpy()
        ours = self._target.logits(logits)
        return [row[: len(example.target)] for row, example in zip(ours, examples, strict=True)]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        theirs = self._target.to_theirs([PAD_ID, BOS_ID])
        eos = int(self._target.theirs[EOS_ID])
        never = [[i] for i in set(theirs) if i not in (NOWHERE, eos)]
        outputs: list[list[int]] = []
        for rows in itertools.batched(sources, ROWS_AT_ONCE):
            inputs = self._sources(rows)
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
            translations = [itertools.takewhile(lambda i: i != eos, row[1:]) for row in ids.tolist()]
            outputs += [self._target.to_ours([*translation]) for translation in translations]
        return outputs

    def checks(self, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Compare the tokens of texts that this package does not escape."""
        plain = [(text, example.source) for text, example in zip(texts, examples, strict=True) if not is_escaped(text)]
        alike = [self._source.to_ours(self._tokenizer(text).input_ids) == ids for text, ids in plain]
        return [Check("tokenized alike", sum(alike), len(plain))]

    def _sources(self, sources: Sequence[list[int]]) -> dict[str, Any]:
        rows = [self._source.to_theirs(source) for source in sources]
        lengths = self._torch.tensor([len(row) for row in rows])
        ids = self._padded(rows, rows[0][-1])
        mask = self._torch.arange(ids.shape[1])[None] < lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}

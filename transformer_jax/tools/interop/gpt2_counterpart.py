"""A GPT-2 of transformers, run by that library, to be compared with a language model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import DataError
from transformer_jax.tools.interop.counterpart import Check, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.gpt2_export import MODEL_TYPE, TOKENIZER
from transformer_jax.tools.interop.hugging_face_counterpart import library, padded
from transformer_jax.tools.interop.hugging_face_reader import model_type
from transformer_jax.tools.interop.opened_model import Example, OpenedModel
from transformer_jax.tools.interop.torch_weights import torch_library


def recognizes(folder: Path) -> bool:
    """Whether this is a folder of a GPT-2."""
    return (folder / "config.json").is_file() and model_type(folder) == MODEL_TYPE


class Counterpart:
    """A ``GPT2LMHeadModel`` in float32 on the CPU."""

    name = "transformers GPT2LMHeadModel"
    compares_logits = True
    longest_source = None
    tolerance = Tolerance(1e-4, 2e-5)

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        self._torch, transformers = torch_library(), library()
        require_same_tokenizers(folder / TOKENIZER, model)
        try:
            self._model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=self._torch.float32).eval()
        # The library raises whatever a damaged folder makes it raise.
        except Exception as error:
            raise DataError(f"{folder}: transformers cannot load it: {str(error)[:200]}") from None
        self.longest_target = self._model.config.n_positions

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Logits [T, V] of every target."""
        inputs = padded(self._torch, [[BOS_ID, *example.target[:-1]] for example in examples], BOS_ID)
        with self._torch.inference_mode():
            logits = self._model(input_ids=inputs).logits.numpy()
        return [row[: len(example.target)] for row, example in zip(logits, examples, strict=True)]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """None: a language model translates nothing."""
        del sources, longest
        return []

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """None: the tokenizer was compared when it was opened."""
        del model, texts, examples
        return []

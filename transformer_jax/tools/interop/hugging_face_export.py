"""Folders for the library transformers: a Marian model of a translation, a GPT-2 of a language model."""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.tools.interop import gpt2_export, marian_export
from transformer_jax.tools.interop.opened_model import OpenedModel


def export(model: OpenedModel, folder: Path, texts: Sequence[str] = ()) -> None:
    """Writes what ``from_pretrained`` loads; raises ConfigError naming a setting that the class of theirs lacks."""
    del texts
    (marian_export if model.translates else gpt2_export).export(model, folder)

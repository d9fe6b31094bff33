"""Reads folders that ``save_pretrained`` of transformers wrote, each by the reader of its architecture."""

from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.tools.interop import gpt2_export, gpt2_reader, m2m_reader, marian_reader
from transformer_jax.tools.interop.imported_model import ImportedModel
from transformer_jax.tools.interop.json_object import read_object

READERS = {"marian": marian_reader.read, gpt2_export.MODEL_TYPE: gpt2_reader.read}
OF_MANY_LANGUAGES = {m2m_reader.MODEL_TYPE: m2m_reader.read}


def read(folder: Path, **languages: str) -> ImportedModel:
    """The model; ``languages``, ``source_language`` and ``target_language``, are for a model of many.

    Raises ConfigError where its architecture is none that can be read, and as the ``read`` of that does.
    """
    kind = str(model_type(folder))
    if kind in OF_MANY_LANGUAGES:
        return OF_MANY_LANGUAGES[kind](folder, **languages)
    if kind not in READERS:
        known = ", ".join([*READERS, *OF_MANY_LANGUAGES])
        raise ConfigError(f"{folder / 'config.json'}: model_type={kind!r} is not one of {known}")
    if languages:
        raise ConfigError(
            f"--{next(iter(languages))}: a model of model_type={kind} has no choice of languages; leave it out"
        )
    return READERS[kind](folder)


def model_type(folder: Path) -> object:
    """The name of an architecture that ``config.json`` states; raises DataError where there is no such file."""
    return read_object(folder / "config.json").get("model_type")

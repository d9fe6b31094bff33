"""Reads folders that ``save_pretrained`` of transformers wrote, each by the reader of its architecture."""

from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.interop import m2m_reader, marian_reader
from transformer_jax.interop.imported_model import ImportedModel
from transformer_jax.interop.json_object import read_object

READERS = {"marian": marian_reader, m2m_reader.MODEL_TYPE: m2m_reader}


def read(folder: Path, **languages: str) -> ImportedModel:
    """The model; ``languages``, ``source_language`` and ``target_language``, are for a model of many.

    Raises ConfigError where its architecture is none of ``READERS``, and as their ``read`` does.
    """
    kind = model_type(folder)
    if kind not in READERS:
        raise ConfigError(f"{folder / 'config.json'}: model_type={kind!r} is not one of {', '.join(READERS)}")
    if kind == m2m_reader.MODEL_TYPE:
        return m2m_reader.read(folder, **languages)
    if languages:
        raise ConfigError(
            f"--{next(iter(languages))}: a model of model_type={kind} has one pair of languages; leave it out"
        )
    return marian_reader.read(folder)


def model_type(folder: Path) -> object:
    """The name of an architecture that ``config.json`` states; raises DataError where there is no such file."""
    return read_object(folder / "config.json").get("model_type")


def recognizes(folder: Path) -> bool:
    """Whether this is a folder of a model that can be read."""
    return (folder / "config.json").is_file() and model_type(folder) in READERS

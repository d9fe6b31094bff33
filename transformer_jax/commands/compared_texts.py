"""The sentences on which export and verify compare a run with the same model elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.config import ConfigError, DataError

if TYPE_CHECKING:
    from transformer_jax.tools.interop.opened_model import OpenedModel


def define_text_flags(values: flags.FlagValues) -> None:
    """``--text`` and ``--sentences``."""
    meaning = "file of source sentences to compare on, plain or .gz; default: the validation split"
    flags.DEFINE_string("text", None, meaning, flag_values=values)
    flags.DEFINE_integer("sentences", 100, "how many to compare", flag_values=values, lower_bound=1)


def texts_to_compare(values: flags.FlagValues, model: "OpenedModel") -> list[str]:
    """Sentences of ``--text``, or of the validation split of the run; without it, and with ``--no_verify``, none.

    Raises DataError where there is no sentence, ConfigError, which names ``--text``, where the data of the run cannot be read.
    """
    from transformer_jax.data.text_files import read_lines

    if values.text is not None:
        texts = [line for line in read_lines(Path(values.text).expanduser()) if line.strip()][: values.sentences]
        if not texts:
            raise DataError(f"{values.text}: no sentence in it")
        return texts
    try:
        return model.validation_texts(values.sentences)
    except (ConfigError, DataError) as error:
        if "no_verify" in values and values.no_verify:
            return []
        raise ConfigError(f"{error}; name a file of source sentences with --text") from None

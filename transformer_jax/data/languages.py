"""The languages of parallel text whose files do not name them."""

from dataclasses import replace
from itertools import islice

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.languages import UNDETERMINED, language_of_text
from transformer_jax.data.corpora import open_corpus

SAMPLED_PAIRS = 1000


def with_languages(config: ExperimentConfig) -> tuple[ExperimentConfig, str]:
    """The settings with the languages that the script of the training text reveals, ``und`` where it does not, and a remark.

    Languages that are stated, or named by the suffixes of files, stay, and then nothing is read. Raises DataError where the
    text cannot be read.
    """
    missing = [side for side in ("source", "target") if getattr(config.data, f"{side}_language", "stated") == ""]
    if not missing:
        return config, ""
    corpus = open_corpus(config.data, config.data_seed)
    pairs = list(islice(corpus.pairs(config.data.train_split), SAMPLED_PAIRS))
    found, remarks = {}, []
    for side in missing:
        language, script = language_of_text(getattr(pair, side) for pair in pairs)
        found[f"{side}_language"] = language
        known = f"{language}, by its script ({script})"
        unknown = f"not known: no suffix of data.train says it, and its script ({script or 'none'}) is that of several"
        remarks.append(f"data.{side}_language: {unknown if language == UNDETERMINED else known}")
    return replace(config, data=replace(config.data, **found)), "; ".join(remarks)

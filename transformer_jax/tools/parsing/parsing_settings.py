"""Settings of parsing: the treebank, its linearization, and decoding."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import same_setting, setting
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.translation import DecodingConfig, check_translation

LINEARIZATIONS = ("brackets", "top_down", "in_order")
FORM = ("linearization", "part_of_speech", "word_positions")
"""The settings of ``data`` that choose the symbols of a tree."""


@dataclass(frozen=True)
class TreebankConfig(DataConfig):
    """Source of the trees, and their linearization. Filters apply to the training split only."""

    source: str = setting(
        "generated_treebank",
        "Source of the trees: treebank (files), generated_treebank (a grammar), or a plugin whose corpus is a TreeCorpus.",
        plugin="data_source",
    )
    directory: str = setting(
        "",
        "treebank: folder with files {split}.mrg (plain, .gz or .xz) or folders {split} of such files. The split 02-21 stands "
        "for the folders 02, 03, ..., 21.",
        changeable=True,
    )
    source_language: str = same_setting("en", DataConfig, "source_language")
    target_language: str = same_setting("trees", DataConfig, "target_language")
    linearization: str = setting(
        "brackets",
        "Trees as symbols: labelled brackets, depth first (brackets), with unlabelled closing brackets (top_down), or "
        "opened after their first child (in_order).",
        choices=LINEARIZATIONS,
    )
    part_of_speech: bool = setting(False, "Words of a linearized tree are their parts of speech instead of XX.")
    word_positions: bool = setting(
        False, "The positions of words in the sentence, modulo 64, are written before them: @0 XX, @1 XX."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "treebank" and not self.directory:
            raise ConfigError("data.directory", "must name the folder with the treebank")

    def text_settings(self) -> dict[str, object]:
        return super().text_settings() | {f"data.{name}": getattr(self, name) for name in FORM}


@dataclass(frozen=True)
class ParserConfig(DecodingConfig):
    """Decoding of trees, as of translations, with an optional constraint."""

    max_extra_tokens: int = same_setting(300, DecodingConfig, "max_extra_tokens")
    constrained: bool = setting(
        True, "Only trees over exactly the words of the sentence. False: any symbols, repaired afterwards."
    )

    def check_new_run(self, config: Any) -> None:
        """Raise ConfigError if the constraint cannot count words by the ids of a tokenizer."""
        kind = config.tokenizer.kind
        if self.constrained and kind in ("word", "lower_word", "character", "byte"):
            remedy = "use bpe, unigram or word_class, or --config.decoding.constrained=False"
            raise ConfigError("tokenizer.kind", f"the ids of {kind} do not show where words begin", remedy)


def check_parsing(
    data: TreebankConfig,
    tokenizer: TokenizerConfig,
    batching: BatchingConfig,
    model: TransformerConfig | RnnConfig,
    decoding: ParserConfig,
) -> None:
    """Raise ConfigError when the blocks of a run that parses exclude each other."""
    if tokenizer.joint:
        raise ConfigError("tokenizer.joint", "words and symbols of trees have separate vocabularies", "set it to False")
    check_translation(data, tokenizer, batching, model, decoding)

"""Settings of word vectors: text, blocks, word2vec and GloVe, and checks across them."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import check_settings, same_setting, setting
from transformer_jax.config.data import TokenizerConfig
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.config.model import KIND
from transformer_jax.files.paths import absolute_path

SPANS_IN_UPDATE = 16
"""Spans of token ids in an update, at least. A span is shuffled as one, and windows end with it."""
MAX_SHARED_STEPS = 10
"""Words per row times negatives over shared negatives, at most. With 20 skip-gram diverged."""
VECTOR_TOKENIZERS = ("lower_word", "bpe", "unigram")
DIMENSION = "Dimension of the vectors."
PRECISION = "Precision of the arithmetic."


@dataclass(frozen=True)
class WordTextConfig(TextDataConfig):
    """Text as for language models, subsampling of frequent words, and test sets for the vectors."""

    source: Literal["grammar", "text"] = setting("grammar", "Source of the text: files (text) or a generator.")
    held_out: float = same_setting(0.005, TextDataConfig, "held_out")
    subsample: float = setting(
        1e-3,
        "t of Mikolov et al. 2013b, section 2.3: words of a higher frequency are left out at random. 0: none.",
        at_least=0,
    )
    test_sets: str = setting(
        "", "Folder of analogies and rated word pairs, scored at every validation.", changeable=True
    )

    def absolute(self) -> "WordTextConfig":
        sets = absolute_path(self.test_sets, "data.test_sets")
        return replace(self, **vars(super().absolute()) | {"test_sets": sets})


@dataclass(frozen=True)
class BlockConfig:
    """Blocks of text: an update applies the gradients of its blocks one after another.

    Longer blocks are faster, but use older vectors for the gradients of their last words.
    """

    rows: int = setting(64, "Rows in a block.")
    row_length: int = setting(32, "Words in a row, for GloVe counted pairs of words.")
    blocks_per_update: int = setting(16, "Blocks in an update, one after another.")

    def __post_init__(self) -> None:
        check_settings("batching", self)

    accumulation_steps: ClassVar[int] = 1

    @property
    def row_multiple(self) -> int:
        """Rows computed at once, which the devices that share the batch must divide."""
        return self.rows

    @property
    def tokens_per_update(self) -> int:
        return self.blocks_per_update * self.rows * self.row_length


@dataclass(frozen=True)
class Word2vecConfig:
    """Skip-gram or CBOW (Mikolov et al. 2013a) with negative sampling (2013b)."""

    kind: Literal["skip_gram", "cbow"] = setting("skip_gram", KIND)
    output: Literal["negative_sampling"] = setting("negative_sampling", "Loss.")
    d_model: int = setting(100, DIMENSION)
    window: int = setting(5, "Maximum context words on a side. The number is sampled from 1 to window for every word.")
    negatives: int = setting(5, "Negative samples of a pair of words.")
    shared_negatives: int = setting(32, "Negative samples that all pairs of a row share, weighted accordingly.")
    compute_dtype: Literal["float32"] = setting("float32", PRECISION)

    has_attention_backend: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings("model", self)


@dataclass(frozen=True)
class GloveConfig:
    """GloVe (Pennington et al. 2014)."""

    kind: Literal["glove"] = setting("glove", KIND)
    d_model: int = setting(100, DIMENSION)
    window: int = setting(10, "Maximum distance of counted pairs of words, with the weight 1 / distance.")
    x_max: float = setting(100.0, "Count from which pairs have full weight (equation 9).")
    alpha: float = setting(0.75, "Exponent of the weights below x_max (equation 9).")
    memory_pairs: int = setting(20_000_000, "Counted pairs in memory. More are merged on disk.")
    compute_dtype: Literal["float32"] = setting("float32", PRECISION)

    has_attention_backend: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings("model", self)


@dataclass(frozen=True)
class NoDecodingConfig:
    """Word vectors decode nothing."""


def check_word_vectors(
    data: WordTextConfig,
    tokenizer: TokenizerConfig,
    batching: BlockConfig,
    model: Word2vecConfig | GloveConfig,
    decoding: NoDecodingConfig,
) -> None:
    """Raise ConfigError if the settings contradict each other."""
    del decoding
    if tokenizer.kind not in VECTOR_TOKENIZERS:
        problem = f"{tokenizer.kind!r} makes no words or pieces of words"
        raise ConfigError("tokenizer.kind", problem, f"use {', '.join(VECTOR_TOKENIZERS)}")
    if isinstance(model, GloveConfig):
        if data.subsample:
            raise ConfigError("data.subsample", f"{data.subsample}: GloVe counts all words", "set it to 0")
        return
    fewest = -(-batching.row_length * model.negatives // MAX_SHARED_STEPS)
    if model.shared_negatives < fewest:
        problem = f"{model.shared_negatives} are too few for rows of {batching.row_length} words"
        raise ConfigError("model.shared_negatives", problem, f"use {fewest} or more")
    words, least = batching.tokens_per_update, SPANS_IN_UPDATE * (model.window + 1)
    if words < least:
        problem = f"an update has {words:,} words and needs {least:,} with window={model.window}"
        raise ConfigError("batching", problem, "give more blocks, or longer rows")

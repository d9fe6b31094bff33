"""Settings of word vectors: text, blocks, the models word2vec and GloVe, and the checks that involve more than one of them."""

from dataclasses import dataclass, replace

from transformer_jax.config.addresses import absolute_path
from transformer_jax.config.checks import require, require_choice, require_positive
from transformer_jax.config.data import TokenizerConfig
from transformer_jax.config.language_model import TextDataConfig

WORD2VEC_KINDS = ("skip_gram", "cbow")
OUTPUTS = ("negative_sampling", "hierarchical_softmax")
SPANS_IN_UPDATE = 16
"""A span are the ids of the store that stay together when an epoch is shuffled; windows end there."""
MOST_SHARED_STEPS = 10
"""Words of a row for which a shared negative may stand, times the negatives of each; with 20 skip-gram diverged."""
VECTOR_TOKENIZERS = ("lower_word", "bpe", "unigram")


@dataclass(frozen=True)
class WordTextConfig(TextDataConfig):
    """Where text comes from, as for language models, which of its words are left out, and what the vectors are tested on.

    ``subsample``: t of Mikolov et al. 2013b, section 2.3; words that are more frequent are left out at random; 0, none are.
    ``test_sets``: a folder with files of analogies and of rated pairs of words, scored at every validation.
    """

    held_out: float = 0.005
    subsample: float = 1e-3
    test_sets: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.subsample >= 0, "data.subsample", f"{self.subsample} must not be negative; 0 turns it off")

    def absolute(self) -> "WordTextConfig":
        """The same, with files and folders written out in full."""
        sets = absolute_path(self.test_sets, "data.test_sets")
        return replace(self, **vars(super().absolute()) | {"test_sets": sets})


@dataclass(frozen=True)
class BlockConfig:
    """How text becomes blocks: the gradients of a block are taken at once, and the blocks of an update one after another.

    A block has ``rows`` of ``row_length`` words (of GloVe: as many counted pairs of words). The longer the block, the faster,
    and the older the vectors that the gradients of its last words are taken at.
    """

    rows: int = 64
    row_length: int = 32
    blocks_per_update: int = 16

    def __post_init__(self) -> None:
        require_positive("batching", self, "rows", "row_length", "blocks_per_update")

    @property
    def row_multiple(self) -> int:
        """The rows that are computed at once: the devices that share the batch must divide them."""
        return self.rows

    @property
    def accumulation_steps(self) -> int:
        """Gradients are not accumulated: each block is an update of the rows that it touches."""
        return 1

    @property
    def tokens_per_update(self) -> int:
        """Words in one update."""
        return self.blocks_per_update * self.rows * self.row_length


@dataclass(frozen=True)
class Word2vecConfig:
    """Skip-gram or CBOW (Mikolov et al. 2013a) with negative sampling (2013b) or hierarchical softmax.

    ``window``: the most words on each side; how many it is for a word is drawn from 1 to ``window``. ``negatives``: of each
    pair of words; all pairs of a row share ``shared_negatives``, weighted accordingly.
    """

    kind: str = "skip_gram"
    output: str = "negative_sampling"
    d_model: int = 100
    window: int = 5
    negatives: int = 5
    shared_negatives: int = 32
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        require_choice("model.kind", self.kind, WORD2VEC_KINDS)
        require_choice("model.output", self.output, OUTPUTS)
        require_positive("model", self, "d_model", "window", "negatives", "shared_negatives")
        _require_float32(self.compute_dtype)

    @property
    def has_attention_backend(self) -> bool:
        """There is no attention."""
        return False


@dataclass(frozen=True)
class GloveConfig:
    """GloVe (Pennington et al. 2014): ``x_max`` and ``alpha`` of its weighting function (equation 9).

    Words up to ``window`` apart are counted, each pair with the weight 1 / distance. ``memory_pairs``: counted pairs that are
    held in memory; more are written to disk and merged.
    """

    kind: str = "glove"
    d_model: int = 100
    window: int = 10
    x_max: float = 100.0
    alpha: float = 0.75
    memory_pairs: int = 20_000_000
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        require(self.kind == "glove", "model.kind", f"{self.kind!r} is not glove")
        require_positive("model", self, "d_model", "window", "x_max", "alpha", "memory_pairs")
        _require_float32(self.compute_dtype)

    @property
    def has_attention_backend(self) -> bool:
        """There is no attention."""
        return False


@dataclass(frozen=True)
class NoDecodingConfig:
    """Word vectors decode nothing."""


def _require_float32(compute_dtype: str) -> None:
    problem = f"{compute_dtype!r}: word vectors are computed in float32"
    require(compute_dtype == "float32", "model.compute_dtype", problem)


def check_word_vectors(
    data: WordTextConfig,
    tokenizer: TokenizerConfig,
    batching: BlockConfig,
    model: Word2vecConfig | GloveConfig,
    decoding: NoDecodingConfig,
) -> None:
    """Raises ConfigError when the blocks of a run that learns word vectors exclude each other."""
    del decoding
    problem = f"{tokenizer.kind!r} makes no words or pieces of words; use {', '.join(VECTOR_TOKENIZERS)}"
    require(tokenizer.kind in VECTOR_TOKENIZERS, "tokenizer.kind", problem)
    if isinstance(model, GloveConfig):
        require(not data.subsample, "data.subsample", f"{data.subsample}: GloVe counts all words; set it to 0")
        return
    fewest = -(-batching.row_length * model.negatives // MOST_SHARED_STEPS)
    problem = (
        f"{model.shared_negatives} for rows of {batching.row_length} words take too large steps; use {fewest} or more"
    )
    has_enough = model.output != "negative_sampling" or model.shared_negatives >= fewest
    require(has_enough, "model.shared_negatives", problem)
    words, least = batching.tokens_per_update, SPANS_IN_UPDATE * (model.window + 1)
    problem = (
        f"an update has {words:,} words, with window={model.window} it takes {least:,}; give more blocks or longer rows"
    )
    require(words >= least, "batching", problem)

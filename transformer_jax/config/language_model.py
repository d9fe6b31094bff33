"""Settings of the language model: text, batches, model, generation, and the checks that involve more than one of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from transformer_jax.config.addresses import absolute_place, unasked
from transformer_jax.config.checks import require, require_choice, require_positive
from transformer_jax.config.data import TokenizerConfig
from transformer_jax.config.decoding import SMALLEST_TEMPERATURE, temperature_problem
from transformer_jax.config.model import ATTENTIONS, TransformerLayersConfig

TEXT_SOURCES = ("grammar", "text")
DOCUMENTS = ("lines", "paragraphs")
TEXT_BATCHINGS = ("split", "packed")
LOSSLESS_TOKENIZERS = ("bpe", "unigram", "byte")
LANGUAGE_MODEL_TYINGS = ("output", "none")


@dataclass(frozen=True)
class TextDataConfig:
    """Source of the text, and its division into documents.

    ``text`` reads ``{split}.txt`` from ``directory``, or the files that ``train``, ``validation`` and ``test`` name; each
    plain, .gz or .xz. Without ``validation`` the last documents of ``train``, ``held_out`` of its bytes, are the validation
    split and are never trained on. ``grammar`` is generated: ``generated_sentences`` for training, in paragraphs.
    ``documents``: each of the ``lines``, or ``paragraphs`` between blank lines.

    ``evaluation_stride``: an evaluated row has so many new tokens, and before them what was scored already, so that each has at
    least a context of ``batching.context_length`` - ``evaluation_stride``; 0, rows do not overlap. ``seed`` draws what is
    generated, what the tokenizer learns from, and the order of the batches; -1 means that of the run.
    """

    source: str = "grammar"
    train: str = ""
    validation: str = ""
    test: str = ""
    directory: str = ""
    documents: str = "lines"
    held_out: float = 0.05
    train_split: str = "train"
    validation_split: str = "validation"
    test_split: str = "test"
    generated_sentences: int = 20_000
    evaluation_stride: int = 0
    cache_directory: str = "~/.cache/transformer_jax"
    seed: int = -1

    def __post_init__(self) -> None:
        require_choice("data.source", self.source, TEXT_SOURCES)
        require_choice("data.documents", self.documents, DOCUMENTS)
        require_positive("data", self, "generated_sentences")
        require(0 < self.held_out < 1, "data.held_out", f"{self.held_out} must be above 0 and below 1")
        require(self.evaluation_stride >= 0, "data.evaluation_stride", "must not be negative; 0 means no overlap")
        is_named = self.source != "text" or bool(self.train) != bool(self.directory)
        require(
            is_named, "data.train", "for data.source=text name a file of text, or else a folder with data.directory"
        )
        is_used = self.source == "text" or not any((self.train, self.validation, self.test, self.directory))
        require(is_used, "data.source", f"{self.source} reads no file; set data.source=text")
        is_one = not (self.directory and (self.validation or self.test))
        require(is_one, "data.directory", "has the files of every split; name files with data.train instead, or none")
        problem = f"{self.seed} must be at least 0 and below 2^32, or -1 for that of the run"
        require(-1 <= self.seed < 2**32, "data.seed", problem)

    @property
    def has_pairs(self) -> bool:
        """Whether examples are pairs of sentences, not documents."""
        return False

    def of_a_run(self) -> "TextDataConfig":
        """The same out of a run directory, which may be somebody else's: text at an address is not downloaded."""
        return self._with_places(unasked)

    def only_reading(self) -> "TextDataConfig":
        """The same for using a trained model."""
        return self.of_a_run()

    def absolute(self) -> "TextDataConfig":
        """The same, with files and folder written out in full."""
        return self._with_places(absolute_place)

    def _with_places(self, change: Callable[[str], str]) -> "TextDataConfig":
        train, validation, test, directory = map(change, (self.train, self.validation, self.test, self.directory))
        return replace(self, train=train, validation=validation, test=test, directory=directory)

    def split_name(self, split: str) -> str:
        """Name in the data of ``train``, ``validation`` or ``test``; any other name stands for itself."""
        names = {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}
        return names.get(split, split)


@dataclass(frozen=True)
class TextBatchingConfig:
    """Batching of documents as rows of ``context_length`` tokens, all of one static shape.

    ``split``: the documents are one stream, each ended by EOS, cut every ``context_length`` tokens; attention crosses the ends
    of documents inside a row. ``packed``: documents do not see each other; a longer one is cut, and several share a row.

    ``tokens_per_update``: token positions in one optimizer update, padding included, over all devices. ``row_multiple``: the
    number of rows of every batch is a multiple of it; devices and accumulation must divide it.
    """

    kind: str = "split"
    tokens_per_update: int = 4096
    context_length: int = 256
    row_multiple: int = 8
    accumulation_steps: int = 1

    @property
    def row_length(self) -> int:
        """Positions of every row."""
        return self.context_length

    def __post_init__(self) -> None:
        require_choice("batching.kind", self.kind, TEXT_BATCHINGS)
        names = "tokens_per_update", "context_length", "row_multiple", "accumulation_steps"
        require_positive("batching", self, *names)
        require(self.context_length > 1, "batching.context_length", "1 leaves no token to predict from; use more")
        divides = self.row_multiple % self.accumulation_steps == 0
        problem = f"{self.accumulation_steps} does not divide batching.row_multiple={self.row_multiple}"
        require(divides, "batching.accumulation_steps", problem)


@dataclass(frozen=True)
class DecoderOnlyConfig(TransformerLayersConfig):
    """A stack of causal self-attention layers without an encoder (Liu et al. 2018; Radford et al. 2019).

    Defaults are pre-norm, GELU and learned positions, as in Radford et al. 2019. ``tying``: ``output`` one matrix for embedding
    and output projection (Press and Wolf 2017), ``none`` two.
    """

    kind: str = "decoder_only"
    num_layers: int = 6
    tying: str = "output"
    normalization: str = "pre"
    positions: str = "learned"
    feed_forward: str = "gelu"

    @property
    def attention_counts(self) -> dict[str, tuple[int, int]]:
        """Layers, and heads of each, by kind of attention."""
        return {"decoder": (self.num_layers, self.num_heads)}

    def __post_init__(self) -> None:
        # Scores of plugins see positions, which the slots of a prompt do not have.
        problem = (
            f"{self.attention!r} is not one of {', '.join(ATTENTIONS)}; language models take no attention of a plugin"
        )
        require(self.attention in ATTENTIONS, "model.attention", problem)
        super().__post_init__()
        require(self.kind == "decoder_only", "model.kind", f"{self.kind!r} is not decoder_only")
        require_positive("model", self, "num_layers")
        require_choice("model.tying", self.tying, LANGUAGE_MODEL_TYINGS)


@dataclass(frozen=True)
class GenerationConfig:
    """Generation of at most ``max_new_tokens`` after a prompt: sampling, or beam search if ``beam_width`` is above 1.

    Beam search divides log-probabilities by the length penalty of Wu et al. 2016 (equation 14; 0: not at all).
    Sampling draws from the probabilities at ``temperature`` (0: always the most probable token), cut to the ``top_k`` most
    probable (0: no cut), then to the fewest with a total of at least ``top_p`` (Holtzman et al. 2020; 1: no cut).
    ``batch_tokens``: token positions of prompts that a device continues at once; 0 is 4,096 on a CPU and 16,384 elsewhere.
    """

    max_new_tokens: int = 100
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    beam_width: int = 1
    length_penalty: float = 0.0
    batch_tokens: int = 0

    def __post_init__(self) -> None:
        require_positive("decoding", self, "max_new_tokens", "beam_width")
        require(self.batch_tokens >= 0, "decoding.batch_tokens", "must not be negative; 0 chooses by device")
        is_possible = self.temperature == 0 or self.temperature >= SMALLEST_TEMPERATURE
        require(is_possible, "decoding.temperature", temperature_problem(self.temperature))
        require(self.top_k >= 0, "decoding.top_k", f"{self.top_k} must not be negative; 0 turns it off")
        require(
            0 < self.top_p <= 1, "decoding.top_p", f"{self.top_p} must be above 0 and at most 1, which turns it off"
        )
        require(self.length_penalty >= 0, "decoding.length_penalty", "must not be negative")


def check_language_model(
    data: TextDataConfig,
    tokenizer: TokenizerConfig,
    batching: TextBatchingConfig,
    model: DecoderOnlyConfig,
    decoding: GenerationConfig,
) -> None:
    """Raises ConfigError when the blocks of a language model exclude each other."""
    problem = f"{tokenizer.kind!r} loses text, so bits per byte are not defined; use {', '.join(LOSSLESS_TOKENIZERS)}"
    require(tokenizer.kind in LOSSLESS_TOKENIZERS, "tokenizer.kind", problem)
    length, longest = batching.context_length, model.longest_sequence
    problem = f"{longest} learned positions do not hold a row of batching.context_length={length}; use {length}"
    require(longest is None or longest >= length, "model.max_positions", problem)
    least = length * batching.row_multiple
    problem = (
        f"{batching.tokens_per_update} is less than batching.row_multiple={batching.row_multiple} rows of {length} positions; "
        f"raise it to {least} or lower batching.context_length"
    )
    require(batching.tokens_per_update >= least, "batching.tokens_per_update", problem)
    problem = f"{data.evaluation_stride} is more than batching.context_length={length}: tokens would be left out"
    require(data.evaluation_stride <= length, "data.evaluation_stride", problem)
    can_stride = data.evaluation_stride == 0 or batching.kind == "split"
    require(can_stride, "data.evaluation_stride", "rows overlap only with batching.kind=split; set it to 0")
    problem = (
        f"{decoding.max_new_tokens} tokens do not fit into batching.context_length={length}, even without a prompt"
    )
    require(decoding.max_new_tokens <= length, "decoding.max_new_tokens", problem)

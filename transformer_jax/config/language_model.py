"""Settings of the language model: text, batches, model and generation."""

from dataclasses import dataclass
from typing import Literal

from transformer_jax.config.checks import check_settings, declared, same_setting, setting
from transformer_jax.config.data import (
    BATCH_TOKENS_MEANING,
    SMALLEST_TEMPERATURE,
    BatchingConfig,
    SourceConfig,
    TokenizerConfig,
    corpora_of,
    require_accumulation_divides,
    require_rows_fit,
)
from transformer_jax.config.model import KIND, TransformerLayersConfig
from transformer_jax.errors import ConfigError

LOSSLESS_TOKENIZERS = ("bpe", "unigram", "byte")


@dataclass(frozen=True)
class TextDataConfig(SourceConfig):
    """Source of the text, and its division into documents."""

    source: Literal["grammar", "text", "mixture"] = setting(
        "grammar", "Source of the text: files (text), several corpora (mixture), or a generator."
    )
    directory: str = setting(
        "", "text: folder of {split}.txt files, plain, .gz or .xz, instead of data.train.", changeable=True
    )
    train: str = setting(
        "", "text: file of the training split, or .gz or .xz; mixture: corpora, web=a.txt books=b.txt.", changeable=True
    )
    held_out: float = setting(
        0.05,
        "text: fraction of data.train, in whole documents at its end, that is the validation split if data.validation "
        "is empty.",
        below=1,
    )
    documents: Literal["lines", "paragraphs"] = setting(
        "lines", "Documents of a text: its lines, or its paragraphs between empty lines."
    )
    generated_sentences: int = setting(20_000, "grammar: number of generated training sentences.")
    evaluation_stride: int = setting(
        0, "Scored tokens of each evaluated row; those before are only context. 0: rows do not overlap.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "text" and bool(self.train) == bool(self.directory):
            raise ConfigError("data.train", "data.source=text needs either a file here or a folder in data.directory")
        if self.source != "text" and self.directory:
            raise ConfigError("data.source", f"{self.source} reads no files", "set data.source=text")
        if self.directory and (self.validation or self.test):
            problem = "is a folder with the files of all splits; name files with data.train instead, or none"
            raise ConfigError("data.directory", problem)

    @property
    def corpora(self) -> "dict[str, TextDataConfig]":
        """The settings of each corpus of a mixture, as text, by name."""
        return corpora_of(self)

    def text_settings(self) -> dict[str, object]:
        return super().text_settings() | {"data.documents": self.documents}


@dataclass(frozen=True)
class TextBatchingConfig:
    """Batching of documents as rows of ``context_length`` tokens, all of one static shape."""

    kind: Literal["split", "packed"] = setting(
        "split",
        "Rows: one stream of all documents, separated by EOS and cut into rows, with attention across documents (split), "
        "or several documents in a row without attention between them (packed).",
    )
    tokens_per_update: int = setting(
        4096, "Token positions in an optimizer update, with padding, over all devices.", at_most=2**30
    )
    context_length: int = setting(256, "Token positions in a row.", above=1)
    row_multiple: int = same_setting(8, BatchingConfig, "row_multiple")
    accumulation_steps: int = same_setting(1, BatchingConfig, "accumulation_steps")

    @property
    def row_length(self) -> int:
        return self.context_length

    def __post_init__(self) -> None:
        check_settings("batching", self)
        require_accumulation_divides(self.row_multiple, self.accumulation_steps)


@dataclass(frozen=True)
class DecoderOnlyConfig(TransformerLayersConfig):
    """A stack of causal self-attention layers without an encoder (Liu et al. 2018).

    Defaults are pre-norm, GELU and learned positions (Radford et al. 2019).
    """

    kind: Literal["decoder_only"] = setting("decoder_only", KIND)
    num_layers: int = setting(6, "Number of layers.", at_most=10_000)
    tying: Literal["output", "none"] = setting(
        "output", "Shared matrices: embedding and output projection (output, Press and Wolf 2017), or none."
    )
    normalization: str = same_setting("pre", TransformerLayersConfig, "normalization")
    positions: str = same_setting("learned", TransformerLayersConfig, "positions")
    feed_forward: str = same_setting("gelu", TransformerLayersConfig, "feed_forward")

    @property
    def decoder_depth(self) -> int:
        return self.num_layers


@dataclass(frozen=True)
class GenerationConfig:
    """Generation after a prompt: sampling, or beam search if ``beam_width`` is above 1."""

    max_new_tokens: int = setting(100, "Maximum number of generated tokens.")
    temperature: float = setting(
        1.0,
        "Sampling temperature; 0 always takes the most probable token.",
        at_least=SMALLEST_TEMPERATURE,
        unless=(0, "for greedy decoding"),
    )
    top_k: int = setting(0, "Sampling from the top_k most probable tokens; 0: from all.", at_least=0)
    top_p: float = setting(
        1.0, "Sampling from the fewest tokens with this total probability (Holtzman et al. 2020); 1: all.", at_most=1
    )
    beam_width: int = setting(1, "Beam width; 1 is sampling.", at_most=1000)
    length_penalty: float = setting(
        0.0, "Exponent of the length penalty of beam search (Wu et al. 2016, equation 14); 0: none.", at_least=0
    )
    batch_tokens: int = setting(0, BATCH_TOKENS_MEANING, at_least=0, changeable=True)

    def __post_init__(self) -> None:
        check_settings("decoding", self)

    def check_new_run(self, config: object) -> None:
        """Raise ConfigError unless settings of the other kind of decoding have their defaults."""
        is_search = self.beam_width > 1
        kind = "beam search" if is_search else "sampling"
        for name in ("temperature", "top_k", "top_p") if is_search else ("length_penalty",):
            if (value := getattr(self, name)) != declared(GenerationConfig)[name].default:
                problem = f"{value} has no effect here: decoding.beam_width={self.beam_width} is {kind}"
                raise ConfigError(f"decoding.{name}", problem)


def check_language_model(
    data: TextDataConfig,
    tokenizer: TokenizerConfig,
    batching: TextBatchingConfig,
    model: DecoderOnlyConfig,
    decoding: GenerationConfig,
) -> None:
    """Raise ConfigError when the blocks of a language model are incompatible."""
    if tokenizer.kind not in LOSSLESS_TOKENIZERS:
        problem = f"{tokenizer.kind!r} loses text, so bits per byte are not defined"
        raise ConfigError("tokenizer.kind", problem, f"use {', '.join(LOSSLESS_TOKENIZERS)}")
    length, longest = batching.context_length, model.longest_sequence
    if longest is not None and longest < length:
        problem = f"{longest} learned positions are too few for batching.context_length={length}; use {length}"
        raise ConfigError("model.max_positions", problem)
    require_rows_fit(batching.tokens_per_update, batching.row_multiple, length)
    if data.evaluation_stride > length:
        problem = f"{data.evaluation_stride} is more than batching.context_length={length}, so tokens would be left out"
        raise ConfigError("data.evaluation_stride", problem)
    if data.evaluation_stride and batching.kind != "split":
        raise ConfigError("data.evaluation_stride", "rows overlap only with batching.kind=split", "set it to 0")
    if decoding.max_new_tokens > length:
        problem = f"{decoding.max_new_tokens} tokens do not fit into batching.context_length={length}"
        raise ConfigError("decoding.max_new_tokens", problem)

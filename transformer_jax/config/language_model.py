"""Settings of the language model: text, batches, model, generation, and the checks over several blocks."""

from dataclasses import dataclass
from typing import Literal

from transformer_jax.config.checks import check_settings, require, same_setting, setting
from transformer_jax.config.data import SourceConfig, TokenizerConfig, require_accumulation_divides
from transformer_jax.config.model import KIND, TransformerLayersConfig
from transformer_jax.config.translation import BATCH_TOKENS_MEANING, SMALLEST_TEMPERATURE, temperature_problem

LOSSLESS_TOKENIZERS = ("bpe", "unigram", "byte")


@dataclass(frozen=True)
class TextDataConfig(SourceConfig):
    """Source of the text, and its division into documents.

    Without ``validation`` the last documents of ``train``, ``held_out`` of its bytes, are the validation split.
    """

    source: Literal["grammar", "text"] = setting("grammar", "Source of the text: files (text), or a generator.")
    directory: str = setting(
        "", "text: folder of {split}.txt files, plain, .gz or .xz, instead of data.train.", changeable=True
    )
    train: str = setting("", "text: file of the training split, plain, .gz or .xz.", changeable=True)
    held_out: float = setting(
        0.05,
        "text: fraction of data.train, whole documents at its end, that is the validation split unless "
        "data.validation is named.",
        below=1,
    )
    documents: Literal["lines", "paragraphs"] = setting(
        "lines", "Documents of a text: its lines, or its paragraphs between blank lines."
    )
    generated_sentences: int = setting(20_000, "grammar: number of generated training sentences.")
    evaluation_stride: int = setting(
        0,
        "New tokens in each evaluated row; the tokens before them are context that was scored already. 0: rows do not "
        "overlap.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_named = self.source != "text" or bool(self.train) != bool(self.directory)
        problem = "for data.source=text name a file of text, or else a folder with data.directory"
        require(is_named, "data.train", problem)
        is_used = self.source == "text" or not self.directory
        require(is_used, "data.source", f"{self.source} reads no files; set data.source=text")
        is_one = not (self.directory and (self.validation or self.test))
        problem = "has the files of every split; name files with data.train instead, or none"
        require(is_one, "data.directory", problem)


@dataclass(frozen=True)
class TextBatchingConfig:
    """Batching of documents as rows of ``context_length`` tokens, all of one static shape."""

    kind: Literal["split", "packed"] = setting(
        "split",
        "Rows: one stream of all documents, each ended by EOS, cut into rows, so that attention crosses the ends of "
        "documents (split), or several documents in a row that do not see each other (packed).",
    )
    tokens_per_update: int = setting(
        4096, "Token positions in an optimizer update, with padding, over all devices.", at_most=2**30
    )
    context_length: int = setting(256, "Token positions in a row.", above=1)
    row_multiple: int = setting(
        8, "The number of rows of every batch is a multiple of it; devices and accumulation steps must divide it."
    )
    accumulation_steps: int = setting(1, "Micro-batches of a batch, whose gradients are summed, to save memory.")

    @property
    def row_length(self) -> int:
        return self.context_length

    def __post_init__(self) -> None:
        check_settings("batching", self)
        require_accumulation_divides(self.row_multiple, self.accumulation_steps)


@dataclass(frozen=True)
class DecoderOnlyConfig(TransformerLayersConfig):
    """A stack of causal self-attention layers without an encoder (Liu et al. 2018; Radford et al. 2019).

    Defaults are pre-norm, GELU and learned positions, as in Radford et al. 2019.
    """

    kind: Literal["decoder_only"] = setting("decoder_only", KIND)
    num_layers: int = setting(6, "Number of layers.")
    tying: Literal["output", "none"] = setting(
        "output", "Shared matrices: embedding and output projection (output, Press and Wolf 2017), or none."
    )
    normalization: str = same_setting("pre", TransformerLayersConfig, "normalization")
    positions: str = same_setting("learned", TransformerLayersConfig, "positions")
    feed_forward: str = same_setting("gelu", TransformerLayersConfig, "feed_forward")

    @property
    def decoder_depth(self) -> int:
        return self.num_layers

    @property
    def attention_counts(self) -> dict[str, tuple[int, int]]:
        return {"decoder": (self.layer_mixers.count("attention"), self.num_heads)}


@dataclass(frozen=True)
class GenerationConfig:
    """Generation after a prompt: sampling, or beam search if ``beam_width`` is above 1."""

    max_new_tokens: int = setting(100, "Maximum number of generated tokens.")
    temperature: float = setting(1.0, "Sampling temperature; 0 always takes the most probable token.", at_least=0)
    top_k: int = setting(0, "Sampling from the top_k most probable tokens; 0: from all.", at_least=0)
    top_p: float = setting(
        1.0,
        "Sampling from the fewest tokens with at least this total probability (Holtzman et al. 2020); 1: from all.",
        at_most=1,
    )
    beam_width: int = setting(1, "Beam width; 1 is sampling.", at_most=1000)
    length_penalty: float = setting(
        0.0, "Exponent of the length penalty of beam search (Wu et al. 2016, equation 14); 0: none.", at_least=0
    )
    batch_tokens: int = setting(0, BATCH_TOKENS_MEANING, at_least=0, changeable=True)

    def __post_init__(self) -> None:
        check_settings("decoding", self)
        is_possible = self.temperature == 0 or self.temperature >= SMALLEST_TEMPERATURE
        require(is_possible, "decoding.temperature", temperature_problem(self.temperature))


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
        f"{batching.tokens_per_update} is less than {least}, which is batching.row_multiple rows of {length}; raise it"
    )
    require(batching.tokens_per_update >= least, "batching.tokens_per_update", problem)
    problem = f"{data.evaluation_stride} is more than batching.context_length={length}: tokens would be left out"
    require(data.evaluation_stride <= length, "data.evaluation_stride", problem)
    can_stride = data.evaluation_stride == 0 or batching.kind == "split"
    require(can_stride, "data.evaluation_stride", "rows overlap only with batching.kind=split; set it to 0")
    problem = f"{decoding.max_new_tokens} tokens do not fit into batching.context_length={length}"
    require(decoding.max_new_tokens <= length, "decoding.max_new_tokens", problem)

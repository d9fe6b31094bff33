"""The work that all contestants do: one model, one list of recorded batches, and how many
operations they take."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID, NUM_SPECIAL_IDS
from transformer_jax.config import (
    BatchingConfig,
    DataConfig,
    ExperimentConfig,
    OptimizerConfig,
    RnnConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
    from_json,
    to_json,
)
from transformer_jax.data.batch_plan import plan_batches
from transformer_jax.data.batches import make_batch
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.token_store import Side, TokenStore
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers
from transformer_jax.sequence_types import Batch, Tokens

LEARNING_RATE = 3e-4
SIDES = "source", "target"


GENERATED = "generated"
# Of the BPE pieces of WMT 2014, about, and as long as its sentences, about.
GENERATED_VOCABULARY, GENERATED_PAIRS = 37_000, 200_000
MEDIAN_LENGTH, SPREAD = 24, 0.55


class Workload(NamedTuple):
    """Recorded batches and what a model needs to know to train on them."""

    config: ExperimentConfig
    vocabulary_size: int
    batches: list[Batch]


def transformer(layers: int, d_model: int, d_ff: int, heads: int) -> TransformerConfig:
    """As deep on either side."""
    return TransformerConfig(
        num_encoder_layers=layers, num_decoder_layers=layers, d_model=d_model, d_ff=d_ff, num_heads=heads
    )


MODELS: dict[str, TransformerConfig | RnnConfig] = {
    "transformer": transformer(3, 256, 1024, 4),
    "tiny": transformer(4, 128, 256, 4),
    "base": transformer(6, 512, 2048, 8),
    "big": transformer(6, 1024, 4096, 16),
    "luong": RnnConfig(attention="general", wiring="luong", input_feeding=False, cell="lstm"),
    "bahdanau": RnnConfig(attention="additive", wiring="bahdanau", cell="gru"),
}


def benchmark_config(
    data: str,
    model: str = "transformer",
    batching: str = "buckets",
    tokens_per_update: int = 4096,
) -> ExperimentConfig:
    """The settings of the comparison, on the text files (``train.en`` and ``train.de``) in the
    folder ``data``.

    With ``generated`` instead of a folder on random words, in sentences as long as in news.
    """
    dropout = {"dropout": 0.1, "embedding_dropout": 0.1}
    where = {"source": "copy"} if data == GENERATED else {"source": "text", "directory": data}
    vocabulary = GENERATED_VOCABULARY if data == GENERATED else 8000
    # One pair of 256 tokens fills a packed row.
    longest = 255 if data == GENERATED else 99
    return ExperimentConfig(
        data=DataConfig(max_source_tokens=longest, max_target_tokens=longest, **where),
        tokenizer=TokenizerConfig(kind="bpe", vocabulary_size=vocabulary, joint=True),
        batching=BatchingConfig(kind=batching, tokens_per_update=tokens_per_update, packed_length=256),
        model=replace(MODELS[model], **dropout),
        # One update of warm-up: the rate is constant, as in the other loop.
        optimizer=OptimizerConfig(name="adam", schedule="constant", learning_rate=LEARNING_RATE, warmup_updates=1),
        training=TrainingConfig(label_smoothing=0.1),
    )


class Pairs(TokenStore):
    """A token store in memory."""

    def __init__(self, source_side: Side, target_side: Side) -> None:
        self.source_side, self.target_side = source_side, target_side

    def lengths(self, number: int | None = None) -> np.ndarray:
        return np.stack([np.diff(side.offsets[:number]) for side in (self.source_side, self.target_side)])


def record(config: ExperimentConfig, folder: Path, num_batches: int) -> list[tuple[int, int, int]]:
    """Writes settings and the first ``num_batches`` batches of the training into ``folder``.

    Returns the shapes (rows, source width, target width) of all batches. Raises DataError when the
    text cannot be read.
    """
    if config.data.source == "copy":
        vocabulary = GENERATED_VOCABULARY
        store: TokenStore = generated_pairs(config.data.max_source_tokens)
    else:
        corpus = open_corpus(config.data, config.data_seed)
        tokenizers = train_tokenizers(config.tokenizer, corpus, config.data.train_split, config.data_seed)
        store = open_token_store(corpus, config.data.train_split, tokenizers, config.data, is_training=True)
        vocabulary = tokenizers.target.vocabulary_size
    plan = plan_batches(store.lengths(), config.batching, config.data_seed)
    arrays = {}
    for update in range(num_batches):
        for side, tokens in zip(SIDES, make_batch(store, plan, update), strict=True):
            arrays |= {f"{side} {update} {name}": array for name, array in tokens._asdict().items()}
    np.savez(folder / "batches.npz", **arrays)
    work = {"config": to_json(config), "vocabulary_size": vocabulary, "batches": num_batches}
    (folder / "work.json").write_text(json.dumps(work))
    return plan.shapes


def load(folder: Path) -> Workload:
    """What ``record`` wrote."""
    work = json.loads((folder / "work.json").read_text())
    with np.load(folder / "batches.npz") as arrays:

        def tokens(side: str, update: int) -> Tokens:
            return Tokens(*(arrays[f"{side} {update} {name}"] for name in Tokens._fields))

        batches = [Batch(*(tokens(side, update) for side in SIDES)) for update in range(work["batches"])]
    return Workload(from_json(work["config"]), work["vocabulary_size"], batches)


def generated_pairs(longest: int) -> Pairs:
    """Random words; the lengths of the sources are log-normal, the targets are 0.8 to 1.3 times as
    long."""
    rng = np.random.default_rng(0)
    source = np.exp(rng.normal(np.log(MEDIAN_LENGTH), SPREAD, GENERATED_PAIRS))
    target = source * rng.uniform(0.8, 1.3, GENERATED_PAIRS)

    def side(lengths: np.ndarray) -> Side:
        offsets = np.concatenate([[0], np.cumsum(np.clip(lengths.astype(np.int64), 1, longest) + 1)])
        ids = rng.integers(NUM_SPECIAL_IDS, GENERATED_VOCABULARY, offsets[-1]).astype(np.int32)
        ids[offsets[1:] - 1] = EOS_ID
        return Side(ids, offsets)

    return Pairs(side(source), side(target))


def shape_of(batch: Batch) -> tuple[int, int, int]:
    """Rows, source width, target width."""
    return (*batch.source.ids.shape, batch.target.ids.shape[1])


def one_of_each_shape(batches: list[Batch]) -> Iterator[Batch]:
    """The first batch of every shape."""
    return iter({shape_of(batch): batch for batch in reversed(batches)}.values())


def target_tokens(batch: Batch) -> int:
    """Target tokens that are not padding."""
    return int((batch.target.segments != 0).sum())


def useful_flops(batch: Batch, model: TransformerConfig | RnnConfig, vocabulary_size: int) -> float:
    """``matmul_flops`` of the sentences alone."""
    return matmul_flops(*map(sentence_lengths, batch), model, vocabulary_size)


def sentence_lengths(tokens: Tokens) -> np.ndarray:
    """Of every sentence of every row; those of the two sides correspond."""
    most = int(tokens.segments.max())
    counts = np.stack([(tokens.segments == segment).sum(axis=1) for segment in range(1, most + 1)])
    return counts.ravel()


def padded_flops(batch: Batch, model: TransformerConfig | RnnConfig, vocabulary_size: int) -> float:
    """``matmul_flops`` of the rectangle that is really computed, padding included."""
    rows, source_width, target_width = shape_of(batch)
    return matmul_flops(np.full(rows, source_width), np.full(rows, target_width), model, vocabulary_size)


def matmul_flops(
    source_lengths: np.ndarray, target_lengths: np.ndarray, model: TransformerConfig | RnnConfig, vocabulary_size: int
) -> float:
    """Floating-point operations of the matrix products of one update on pairs of these lengths."""
    source, target = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    count = rnn_flops if isinstance(model, RnnConfig) else transformer_flops
    logits = 2 * target * (model.d_output if isinstance(model, RnnConfig) else model.d_model) * vocabulary_size
    # The backward pass takes twice as much, since every product has two gradients.
    return float(3 * (count(source, target, model) + logits).sum())


def rnn_flops(source: np.ndarray, target: np.ndarray, model: RnnConfig) -> np.ndarray:
    """Of the forward pass, without logits, of one layer on either side.

    With G gates, e and n the widths of embedding and state, m of the memory, a of the attention and
    o of the output:

        encoder    2 directions x 2 S (e + n) G n
        Luong      2 T (e + n) G n + 2 T n m (general score) + 4 T S m (scores, weighted values) + 2 T (m + n) n
        Bahdanau   2 T (e + m + n) G n + 2 T n a + 2 S m a + 2 T S a + 2 T S m + 4 T (n + e + m) o
    """
    gates = 4 if model.cell == "lstm" else 3
    e, n, m, a, o = model.d_embedding, model.d_hidden, model.d_memory, model.d_attention, model.d_output
    encoder = 4 * source * (e + n) * gates * n
    if model.wiring == "luong":
        attention = 2 * target * n * m + 4 * target * source * m
        return encoder + 2 * target * (e + n) * gates * n + attention + 2 * target * (m + n) * n
    attention = 2 * target * n * a + 2 * source * m * a + 2 * target * source * (a + m)
    return encoder + 2 * target * (e + m + n) * gates * n + attention + 4 * target * (n + e + m) * o


def transformer_flops(source: np.ndarray, target: np.ndarray, model: TransformerConfig) -> np.ndarray:
    """Of the forward pass, without logits.

    With S and T tokens, width d, feed-forward width f, V pieces, all heads together as wide as the
    model, and 2 operations for a multiplication and its addition, a pair takes

        encoder layer   8 S d^2 (four projections) + 4 S^2 d (scores, weighted values) + 4 S d f
        decoder layer   8 T d^2 + 4 T^2 d + (4 T + 4 S) d^2 + 4 S T d (attention to the source) + 4 T d f

    Attention counts as a full square though half of the decoder's is masked. Everything else
    (norms, softmax, dropout, Adam, embedding look-ups) is not counted: it is overhead.
    """
    d, f = model.d_model, model.d_ff
    encoder_layer = 8 * source * d**2 + 4 * source**2 * d + 4 * source * d * f
    self_attention = 8 * target * d**2 + 4 * target**2 * d
    cross_attention = 4 * (target + source) * d**2 + 4 * source * target * d
    decoder_layer = self_attention + cross_attention + 4 * target * d * f
    return model.num_encoder_layers * encoder_layer + model.num_decoder_layers * decoder_layer

"""The work that all contestants do: one model, one list of recorded batches, and how many operations they take."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.config import (
    BatchingConfig,
    DataConfig,
    ExperimentConfig,
    OptimizerConfig,
    RnnConfig,
    TokenizerConfig,
    TrainingConfig,
    TransformerConfig,
)
from transformer_jax.data.batch_plan import plan_batches
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pipeline import make_batch
from transformer_jax.data.token_store import open_token_store
from transformer_jax.data.tokenizers import load_tokenizers, save_tokenizers, train_tokenizers
from transformer_jax.sequence_types import Batch, Tokens

LEARNING_RATE = 3e-4


class Workload(NamedTuple):
    """Recorded batches and what a model needs to know to train on them."""

    config: ExperimentConfig
    vocabulary_size: int
    batches: list[Batch]


MODELS: dict[str, TransformerConfig | RnnConfig] = {
    "transformer": TransformerConfig(num_encoder_layers=3, num_decoder_layers=3, d_model=256, d_ff=1024, num_heads=4),
    "luong": RnnConfig(attention="general", wiring="luong", input_feeding=False, cell="lstm"),
    "bahdanau": RnnConfig(attention="additive", wiring="bahdanau", cell="gru"),
}


def benchmark_config(
    data: str, model: str = "transformer", compute_dtype: str = "float32", cache: str = ""
) -> ExperimentConfig:
    """The settings of the comparison, on the text files (``train.en`` and ``train.de``) in the folder ``data``."""
    where = {"cache_directory": cache} if cache else {}
    dropout = {"dropout": 0.1, "embedding_dropout": 0.1}
    return ExperimentConfig(
        data=DataConfig(source="text", directory=data, max_source_tokens=99, max_target_tokens=99, **where),
        tokenizer=TokenizerConfig(kind="bpe", vocabulary_size=8000, joint=True),
        batching=BatchingConfig(kind="buckets", tokens_per_update=4096),
        model=replace(MODELS[model], compute_dtype=compute_dtype, **dropout),
        # One update of warm-up: the rate is constant, as in the other loop.
        optimizer=OptimizerConfig(name="adam", schedule="constant", learning_rate=LEARNING_RATE, warmup_updates=1),
        training=TrainingConfig(label_smoothing=0.1),
    )


def record(config: ExperimentConfig, folder: Path, num_batches: int) -> list[tuple[int, int, int]]:
    """Writes the tokenizers and the first ``num_batches`` batches of the training into ``folder``.

    Returns the shapes (rows, source width, target width) of all buckets. Raises DataError when the text cannot be read.
    """
    corpus = open_corpus(config.data, config.data_seed)
    tokenizers = train_tokenizers(config.tokenizer, corpus, config.data.train_split, config.data_seed)
    save_tokenizers(tokenizers, folder / "tokenizer")
    store = open_token_store(corpus, config.data.train_split, tokenizers, config.data, is_training=True)
    plan = plan_batches(store.source_lengths, store.target_lengths, config.batching, config.data_seed)
    ids = {}
    for update in range(num_batches):
        batch = make_batch(store, plan, update)
        ids[f"source_{update}"], ids[f"target_{update}"] = batch.source.ids, batch.target.ids
    np.savez(folder / "batches.npz", **ids)
    return plan.shapes


def load(config: ExperimentConfig, folder: Path) -> Workload:
    """What ``record`` wrote."""
    with np.load(folder / "batches.npz") as ids:
        batches = [
            Batch(Tokens.from_ids(ids[f"source_{update}"]), Tokens.from_ids(ids[f"target_{update}"]))
            for update in range(len(ids.files) // 2)
        ]
    return Workload(config, load_tokenizers(folder / "tokenizer").target.vocabulary_size, batches)


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
    lengths = [(tokens.segments != 0).sum(axis=1) for tokens in batch]
    return matmul_flops(*lengths, model, vocabulary_size)


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

    With G gates, e and n the widths of embedding and state, m of the memory, a of the attention and o of the output:

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

    With S and T tokens, width d, feed-forward width f, V pieces, all heads together as wide as the model, and 2 operations
    for a multiplication and its addition, a pair takes

        encoder layer   8 S d^2 (four projections) + 4 S^2 d (scores, weighted values) + 4 S d f
        decoder layer   8 T d^2 + 4 T^2 d + (4 T + 4 S) d^2 + 4 S T d (attention to the source) + 4 T d f

    Attention counts as a full square though half
    of the decoder's is masked. Everything else (norms, softmax, dropout, Adam, embedding look-ups) is not counted: it is
    overhead of whoever needs time for it.
    """
    d, f = model.d_model, model.d_ff
    encoder_layer = 8 * source * d**2 + 4 * source**2 * d + 4 * source * d * f
    self_attention = 8 * target * d**2 + 4 * target**2 * d
    cross_attention = 4 * (target + source) * d**2 + 4 * source * target * d
    decoder_layer = self_attention + cross_attention + 4 * target * d * f
    return model.num_encoder_layers * encoder_layer + model.num_decoder_layers * decoder_layer

"""Rows of a fixed length: every token scored once, and the order a pure function of the update."""

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data.documents import open_documents
from transformer_jax.data.stores import open_document_store
from transformer_jax.data.text_rows import PADDING_ROW, PackedRows, RowPlan, SplitRows
from transformer_jax.data.tokenizers.listed import ByteTokenizer

STREAM = np.arange(100, 123).astype(np.uint16)
OFFSETS = np.array([0, 3, 4, 15, 23])


def test_a_stream_is_cut_and_padded():
    tokens = SplitRows(STREAM, 7, 4).tokens(np.array([1, PADDING_ROW, 0]))
    np.testing.assert_array_equal(tokens.ids, [[104, 105, 106, 0], [0, 0, 0, 0], [100, 101, 102, 103]])
    np.testing.assert_array_equal(tokens.segments, [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(tokens.positions, [[0, 1, 2, 0], [0, 0, 0, 0], [0, 1, 2, 3]])


def test_documents_are_cut_and_packed_without_mixing():
    rows = PackedRows(STREAM, OFFSETS, 5, seed=0)
    tokens = rows.tokens(np.arange(rows.num_rows))
    starts = set(OFFSETS[:-1]) | {9, 14, 20}
    for ids, segments, positions in zip(*tokens, strict=True):
        for segment in range(1, segments.max() + 1):
            piece = ids[segments == segment]
            assert piece[0] - 100 in starts
            np.testing.assert_array_equal(piece, piece[0] + np.arange(len(piece)))
            np.testing.assert_array_equal(positions[segments == segment], np.arange(len(piece)))


def test_every_token_is_scored_once():
    split = SplitRows(STREAM, 23, 5), SplitRows(STREAM, 23, 5, 2), SplitRows(STREAM, 3, 5, 2)
    for rows in (*split, PackedRows(STREAM, OFFSETS, 5, 0)):
        indices = np.concatenate([np.arange(rows.num_rows), [PADDING_ROW]])
        scored = rows.tokens(indices).ids[rows.is_scored(indices)]
        assert len(scored) == len(set(scored)) == (3 if rows.num_rows == 1 else 23)


def test_an_epoch_has_every_row_once_in_its_own_order():
    plan = RowPlan(num_rows=10, rows_per_update=4, seed=3)
    assert plan.updates_per_epoch == 3
    epochs = [np.concatenate([plan.rows(update) for update in range(3 * epoch, 3 * epoch + 3)]) for epoch in (0, 1)]
    for epoch in epochs:
        assert sorted(epoch) == [PADDING_ROW] * 2 + list(range(10))
    assert not np.array_equal(*epochs)
    np.testing.assert_array_equal(plan.rows(4), RowPlan(10, 4, 3).rows(4))
    assert not np.array_equal(plan.rows(0), RowPlan(10, 4, 4).rows(0))


def test_a_store_holds_every_byte_and_an_end_for_each_document(tmp_path):
    config = TextDataConfig(generated_sentences=40, cache_directory=str(tmp_path))
    corpus = open_documents(config, 0)
    store = open_document_store(corpus, "train", ByteTokenizer(), config)
    assert store.num_bytes == store.byte_offsets[store.num_documents] == store.num_tokens
    ids = store.ids[:]
    assert (ids == EOS_ID).sum() == store.num_documents
    np.testing.assert_array_equal(store.ids[store.offsets[1:] - 1], EOS_ID)
    ids = np.where(ids == EOS_ID, 4 + ord("\n"), ids).tolist()
    assert "".join(f"{document.text}\n" for document in corpus.documents("train")) == ByteTokenizer().decode(ids)

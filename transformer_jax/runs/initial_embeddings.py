"""Initial embedding tables of a new run, with rows from a file of word vectors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, Float, Int, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.registry.plugins import registered
from transformer_jax.training.parameters import OUTPUT_MATRIX, named_leaves
from transformer_jax.training.sharding import path_of

EMBEDDING_TABLE = re.compile(r"(^|/)(\w*embedding)/table$")
WORD_STARTS = ("\N{LOWER ONE EIGHTH BLOCK}", " ")
"""Marks of the beginning of a word, as the first character of a piece."""


@dataclass(frozen=True)
class InitialRows:
    """Rows ``ids [N]`` of one table and their ``vectors [N, D]``, of ``num_pieces`` pieces."""

    ids: np.ndarray
    vectors: np.ndarray
    num_pieces: int


@dataclass(frozen=True)
class InitialEmbeddings:
    """The rows from ``file`` for embedding tables, by the path of the table."""

    file: str
    tables: dict[str, InitialRows]

    def put_into(self, params: PyTree) -> PyTree:
        """Return ``params`` with these rows, in the scale of the rows that they replace."""

        def replaced(path: tuple, leaf: Any) -> Any:
            rows = self.tables.get(path_of(path))
            if rows is None:
                return leaf
            return jax.jit(with_rows, out_shardings=leaf.sharding)(leaf, rows.ids, rows.vectors)

        return jax.tree_util.tree_map_with_path(replaced, params)

    def report(self) -> str:
        tables = (
            f"{name}: {len(rows.ids):,} of {rows.num_pieces:,} pieces found, {rows.num_pieces - len(rows.ids):,} missing"
            for name, rows in self.tables.items()
        )
        return f"embeddings of {self.file}, scaled to those they replace: {'; '.join(tables)}, randomly initialized"

    def to_json(self) -> dict[str, Any]:
        tables = {name: {"found": len(rows.ids), "pieces": rows.num_pieces} for name, rows in self.tables.items()}
        return {"embeddings": self.file, "tables": tables}


def with_rows(table: Float[Array, "V D"], ids: Int[Array, " N"], vectors: Float[Array, "N D"]) -> Float[Array, "V D"]:
    """Return ``table`` with rows replaced by ``vectors`` at their root mean square."""
    scale = jnp.sqrt(jnp.mean(table[ids] ** 2) / jnp.mean(vectors**2))
    return table.at[ids].set((vectors * scale).astype(table.dtype))


def find_initial_embeddings(file: str, like: PyTree, tokenizers: TokenizerPair) -> InitialEmbeddings:
    """Return the vectors of the pieces for every embedding table of ``like``.

    ``like``: parameters or shapes. Raises ConfigError when vectors and a table differ in dimension
    or no piece has a vector, and DataError when the file is damaged.
    """
    readers = registered("word_table")
    if not readers:
        raise ConfigError("init.embeddings", "no tool that reads word vectors (kind word_table) is installed")
    # The package has at most one; a plugin adds another only where the package has none.
    words, vectors = next(iter(readers.values()))(file)
    row_of = {word: row for row, word in enumerate(words)}
    tables = {}
    for name, leaf in named_leaves(like).items():
        match = EMBEDDING_TABLE.search(name)
        if match is None or OUTPUT_MATRIX.fullmatch(name):
            continue
        if leaf.shape[1] != vectors.shape[1]:
            problem = f"{file} has vectors of dimension {vectors.shape[1]}, {name} of {leaf.shape[1]}"
            raise ConfigError("init.embeddings", problem, "make them the same, for example by config.model.d_model")
        tokenizer = tokenizers.source if match[2].startswith("source") else tokenizers.target
        pieces = tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))
        rows = row_of_each_piece(pieces, row_of)
        ids = [number for number, row in enumerate(rows, NUM_SPECIAL_IDS) if row is not None]
        initial = vectors[[row for row in rows if row is not None]]
        tables[name] = InitialRows(np.array(ids, np.int32), initial, len(pieces))
        if ids and not initial.any():
            problem = f"{file} has only zeros for the pieces of {name}"
            raise ConfigError("init.embeddings", problem, "give vectors of a trained run")
    if not any(len(rows.ids) for rows in tables.values()):
        some = ", ".join(map(repr, words[:5]))
        raise ConfigError("init.embeddings", f"{file} has none of the pieces of this model", f"it has {some} and so on")
    return InitialEmbeddings(file, {name: rows for name, rows in tables.items() if len(rows.ids)})


def row_of_each_piece(pieces: Sequence[str], row_of: Mapping[str, int]) -> list[int | None]:
    """Return the row of each piece in a table of words or pieces, or None.

    If at least as many marked pieces are in the table with their mark of WORD_STARTS as without it,
    pieces are looked up as written. Otherwise a piece that begins a word is looked up without its
    mark, as written or in lower case, and a piece that continues a word has no row: the word "ing"
    is not the end of "sleeping". A tokenizer without marks has all pieces looked up.
    """
    marked = [piece for piece in pieces if piece.startswith(WORD_STARTS)]
    as_written = sum(piece in row_of for piece in marked)
    if as_written and as_written >= sum(piece[1:] in row_of for piece in marked):
        return [row_of.get(piece) for piece in pieces]
    is_whole = [piece.startswith(WORD_STARTS) or not marked or not piece[:1].isalnum() for piece in pieces]
    texts = [piece.lstrip("".join(WORD_STARTS)) for piece in pieces]
    rows = [row_of.get(text, row_of.get(text.lower())) for text in texts]
    return [row if whole else None for row, whole in zip(rows, is_whole, strict=True)]

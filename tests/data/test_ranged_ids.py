"""Ids that are read by ranges from an object store and kept on the disk."""

import zlib

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.data import ranged_ids
from transformer_jax.data.ranged_ids import RangedIds

# 16 blocks of 8 ids, the last of 4 ids; then 9 blocks, the last of 1 id; an empty file between them.
FILES = {"a": np.arange(124, dtype="uint16"), "none": np.zeros(0, "uint16"), "b": np.arange(500, 565, dtype="uint16")}
WHOLE = np.concatenate(list(FILES.values()))


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """``opened()``: the ids; ``opened.asked``: the ranges that were read, in blocks of a file."""
    monkeypatch.setattr(ranged_ids, "BLOCK_BYTES", 16)
    monkeypatch.setattr(ranged_ids, "LARGEST_GAP", 2)
    monkeypatch.setattr(ranged_ids, "BLOCKS_OF_RANGE", 6)
    contents = {name: bytearray(ids.tobytes()) for name, ids in FILES.items()}
    crcs = [zlib.crc32(each[at : at + 16]) for each in contents.values() for at in range(0, len(each), 16)]

    def read(names, begins, ends):
        ranges = list(zip(names, begins, ends, strict=True))
        open_ids.asked += [(name, begin // 16, -(-end // 16)) for name, begin, end in ranges]
        return [bytes(contents[name][begin:end]) for name, begin, end in ranges]

    def open_ids(length=WHOLE.size):
        files = [(name, len(content)) for name, content in contents.items()]
        return RangedIds(tmp_path / "x.ids", "uint16", length, files, np.array(crcs, "<u4"), read, DataError)

    open_ids.asked, open_ids.contents, open_ids.path = [], contents, tmp_path / "x.ids"
    return open_ids


def test_positions_read_only_their_blocks_once(opened):
    ids = opened()
    positions = np.array([[0, 1, 2], [24, 25, 26], [123, 124, 125]])
    assert (ids[positions] == WHOLE[positions]).all()
    # Block 1 and 2 lie between two that are needed; a range ends with its file.
    assert opened.asked == [("a", 0, 4), ("a", 15, 16), ("b", 0, 1)]
    assert (ids.bytes_read, ids.ranges_read) == (4 * 16 + 8 + 16, 3)
    opened.asked.clear()
    ids.fetch(np.array([10, 5]), np.array([11, 5]))
    assert opened().dtype == np.uint16 and (opened()[positions] == WHOLE[positions]).all() and opened.asked == []
    assert (opened()[:] == WHOLE).all() and len(ids) == len(WHOLE) and (ids[120:130:2] == WHOLE[120:130:2]).all()
    assert opened.asked == [("a", 4, 10), ("a", 10, 15), ("b", 1, 7), ("b", 7, 9)]


def test_a_block_that_changed_on_the_disk_is_read_again(opened):
    opened()[:20]
    opened.asked.clear()
    with opened.path.open("r+b") as file:
        file.seek(17)
        file.write(b"\xff")
    assert (opened()[:20] == WHOLE[:20]).all() and opened.asked == [("a", 1, 2)]
    with opened.path.open("r+b") as file:
        file.truncate(40)
    assert (opened()[:30] == WHOLE[:30]).all() and opened.asked[1:] == [("a", 2, 4)]


def test_damage_in_the_store_and_a_full_disk_are_errors(opened, monkeypatch):
    opened.contents["b"][20] ^= 1
    ids = opened()
    with pytest.raises(DataError, match="^b$"):
        ids[130:140]
    assert (ids[124:132] == WHOLE[124:132]).all()
    monkeypatch.setattr(ranged_ids.os, "pwrite", lambda file, content, begin: len(content) - 1)
    with pytest.raises(DataError, match=r"cannot write .*/x\.ids \(at most 400 bytes\): .*TRANSFORMER_JAX_SCRATCH"):
        ids[:1]
    with pytest.raises(ValueError, match="380 bytes expected, 378 in 25 blocks found"):
        opened(len(WHOLE) + 1)

"""A sparse matrix written as SciPy's .npz, some rows at a time: memory does not grow with the matrix."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from transformer_jax.config.errors import DataError
from transformer_jax.runtime.atomic_files import appearing_file

if TYPE_CHECKING:
    from scipy.sparse import csr_array

COPIED_AT_ONCE = 1 << 20
COMPRESSION_LEVEL = 1


@dataclass(frozen=True)
class WrittenMatrix:
    """The shape of a matrix on disk, its values that are stored, and the rows that have none."""

    shape: tuple[int, int]
    num_values: int
    num_empty_rows: int

    @property
    def density(self) -> float:
        """The share of values that are stored, 0 to 1."""
        return self.num_values / max(self.shape[0] * self.shape[1], 1)


def write_sparse(path: Path, blocks: Iterable["csr_array"], num_columns: int, dtype: type) -> WrittenMatrix:
    """Writes row blocks ``[n, num_columns]`` as one matrix that ``scipy.sparse.load_npz`` reads; the file appears whole.

    Needs as much room beside the file for a moment. Column numbers are int32, row ends int64.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        names = {"data": np.dtype(dtype), "indices": np.dtype(np.int32), "indptr": np.dtype(np.int64)}
        files: dict[str, IO[bytes]] = {name: open(Path(folder) / name, "w+b") for name in names}  # noqa: SIM115 - closed below
        try:
            written = _append_blocks(files, blocks, num_columns, names)
            lengths = {"data": written.num_values, "indices": written.num_values, "indptr": written.shape[0] + 1}
            _write_archive(path, files, {name: (names[name], lengths[name]) for name in names}, written.shape)
        finally:
            for file in files.values():
                file.close()
    return written


def read_sparse(path: Path) -> "csr_array":
    """The matrix of a file; raises DataError where it is not one of SciPy's."""
    from scipy.sparse import csr_array, load_npz

    try:
        return csr_array(load_npz(path))
    # A damaged file can raise anything, and its header may claim any size.
    except Exception as error:
        raise DataError(f"{path}: not a sparse matrix of SciPy ({error})") from None


def vocabulary_file(stem: Path) -> Path:
    """Where the terms lie, one a line in the order of the columns."""
    return Path(f"{stem}.vocabulary.txt")


def _append_blocks(
    files: dict[str, IO[bytes]], blocks: Iterable["csr_array"], num_columns: int, dtypes: dict[str, Any]
) -> WrittenMatrix:
    """Writes the three arrays of all blocks behind one another."""
    num_rows = num_values = num_empty = 0
    files["indptr"].write(np.zeros(1, np.int64).tobytes())
    for block in blocks:
        files["data"].write(block.data.astype(dtypes["data"], copy=False).tobytes())
        files["indices"].write(block.indices.astype(np.int32, copy=False).tobytes())
        files["indptr"].write((block.indptr[1:].astype(np.int64) + num_values).tobytes())
        num_empty += int((np.diff(block.indptr) == 0).sum())
        num_rows += block.shape[0]
        num_values += len(block.data)
    return WrittenMatrix((num_rows, num_columns), num_values, num_empty)


def _write_archive(
    path: Path, files: dict[str, IO[bytes]], arrays: dict[str, tuple[Any, int]], shape: tuple[int, int]
) -> None:
    small = {"format": np.array(b"csr"), "shape": np.array(shape, np.int64), "_is_array": np.array(True)}
    options = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": COMPRESSION_LEVEL, "allowZip64": True}
    with appearing_file(path) as target, zipfile.ZipFile(target, "w", **options) as archive:  # type: ignore[call-overload]
        for name, (dtype, length) in arrays.items():
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
            files[name].flush()
            files[name].seek(0)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                shutil.copyfileobj(files[name], member, COPIED_AT_ONCE)
        for name, value in small.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, value)

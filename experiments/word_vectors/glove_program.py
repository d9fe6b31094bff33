"""The C program of GloVe's authors (Pennington et al. 2014), built from its sources and driven
through ctypes.

The sources, with the programs' ``main`` taken out, are in the package crucyble:

    pip download --no-deps --no-binary :all: crucyble && tar xzf crucyble-*.tar.gz
    python experiments/word_vectors/compare.py --models=glove --glove_sources=crucyble-0.1.0.dev4/src/lib/glove ...
"""

import ctypes
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

STAGES = ("vocab_count", "cooccur", "shuffle", "glove")
FLAGS = ("-O3", "-march=native", "-funroll-loops", "-w", "-fPIC", "-shared")
MEMORY_GB = 4.0
RECORD_BYTES = 16
LOG_LINE, LONGEST_LOG_LINE = b"\x1b[0GMerging", 200


class GloveRun(NamedTuple):
    """What the program learned, and what it took: counting, then training."""

    vectors: Path
    pairs: int
    counting_seconds: float
    counting_cpu_seconds: float
    seconds: float
    cpu_seconds: float


def build(sources: Path, folder: Path) -> dict[str, ctypes.CDLL]:
    """One shared library a stage: their global variables have the same names."""
    libraries = {}
    for stage in STAGES:
        path = folder / f"{stage}.so"
        subprocess.run(
            ["gcc", *FLAGS, f"-I{sources}", "-o", path, sources / f"{stage}.c", "-lm", "-lpthread"], check=True
        )
        libraries[stage] = ctypes.CDLL(str(path))
    return libraries


def train(
    sources: Path,
    text: Path,
    folder: Path,
    *,
    min_count: int,
    window: int,
    width: int,
    x_max: float,
    epochs: int,
    workers: int,
) -> GloveRun:
    """Counts and learns with the rate 0.05, AdaGrad from 1 and both tables added, as the program
    does by itself."""
    libraries = build(sources, folder)
    corpus, vocabulary, counted, shuffled, vectors = (
        str(path).encode()
        for path in (text, *(folder / name for name in ("vocab.txt", "pairs.bin", "mixed.bin", "vectors")))
    )
    spill, log, squares = (str(folder / name).encode() for name in ("spill", "log.txt", "squares"))
    memory = ctypes.c_float(MEMORY_GB)
    started, cpu_started = time.perf_counter(), time.process_time()
    _require(
        libraries["vocab_count"].vocab_count(
            corpus, vocabulary, 0, ctypes.c_longlong(0), ctypes.c_longlong(min_count), log
        )
    )
    _require(libraries["cooccur"].cooccur(corpus, vocabulary, counted, 0, 1, window, spill, memory, log))
    _without_log(folder / "pairs.bin")
    _require(libraries["shuffle"].shuffle(counted, shuffled, spill, 0, memory))
    counting, counting_cpu = time.perf_counter() - started, time.process_time() - cpu_started
    program = libraries["glove"]
    for name, value in {"num_threads": workers, "num_iter": epochs, "vector_size": width, "use_binary": 0}.items():
        ctypes.c_int.in_dll(program, name).value = value
    ctypes.c_double.in_dll(program, "x_max").value = x_max
    started, cpu_started = time.perf_counter(), time.process_time()
    _require(program.train(shuffled, vocabulary, vectors, squares, 1))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    pairs = (folder / "mixed.bin").stat().st_size // RECORD_BYTES
    return GloveRun(folder / "vectors.txt", pairs, counting, counting_cpu, seconds, cpu)


def _without_log(pairs: Path) -> None:
    """As packaged, the program uses its log after closing it: the last line of the log ends up
    behind the records."""
    with open(pairs, "r+b") as file:
        size = file.seek(0, 2)
        file.seek(max(size - LONGEST_LOG_LINE, 0))
        tail = file.read()
        if LOG_LINE in tail:
            file.truncate(size - len(tail) + tail.rindex(LOG_LINE))


def _require(status: int) -> None:
    if status:
        raise RuntimeError(f"the program ended with {status}")
    # Some of its files it leaves open.
    ctypes.CDLL(None).fflush(None)

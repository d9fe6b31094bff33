"""How fast a corpus is tokenized and batches are served, and whether memory grows with the corpus.

    python experiments/benchmarks/pipeline.py --pairs=5000000

Writes that many generated pairs to text files (in a temporary folder, 600 MB for 5 million), builds
their token store with all cores, then reads batches of both kinds. Memory is sampled, over all
processes together. Writes pipeline.md.

    python experiments/benchmarks/pipeline.py --plans 1000000 10000000 100000000

plans batches for that many pairs with log-normal lengths as in WMT (2 GB of files for 100 million),
each kind in a process of its own: CPU seconds and memory from opening the store to its first batch,
and to the first batch of the next epoch. Writes pipeline_plans.md.

    python experiments/benchmarks/pipeline.py --reads=10000000

reads such a store through TensorStore, as from a bucket: bytes and requests of one process of 1, 8
and 32, with updates of 400,000 tokens, and its batches a CPU second afterwards. Writes
pipeline_reads.md.

    python experiments/benchmarks/pipeline.py --tokenize train.en train.de

tokenizes 58,000, 290,000 and 1,160,000 pairs of that text, repeated with a number at the end of
each line: CPU seconds on 1 and 2 cores and in shards, and of sentencepiece alone on the same lines
in memory. Writes pipeline_tokenize.md.
"""

import argparse
import itertools
import multiprocessing
import os
import tempfile
import threading
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SPLITS = {"train": None, "val": 500, "test_2016": 500}
MIB = 2**20


def main() -> None:
    """Measures everything in turn and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--batches", type=int, default=2000, help="read of each kind, after 200 more")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--plans", type=int, nargs="+", default=[], help="numbers of pairs to plan batches for")
    parser.add_argument("--reads", type=int, default=0, help="number of pairs to read from an object store")
    parser.add_argument("--tokenize", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="text to tokenize")
    parser.add_argument("--sizes", type=int, nargs="+", default=[58_000, 290_000, 1_160_000], help="pairs to tokenize")
    arguments = parser.parse_args()
    if arguments.tokenize:
        write_tokenizing(arguments.tokenize, arguments.sizes, arguments.output)
        return
    if arguments.reads:
        write_reads(arguments.reads, arguments.output)
        return
    if arguments.plans:
        write_plans(arguments.plans, arguments.output)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measured(Path(folder), arguments.pairs, arguments.batches)
    arguments.output.mkdir(parents=True, exist_ok=True)
    plans, batches_per_second = result["plan_seconds"], result["batches_per_second"]
    half, whole = result["memory_half"] / MIB, result["memory_all"] / MIB
    table = [
        "| | |\n|---|---:|",
        f"| pairs, tokens of both sides | {result['pairs']:,}; {result['tokens']:,} |",
        f"| token store, tokens/s on {result['cores']} cores | {result['store_tokens_per_second']:,.0f} |",
        f"| plan of an epoch, s: buckets, packed | {plans['buckets']:.1f}, {plans['packed']:.1f} |",
        f"| batches/s: buckets, packed | {batches_per_second['buckets']:,.0f}, {batches_per_second['packed']:,.0f} |",
        f"| memory before, MiB | {result['memory_before'] / MIB:,.0f} |",
        f"| at most while half, then all was tokenized | {half:,.0f}, {whole:,.0f} |",
    ]
    (arguments.output / "pipeline.md").write_text("\n".join([*table, ""]))
    print("\n".join(table))


def measured(folder: Path, pairs: int, batches: int) -> dict:
    """All measurements on one corpus."""
    from dataclasses import replace

    from transformer_jax.config import resolve
    from transformer_jax.data.batch_plan import plan_batches
    from transformer_jax.data.corpora import open_corpus
    from transformer_jax.data.stores import open_token_store
    from transformer_jax.data.tensorflow_runtime import start_tensorflow
    from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers
    from transformer_jax.runtime.startup import available_cores

    write_corpus(folder, pairs)
    places = [("data.directory", str(folder)), ("data.cache_directory", str(folder / "cache"))]
    config = resolve(f"{CONFIGS / 'multi30k.py'}:tiny", places)
    corpus = open_corpus(config.data, config.data_seed)
    tokenizers = train_tokenizers(
        replace(config.tokenizer, training_sentences=50_000), corpus, config.data.train_split, config.data_seed
    )
    start_tensorflow()
    memory = Memory()
    started = time.perf_counter()
    store = open_token_store(corpus, config.data.train_split, tokenizers, config.data, is_training=True)
    seconds = time.perf_counter() - started
    tokens = store.statistics.source.tokens + store.statistics.target.tokens
    result = {"pairs": store.num_pairs, "tokens": tokens, "cores": available_cores()} | memory.stop()
    result |= {"store_tokens_per_second": tokens / seconds, "plan_seconds": {}, "batches_per_second": {}}
    for kind in ("buckets", "packed"):
        batching = replace(config.batching, kind=kind, packed_length=256)
        started = time.perf_counter()
        plan = plan_batches(store.lengths(), batching, config.data_seed)
        plan.batch(0)
        result["plan_seconds"][kind] = time.perf_counter() - started
        result["batches_per_second"][kind] = read_speed(store, plan, batches)
    return result


PLANNED = {
    "buckets": {},
    "packed": {"packed_length": 256},
    "tokens": {"kind": "packed", "packed_length": 128, "width_multiple": 16},
}


def write_plans(sizes: list[int], output: Path) -> None:
    """Plans batches for every number of pairs and kind of batch."""
    results = []
    for pairs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_lengths(Path(folder), pairs)
            for kind in PLANNED:
                # Its memory begins empty.
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    results.append(alone.submit(cost_of_plan, Path(folder), kind).result())
    write_table(
        "pipeline_plans",
        ("pairs", "batches", "CPU s: first batch, next epoch", "memory, MiB", "bytes a pair"),
        [
            (
                f"{each['pairs']:,}",
                f"{each['kind']}: {each['batches']:,}",
                f"{each['first']:.1f}, {each['next_epoch']:.1f}",
                f"{each['memory'] / MIB:,.0f}",
                f"{each['memory'] / each['pairs']:.1f}",
            )
            for each in results
        ],
        output,
    )


def write_lengths(folder: Path, pairs: int) -> None:
    """A token store whose files of ids are holes: means 28.8 and 31.2 tokens, the sides correlated
    by 0.9."""
    import numpy as np

    from transformer_jax.data.store_statistics import HISTOGRAM_EDGES
    from transformer_jax.data.token_store import BLOCK_BYTES, MANIFEST, completed_array, sealed

    part = folder / "shards/0-of-1"
    arrays, tokens = {}, {}
    for name in ("source", "target"):
        for array in ("ids", "offsets"):
            (part / f"{name}.{array}").mkdir(parents=True)
    files = {side: (part / f"{side}.offsets/0").open("wb") for side in ("source", "target")}
    for side, file in files.items():
        tokens[side] = 0
        np.zeros(1, np.int64).tofile(file)
    for begin in range(0, pairs, MIB):
        normal, noise = np.random.default_rng(begin).standard_normal((2, min(MIB, pairs - begin)))
        for side, mean, draws in (("source", 28.8, normal), ("target", 31.2, 0.9 * normal + 0.19**0.5 * noise)):
            lengths = np.clip(np.rint(mean * np.exp(0.62 * draws - 0.62**2 / 2)), 2, 256).astype(np.int64)
            (tokens[side] + np.cumsum(lengths)).tofile(files[side])
            tokens[side] += int(lengths.sum())
    for side, file in files.items():
        file.close()
        arrays[f"{side}.offsets"] = completed_array(part / f"{side}.offsets/0", "int64")
        ids = part / f"{side}.ids/0"
        ids.touch()
        os.truncate(ids, min(2 * tokens[side], BLOCK_BYTES))
        # The blocks are equal, so their CRC-32 are.
        one = completed_array(ids, "uint16")
        size = 2 * one["block"]
        blocks = -(-2 * tokens[side] // size)
        os.truncate(ids, 0)
        os.truncate(ids, blocks * size)
        with ids.open("ab") as file:
            file.write(np.array([(at * size, size) for at in range(blocks)], "<u8").tobytes())
        last = zlib.crc32(bytes(2 * tokens[side] - (blocks - 1) * size))
        crcs = {"length": tokens[side], "crc32": one["crc32"][:1] * (blocks - 1) + [last], "size": ids.stat().st_size}
        arrays[f"{side}.ids"] = one | crcs
    bars = [0] * (len(HISTOGRAM_EDGES) + 1)
    sides = {
        side: {"sentences": pairs, "tokens": tokens[side], "unknown": 0, "longest": 256, "bars": bars} for side in files
    }
    described = {"split": "train", "read": pairs, "dropped": {}, "corpora": {}, **sides, "arrays": arrays}
    (folder / MANIFEST).write_text(sealed({"parts": {"0-of-1": described}}))


def opened_store(address: str, folder: Path) -> object:
    """The store in a folder, read at an address."""
    from transformer_jax.data.token_store import MANIFEST, StoreParts, TokenStore, unsealed

    return TokenStore(StoreParts(address, unsealed((folder / MANIFEST).read_text())["parts"], ValueError))


def cost_of_plan(folder: Path, kind: str) -> dict:
    """CPU seconds of this thread, without the sampling of memory, and memory beyond the one at the
    start."""
    from transformer_jax.config import BatchingConfig
    from transformer_jax.data.batch_plan import plan_batches

    count = "tokens" if kind == "tokens" else "positions"
    batching = BatchingConfig(**{"kind": kind, "count": count, "tokens_per_update": 25_000, **PLANNED[kind]})
    opened_store(str(folder), folder)
    memory, started = Memory(interval=0.05), time.thread_time()
    store = opened_store(str(folder), folder)
    plan = plan_batches(store.lengths(), batching, 0)
    plan.batch(0)
    first = time.thread_time() - started
    plan.batch(plan.batches_per_epoch)
    seconds, used = time.thread_time() - started, memory.stop()
    result = {"pairs": store.num_pairs, "kind": kind, "batches": plan.batches_per_epoch, "first": first}
    return result | {"next_epoch": seconds, "memory": used["memory_all"] - used["memory_before"]}


def write_reads(pairs: int, output: Path) -> None:
    """Reads as one of several processes."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        write_lengths(Path(folder), pairs)
        for processes in (1, 8, 32):
            # Its cache begins empty.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                results.append(alone.submit(cost_of_reads, Path(folder), processes).result())
    write_table(
        "pipeline_reads",
        ("processes", "lengths of all pairs", "first update", "100 updates", "300 updates", "batches a CPU s, then"),
        [
            (
                each["processes"],
                *(f"{size / MIB:,.0f} MiB, {requests:,} requests" for size, requests in each["read"]),
                f"{each['batches']:,.0f}",
            )
            for each in results
        ],
        output,
    )


def cost_of_reads(folder: Path, processes: int) -> dict:
    """What process 0 reads through TensorStore, here from a disk."""
    import tensorstore

    from transformer_jax.config import BatchingConfig
    from transformer_jax.data.batch_plan import plan_batches
    from transformer_jax.data.batches import make_batch
    from transformer_jax.files import store_path
    from transformer_jax.sequence_types import RowParts

    def counted() -> tuple[int, int]:
        found = {each["name"].rpartition("/")[2]: each["values"][0] for each in metrics("/tensorstore/kvstore/file/")}
        return found["bytes_read"]["value"], found["read"]["value"]

    metrics = tensorstore.experimental_collect_matching_metrics
    store_path.kvstore = lambda address: {"driver": "file", "path": address.removeprefix("file://")}
    store = opened_store(f"file://{folder}", folder)
    plan = plan_batches(store.lengths(), BatchingConfig(tokens_per_update=400_000, row_multiple=32), 0)
    read, found = partial(make_batch, store, plan, parts=RowParts((0,), processes)), [counted()]
    for first, end in ((0, 1), (1, 100), (100, 300)):
        for update in range(first, end):
            read(update)
        found.append(counted())
    started = time.process_time()
    for update in range(300, 400):
        read(update)
    return {"processes": processes, "read": found, "batches": 100 / (time.process_time() - started)}


TOKENIZED = {
    "sentencepiece alone": (1, 0),
    "1 core": (1, 1),
    "2 cores": (2, 1),
    "2 cores, 4 shards": (2, 4),
}
"""Cores, and shards."""


def write_tokenizing(files: list[Path], sizes: list[int], output: Path) -> None:
    """Tokenizes every number of pairs in every way, each in a process of its own."""
    from transformer_jax.data.text_files import read_lines

    texts = [list(read_lines(file)) for file in files]
    results = []
    for pairs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for language, lines in zip(("en", "de"), texts, strict=True):
                with (Path(folder) / f"train.{language}").open("w") as file:
                    file.writelines(f"{lines[at % len(lines)]} {at // len(lines)}\n" for at in range(pairs))
            for way in TOKENIZED:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    seconds = alone.submit(cost_of_tokenizing, Path(folder), way).result()
                results.append({"pairs": pairs, "way": way, "seconds": seconds})
                print(results[-1], flush=True)
    alone = {each["pairs"]: each["seconds"] for each in results if each["way"] == "sentencepiece alone"}
    rows = [
        (
            f"{each['pairs']:,}",
            each["way"],
            f"{each['seconds']:.1f}",
            f"{each['pairs'] / each['seconds']:,.0f}",
            f"{alone[each['pairs']] / each['seconds']:.2f}",
        )
        for each in results
    ]
    write_table("pipeline_tokenize", ("pairs", "way", "CPU s", "pairs a CPU s", "share"), rows, output)


def cost_of_tokenizing(folder: Path, way: str) -> float:
    """CPU seconds."""
    from transformer_jax.config import DataConfig, TokenizerConfig
    from transformer_jax.data import pair_encoding
    from transformer_jax.data.corpora import open_corpus
    from transformer_jax.data.text_files import read_lines
    from transformer_jax.data.tokenization import WHOLE_SPLIT, PairTokenization, Shard
    from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers

    config = DataConfig(source="text", train=f"{folder}/train.{{en,de}}", max_source_tokens=100, max_target_tokens=100)
    corpus = open_corpus(config, 0)
    settings = TokenizerConfig(kind="bpe", vocabulary_size=8000, training_sentences=20_000)
    tokenizers = train_tokenizers(settings, corpus, "train", 0)
    cores, shards = TOKENIZED[way]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    work = PairTokenization(corpus, "train", tokenizers, config)
    texts = [] if shards else [list(read_lines(folder / f"train.{language}")) for language in ("en", "de")]
    started = sum(os.times()[:4])
    for text, tokenizer in zip(texts, tokenizers, strict=False):
        for begin in range(0, len(text), pair_encoding.CHUNK_PAIRS):
            tokenizer._processor.encode(text[begin : begin + pair_encoding.CHUNK_PAIRS], num_threads=1)
    for index in range(shards):
        shard = WHOLE_SPLIT if shards == 1 else Shard(index, shards)
        (folder / f"{way}-{index}").mkdir()
        work.write(folder / f"{way}-{index}", shard)
    return sum(os.times()[:4]) - started


def write_table(name: str, header: tuple, rows: list[tuple], output: Path) -> None:
    """Writes and prints a table."""
    lines = [header, ["---:"] * len(header), *rows]
    table = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.md").write_text(f"{table}\n")
    print(table)


def write_corpus(folder: Path, pairs: int) -> None:
    """Sentences of the embedded grammar, over and over with a number, so that none is the same."""
    from transformer_jax.config import resolve
    from transformer_jax.data.corpora import open_corpus

    config = resolve(str(CONFIGS / "quickstart.py"), [])
    sentences = [(pair.source, pair.target) for pair in open_corpus(config.data, config.data_seed).pairs("train")]
    for split, count in SPLITS.items():
        with (folder / f"{split}.en").open("w") as source, (folder / f"{split}.de").open("w") as target:
            for number in range(count or pairs):
                english, german = sentences[number % len(sentences)]
                source.write(f"{number} {english}\n")
                target.write(f"{number} {german}\n")


def read_speed(store: object, plan: object, batches: int) -> float:
    """Batches a second, through tf.data as training reads them."""
    from transformer_jax.data.batches import make_batch
    from transformer_jax.data.pipeline import prefetched

    stream = prefetched(partial(make_batch, store, plan), 0)
    for _ in itertools.islice(stream, 200):
        pass
    started = time.perf_counter()
    for _ in itertools.islice(stream, batches):
        pass
    return batches / (time.perf_counter() - started)


class Memory:
    """Samples what this process and its children occupy, without what they share with the files
    they map."""

    def __init__(self, interval: float = 0.5) -> None:
        self._interval = interval
        self._samples = [(time.perf_counter(), occupied())]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """The first sample, and the largest of the first half and of all."""
        self._is_over.set()
        self._thread.join()
        middle = (self._samples[0][0] + self._samples[-1][0]) / 2
        return {
            "memory_before": self._samples[0][1],
            "memory_half": max(size for at, size in self._samples if at <= middle),
            "memory_all": max(size for _, size in self._samples),
        }

    def _watch(self) -> None:
        while not self._is_over.wait(self._interval):
            self._samples.append((time.perf_counter(), occupied()))


def occupied() -> int:
    """Bytes of anonymous memory of this process and its children (Linux)."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if str(os.getpid()) in (fields["Pid"].strip(), fields["PPid"].strip()) and "RssAnon" in fields:
            total += int(fields["RssAnon"].split()[0]) * 1024
    return total


if __name__ == "__main__":
    main()

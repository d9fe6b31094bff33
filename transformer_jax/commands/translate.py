import gc
import itertools
import json
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, ensemble_flag, open_runs, run_config, run_flags
from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.text_files import OPENERS, UnfinishedLine, read_lines, sentence_of_line
from transformer_jax.files.atomic_files import naming_full_disk, require_writable_file
from transformer_jax.tasks.translation.translation_options import TRANSLATION_OPTIONS, sampling_of

if TYPE_CHECKING:
    from transformer_jax.tasks.remarks import Remarks
    from transformer_jax.tasks.trained_run import TrainedRun

BYTES_AT_ONCE = 1 << 16
FIRST_LINES = 256
RECORD = ("text", "score", "remarks")


def lines_flags(parser: flags.Parser) -> None:
    """Define the run, the lines in, and the lines out."""
    run_flags(parser)
    ensemble_flag(parser)
    meaning = "file of sentences, one a line, plain, .gz or .xz (default: standard input)"
    flags.string("source", None, meaning, also=("input",))(parser)
    flags.string("output", None, "file to write, compressed if it ends in .gz or .xz (default: standard output)")(
        parser
    )
    flags.integer("n_best", 1, "number of results of each line")(parser)
    flags.boolean("remarks", False, "with --n_best: a fourth column, cut or repeats")(parser)
    flags.boolean("json", False, "print a JSON object for each result, with its remarks")(parser)
    flags.integer("lines_at_once", 4096, "maximum number of lines to decode at once", lower_bound=1)(parser)


@flags.command(
    lines_flags,
    flags.string("prefix", "", "text that every translation begins with"),
    flags.number("temperature", None, "sample, with logits divided by this; 0 is greedy"),
    flags.integer("top_k", None, "sample from the k most probable tokens"),
    flags.number("top_p", None, "sample from the fewest tokens with this total probability"),
    flags.number("epsilon", None, "sample from the tokens with at least this probability"),
    flags.integer("seed", 0, "seed of the sampling"),
)
def translate(values: flags.Values) -> int:
    """Translate lines: from standard input to standard output, from files, or as they are typed.

    Example:
        transformer-jax translate runs/m30k < input.en > output.de
        transformer-jax translate --workdir=runs/a --ensemble=runs/b,runs/c:4000 < input.en
        transformer-jax translate runs/m30k --temperature=0.8 --top_k=50 --n_best=5 < input.en
        transformer-jax translate --workdir=runs/m30k --prefix="Eine Frau" < input.en

    One line in, one line out, in the same order. An empty line stays empty. With --n_best=N every
    line in gives up to N lines out (an empty one gives one): line number, score (length-normalized
    log-probability) and translation, separated by tabs. With --remarks a fourth column has cut if
    the translation reached the length limit, and repeats if the same tokens repeat. With --json
    each result is an object: line, text, score, remarks. Standard error tells which lines have
    something that the model never saw in training: characters or words, more tokens, another
    language code. Lines that are waiting are translated together, up to --lines_at_once. Typed
    lines are answered one by one. With --temperature, --top_k, --top_p or --epsilon translations
    are sampled, without beam search: the same --seed, lines and flags give the same text. With
    --prefix every translation begins with that text, whose last word may continue. With --ensemble
    every next token has the mean of the probabilities of the models.
    """
    config = run_config(values, "translate")
    options = {name: getattr(values, name) for name in TRANSLATION_OPTIONS if name in values.present}
    sampling = sampling_of(config.decoding, options)
    trained = open_for_lines(values, config)
    translator, params = trained.task.translator, trained.params
    if sampling:
        from transformer_jax.decoding.sampling import SamplingRule
        from transformer_jax.tasks.translation.sampler import Sampler

        sampler = Sampler(translator, SamplingRule(**sampling))
        decode = partial(sampler.translate_each, params, seed=values.seed)
    else:
        decode = partial(translator.translate_each, params, prefix=translator.prefix(values.prefix))
    return decode_lines(values, decode, trained)


def open_for_lines(values: flags.Values, config: ExperimentConfig) -> "TrainedRun[Any]":
    """Restore the runs, after checking that the input can be read and the output written."""
    # The default garbage collection takes a tenth of the CPU time of a single line.
    gc.set_threshold(400_000, 50, 50)
    if values.remarks and (values.json or values.n_best == 1):
        raise ConfigError("--remarks", "is a column of --n_best=N", "--json has the remarks without it")
    paths = [Path(name).expanduser() for name in (values.source, values.output) if name]
    if len(paths) == 2 and all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
        raise ConfigError("--output", f"{values.output} is what --source reads", "write to another file")
    for flag, name, stream in (("source", "input", sys.stdin), ("output", "output", sys.stdout)):
        if not getattr(values, flag) and stream is None:
            raise ConfigError(f"--{flag}", f"standard {name} is closed", "give a file")
    runs = chosen_runs(values, config)
    if values.source and not Path(values.source).expanduser().is_fifo():
        for _ in read_lines(Path(values.source)):
            pass  # A line that cannot be read is reported before the model is restored.
    if values.output:
        require_writable_file(values.output, "--output")
    return open_runs(runs, values.average, only_decodes=True)


def decode_lines(values: flags.Values, decode: Callable[..., Any], trained: "TrainedRun[Any]") -> int:
    """Write the results of ``decode``, the method ``translate_each`` of a model, for the input.

    Afterwards, or after every typed line, standard error tells unseen input and cut output.
    """
    from transformer_jax.tasks.translation.translator import SentenceTooLong

    name = values.source or "standard input"
    lines_in = read_lines(Path(values.source)) if values.source else lines_as_they_come(sys.stdin.buffer, name)
    chunks = in_chunks(lines_in, values.lines_at_once)
    is_typed, remarks = not values.source and sys.stdin.isatty(), trained.remarks(name)
    if is_typed:
        print("ready: type a sentence and Enter; Ctrl-D ends", file=sys.stderr, flush=True)
    # Read the input before opening the output: an unreadable input leaves the output unchanged.
    first_chunk, lines_done = next(chunks, []), 0
    with _opened(values.output) as target:
        write = partial(write_results, target, values, remarks)
        for lines in itertools.chain([first_chunk], chunks):
            options = {"num_results": values.n_best, "name": f"{name}, line", "first": lines_done + 1}
            on_result = partial(write, lines_done + 1)
            remarks.read(lines, lines_done + 1)
            try:
                decode(lines, on_result, **options)
            except SentenceTooLong as error:
                # The lines before it are decoded all the same.
                decode(lines[: error.index], on_result, **options)
                remarks.tell()
                raise
            target.flush()
            lines_done += len(lines)
            if is_typed:
                remarks.tell()
    remarks.tell()
    return 0


def write_results(
    target: BinaryIO, values: flags.Values, remarks: "Remarks", first: int, index: int, best: Sequence[Any]
) -> None:
    """Write the best text of line ``first + index``, or a row for each result."""
    number = first + index
    remarks.read_output(number, best[0].remarks)
    if values.json:
        records = ({"line": number} | {key: getattr(result, key) for key in RECORD} for result in best)
        text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
    elif values.n_best > 1:
        last = [f"\t{' '.join(result.remarks)}" if values.remarks else "" for result in best]
        rows = zip(best, last, strict=True)
        text = "".join(f"{number}\t{result.score:.4f}\t{result.text}{column}\n" for result, column in rows)
    else:
        text = f"{best[0].text}\n"
    target.write(text.encode("utf-8"))
    if Path(values.output or "").suffix not in OPENERS:
        target.flush()


@contextmanager
def _opened(path: str | None) -> Iterator[BinaryIO]:
    """Yield the file to write, or standard output, as bytes."""
    if path is None:
        yield sys.stdout.buffer
        return
    written = Path(path).expanduser()
    try:
        file = cast(BinaryIO, OPENERS.get(written.suffix, open)(written, "wb"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    try:
        with naming_full_disk(Path(path)), file:
            yield file
    except OSError:
        if written.is_file() and not written.stat().st_size:
            written.unlink()
        raise


def in_chunks(lines: Iterator[str | None], size: int) -> Iterator[list[str]]:
    """Yield lists of at most ``size`` lines, the first of FIRST_LINES.

    A list ends early at None, and before an unreadable line.
    """
    chunk: list[str] = []
    limit = min(FIRST_LINES, size)
    try:
        for line in lines:
            chunk += [] if line is None else [line]
            if chunk and (line is None or len(chunk) == limit):
                yield chunk
                chunk, limit = [], size
    except DataError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def lines_as_they_come(source: BinaryIO, name: str) -> Iterator[str | None]:
    """Yield the lines of a stream as ``read_lines`` does, and None if reading would block.

    So a person at a terminal, or a program that writes into a pipe now and then, is answered.
    """
    unfinished, lines_done = UnfinishedLine(), 0
    while data := source.read1(BYTES_AT_ONCE):  # type: ignore[attr-defined]  # of every buffered stream
        whole, line_feed, rest = data.rpartition(b"\n")
        if line_feed:
            for line in unfinished.take(whole).split(b"\n"):
                lines_done += 1
                yield sentence_of_line(line, name, lines_done)
        unfinished.add(rest, name, lines_done + 1)
        if not _is_readable(source):
            yield None
    if last := unfinished.take():
        yield sentence_of_line(last, name, lines_done + 1)


def _is_readable(source: BinaryIO) -> bool:
    """Return whether reading would return at once: True for a file, and if it is unknown."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        return True

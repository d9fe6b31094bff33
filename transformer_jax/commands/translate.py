"""Translate lines: from standard input to standard output, from files, or as they are typed.

Example:
    transformer-jax translate --workdir=runs/m30k < input.en > output.de
    transformer-jax translate --workdir=runs/m30k --input=input.en --output=output.de --n_best=3

One line in, one line out, in the same order; an empty line stays an empty line. With --n_best=N every line in gives N lines
out: number of the line, score (length-normalised log-probability) and translation, separated by tabs. TensorFlow is not
needed.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import IO, TextIO

from absl import flags

from transformer_jax.commands.evaluate import define_run_flags, run_config
from transformer_jax.config import ConfigError, DataError


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string("input", None, "file to read (default: standard input)", flag_values=values)
    flags.DEFINE_string("output", None, "file to write (default: standard output)", flag_values=values)
    flags.DEFINE_integer("n_best", 1, "translations of each line", flag_values=values, lower_bound=1)
    flags.DEFINE_integer(
        "lines_at_once", 256, "lines read before they are translated", flag_values=values, lower_bound=1
    )


def run(values: flags.FlagValues) -> int:
    """Translates; 0."""
    config = run_config(values)
    if values.n_best > config.decoding.beam_width:
        raise ConfigError(f"--n_best: {values.n_best} is more than decoding.beam_width={config.decoding.beam_width}")
    from transformer_jax.jax_runtime import start_jax
    from transformer_jax.tasks.trained_run import open_trained_run

    start_jax(config.data.cache_directory)
    trained = open_trained_run(values.workdir, config, checkpoint=values.checkpoint, average=values.average)
    translator = trained.translator
    with _opened(values.input, "r", sys.stdin) as source, _opened(values.output, "w", sys.stdout) as target:
        # A person at a terminal waits for each line; a file is better served by whole batches.
        at_once = 1 if source.isatty() else values.lines_at_once
        number = 0
        for lines in _chunks(_lines(source, values.input or "standard input"), at_once):
            for best in translator.translate(trained.params, lines, num_results=values.n_best):
                number += 1
                if values.n_best == 1:
                    target.write(f"{best[0].text}\n")
                else:
                    target.writelines(f"{number}\t{each.score:.4f}\t{each.text}\n" for each in best)
            target.flush()
    return 0


def _opened(path: str | None, mode: str, standard: TextIO) -> IO[str]:
    """The file, or the standard stream; only a line feed ends a line, as everywhere."""
    if path is None:
        standard.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[attr-defined]  # both are TextIOWrapper
        return open(standard.fileno(), mode, encoding="utf-8", newline="\n", closefd=False)
    try:
        return open(path, mode, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def _lines(source: IO[str], name: str) -> Iterator[str]:
    number = 0
    try:
        for line in source:
            number += 1
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: after line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8") from None


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(itertools.islice(lines, size)):
        yield chunk

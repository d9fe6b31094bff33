"""Translate lines: from standard input to standard output, from files, or as they are typed.

Example:
    transformer-jax translate runs/m30k < input.en > output.de
    transformer-jax translate --workdir=runs/m30k --input=input.en --output=output.de --n_best=3
    transformer-jax translate --workdir=runs/a --ensemble=runs/b,runs/c:4000 < input.en
    transformer-jax translate --workdir=runs/m30k --temperature=0.8 --top_k=50 --seed=1 --n_best=5 < input.en
    transformer-jax translate --workdir=runs/m30k --prefix="Eine Frau" < input.en

One line in, one line out, in the same order; an empty line stays an empty line. With --n_best=N every line in gives up to N
lines out (an empty one gives one): number of the line, score (length-normalized log-probability) and translation, separated by
tabs. Lines that are waiting are translated together, up to --lines_at_once, the first 256 alone, so that output begins early;
what is typed is answered line by line.
With --temperature, --top_k or --top_p translations are drawn from the model, not searched for: the same --seed, lines and flags
give the same text, and --n_best=N draws N, the first of them the same for every N. With --prefix every translation begins with
that text; spaces at its end are dropped, and its last word may go on. A prefix that the run cannot write is refused.
With --ensemble the models of several runs, of whatever kind, translate as one: every next token has the mean of their
probabilities. They must share their tokenizers. TensorFlow is not needed.
"""

import gzip
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from absl import flags

from transformer_jax.commands.arriving_lines import in_chunks, lines_as_they_come
from transformer_jax.commands.run_flags import chosen_runs, define_ensemble_flag, define_run_flags, run_config
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import LARGEST_SEED
from transformer_jax.config.translation import SMALLEST_TEMPERATURE, temperature_problem

if TYPE_CHECKING:
    from transformer_jax.decoding.sampling import SamplingRule
    from transformer_jax.tasks.translation.translator import SentenceTooLong, Translation


SAMPLING_FLAGS = "temperature", "top_k", "top_p"


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    define_ensemble_flag(values)
    flags.DEFINE_string("input", None, "file to read, plain or .gz (default: standard input)", flag_values=values)
    flags.DEFINE_string(
        "output", None, "file to write, compressed if it ends in .gz (default: standard output)", flag_values=values
    )
    flags.DEFINE_integer("n_best", 1, "translations of each line", flag_values=values, lower_bound=1)
    flags.DEFINE_string("prefix", "", "text that every translation begins with", flag_values=values)
    flags.DEFINE_float("temperature", None, "draw, logits divided by this; 0 is greedy", flag_values=values)
    flags.DEFINE_integer("top_k", None, "draw from the k most probable tokens", flag_values=values, lower_bound=1)
    meaning = "draw from the fewest tokens with this total probability"
    flags.DEFINE_float("top_p", None, meaning, flag_values=values, lower_bound=1e-6, upper_bound=1.0)
    flags.DEFINE_integer(
        "seed", 0, "seed of what is drawn", flag_values=values, lower_bound=0, upper_bound=LARGEST_SEED
    )
    flags.DEFINE_integer("lines_at_once", 4096, "most lines to translate at once", flag_values=values, lower_bound=1)


def run(values: flags.FlagValues) -> int:
    """Translates; 0."""
    config = run_config(values)
    is_drawn = any(values[name].value is not None for name in SAMPLING_FLAGS)
    if is_drawn and values.prefix:
        raise ConfigError("--prefix: beam search continues a prefix, sampling does not; leave out one of them")
    if values.n_best > config.decoding.beam_width and not is_drawn:
        raise ConfigError(f"--n_best: {values.n_best} is more than decoding.beam_width={config.decoding.beam_width}")
    temperature = values.temperature
    if temperature is not None and temperature != 0 and not temperature >= SMALLEST_TEMPERATURE:
        raise ConfigError(f"--temperature: {temperature_problem(temperature)}")
    _require_apart(values.input, values.output)
    for flag, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if not values[flag].value and stream is None:
            raise ConfigError(f"--{flag}: standard {flag} is closed; give a file")
    runs = chosen_runs(values, config)
    from transformer_jax.data.text_files import read_lines, require_text
    from transformer_jax.runtime.atomic_files import require_writable_file

    if values.input and not Path(values.input).expanduser().is_fifo():
        require_text(Path(values.input))
    if values.output:
        require_writable_file(values.output, "--output")
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.trained_run import open_trained

    start_jax(config.data.cache_directory)
    trained = open_trained(*runs, average=values.average, task="translation")
    name = values.input or "standard input"
    lines_in = read_lines(Path(values.input)) if values.input else lines_as_they_come(sys.stdin.buffer, name)
    chunks = in_chunks(lines_in, values.lines_at_once)
    if not values.input and sys.stdin.isatty():
        print("ready: type a sentence and Enter; Ctrl-D ends", file=sys.stderr, flush=True)
    # The input is read before the output is opened: an unreadable input leaves the output unchanged.
    first = next(chunks, [])
    if is_drawn:
        from transformer_jax.tasks.translation.sampler import Sampler

        translate = Sampler(trained, _rule(values), values.seed).translate
    else:
        trained.task.translator.prefix_ids(values.prefix)
        translate = partial(trained.task.translator.translate, trained.params, prefix=values.prefix)
    translate = partial(translate, num_results=values.n_best)
    number = 0
    with _opened(values.output) as target:
        for lines in itertools.chain([first], chunks):
            found, too_long = _translated(translate, lines, f"{name}, line", number + 1)
            for best in found:
                number += 1
                target.write(_written(number, best, values.n_best).encode("utf-8"))
            target.flush()
            if too_long:
                raise too_long
    return 0


def _rule(values: flags.FlagValues) -> "SamplingRule":
    from transformer_jax.decoding.sampling import SamplingRule

    stated = {name: values[name].value for name in SAMPLING_FLAGS}
    return SamplingRule(**{name: value for name, value in stated.items() if value is not None})


def _require_apart(source: str | None, target: str | None) -> None:
    """Raises ConfigError when the output is the input: opening it would empty it."""
    paths = [Path(name).expanduser() for name in (source, target) if name]
    if len(paths) == 2 and all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
        raise ConfigError(f"--output: {target} is what --input reads; write to another file")


def _translated(
    translate: "Callable[..., list[list[Translation]]]", lines: list[str], name: str, first: int
) -> "tuple[list[list[Translation]], SentenceTooLong | None]":
    """The translations of the lines; of those before the first that is too long, and the error that says which that is."""
    from transformer_jax.tasks.translation.translator import SentenceTooLong

    try:
        return translate(lines, name=name, first=first), None
    except SentenceTooLong as error:
        return translate(lines[: error.index], name=name, first=first), error


def _written(number: int, best: "Sequence[Translation]", n_best: int) -> str:
    if n_best == 1:
        return f"{best[0].text}\n"
    return "".join(f"{number}\t{each.score:.4f}\t{each.text}\n" for each in best)


@contextmanager
def _opened(path: str | None) -> Iterator[BinaryIO]:
    """The file to write, or standard output, as bytes."""
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        file = cast(BinaryIO, (gzip.open if path.endswith(".gz") else open)(Path(path).expanduser(), "wb"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    with file:
        yield file

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, open_runs, run_config
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.runs.run_directory import ChosenRun
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.open_copies import with_addresses
from transformer_jax.tools.pictures.figures import FIGURES, Subject, find_figure


@flags.command(
    flags.arguments("NAME", f"the figure: {', '.join(FIGURES)}"),
    flags.optional_config,
    flags.string("workdir", None, "folder of a run, instead of --config"),
    flags.string("checkpoint", "best", f"of --workdir: {CHECKPOINT_MEANING}"),
    flags.strings("others", [], "lengths: more runs, to compare with --workdir"),
    flags.integer("limit", 0, "heads, lengths: number of sentences to read; 0: heads 200, lengths all", lower_bound=0),
    flags.string("output", None, "the file to write (default: figure-NAME.png, or .svg)"),
)
def figure(values: flags.Values) -> int:
    """Draw a figure of the theory, and print figures that verify it.

    Example:
        transformer-jax figure positions
        transformer-jax figure architecture --config=configs/seq2seq.py:bahdanau --output=bahdanau.svg
        transformer-jax figure heads --workdir=runs/m30k --limit=200
        transformer-jax figure lengths --workdir=runs/sinusoidal --others=runs/learned,runs/none

    architecture: the modules of a model with shapes and parameter counts.
    heads: BLEU and loss of a run without each of its heads, one at a time.
    lengths: the loss of a run, and of --others, by the length of the target.
    masks: padding, causal, packed and cross masks of real sentences.
    positions: the sinusoids, their dot products, and a shift as a matrix product; for a run also its learned table.
    scaling: scores with and without division by sqrt(d_k): their variance, entropy and gradient of the softmax.
    schedule: the learning rate.
    smoothing: label smoothing: target, loss and gradient.

    A figure shows a recipe, --config=RECIPE with --config.KEY=VALUE (each figure has a default), or a run, --workdir=RUN, with
    its settings, tokenizers and parameters; scaling shows neither.
    """
    names = values.arguments or []
    if len(names) != 1:
        raise ConfigError(f"figure: takes one name, found {' '.join(names) or 'none'}; names are {', '.join(FIGURES)}")
    figure = find_figure(names[0])
    path = Path(values.output or f"figure-{names[0]}{figure.ending}").expanduser()
    if path.suffix != figure.ending:
        raise ConfigError(f"--output: {path}: figure {names[0]} is a file that ends in {figure.ending}")
    given = {"config": bool(values.config or flags.overrides_of(values)), "workdir": bool(values.workdir)}
    for name, is_given in (given | {name: values[name].present for name in ("checkpoint", "others", "limit")}).items():
        if is_given and name not in figure.flags:
            raise ConfigError(f"--{name}: {names[0]} does not read it; leave it out")
    subject = subject_of(values, figure.recipe)
    from transformer_jax.runtime.hardware import start_jax

    require_writable(path.parent, "--output")
    start_jax(subject.config.data.cache_directory)
    lines = figure.load()(subject, path)
    print("\n".join([*lines, str(path)]))
    return 0


def subject_of(values: flags.Values, recipe: str) -> Subject:
    """The run of --workdir, or the recipe of --config, by default ``recipe``."""
    if values.workdir and values.config:
        raise ConfigError("--workdir: a run has its own settings; give it or --config, not both")
    if not values.workdir:
        values["config"].value = values.config or recipe
        if not values.config:
            raise ConfigError("--workdir: this figure is of a trained run; give its folder")
        for name in ("checkpoint", "others", "limit"):
            if values[name].present:
                raise ConfigError(f"--{name}: applies only to a run; give --workdir")
        return Subject(values.config, flags.resolve_config(values))
    others = tuple(Subject(with_addresses(workdir), *_run(values, workdir)) for workdir in values.others)
    name = with_addresses(values.workdir)
    return Subject(name, *_run(values, values.workdir), others=others, limit=values.limit)


def _run(values: flags.Values, workdir: str) -> tuple[ExperimentConfig, Callable[[], Any]]:
    """The settings of a run, and a function that restores it."""
    config = run_config(values, workdir=workdir)
    return config, lambda: open_runs([ChosenRun(workdir, config, values.checkpoint)])

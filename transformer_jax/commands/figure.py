from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, open_runs, run_config
from transformer_jax.config import ConfigError
from transformer_jax.runs.run_directory import ChosenRun
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.open_copies import with_addresses
from transformer_jax.tools.pictures.figures import FIGURES, Subject, find_figure


@flags.command(
    flags.arguments("NAME", f"the figure: {', '.join(FIGURES)}"),
    flags.optional_config,
    flags.string("workdir", None, "folder of a run, instead of --config"),
    flags.string("checkpoint", "best", f"of --workdir: {CHECKPOINT_MEANING}"),
    flags.string("output", None, "the file to write (default: figure-NAME.png, or .svg)"),
)
def figure(values: flags.Values) -> int:
    """Draw a figure of the theory, and print figures that verify it.

    Example:
        transformer-jax figure positions
        transformer-jax figure architecture --config=configs/seq2seq.py:bahdanau --output=bahdanau.svg
        transformer-jax figure masks --workdir=runs/m30k

    architecture: the modules of a model with shapes and parameter counts.
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
    stated = {"config": bool(values.config or flags.overrides_of(values)), "workdir": bool(values.workdir)}
    for name, is_stated in (stated | {"checkpoint": values["checkpoint"].present}).items():
        if is_stated and name not in figure.flags:
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
        if values["checkpoint"].present:
            raise ConfigError("--checkpoint: applies only to a run; give --workdir")
        return Subject(values.config, flags.resolve_config(values))
    config = run_config(values, workdir=values.workdir)
    run = ChosenRun(values.workdir, config, values.checkpoint)
    return Subject(with_addresses(values.workdir), config, lambda: open_runs([run]))

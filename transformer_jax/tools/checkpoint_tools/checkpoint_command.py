import shlex
import sys

from transformer_jax.commands import flags
from transformer_jax.commands.actions import Action, chosen_action
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, split_to_try
from transformer_jax.config import ConfigError, load_run_config
from transformer_jax.registry.python_files import plugin_flags
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runtime.startup import program_name


def _existing(run: str) -> RunDirectory:
    directory = RunDirectory(run)
    directory.require_run("RUN")
    return directory


def _ls(values: flags.Values, runs: list[str]) -> None:
    from transformer_jax.tools.checkpoint_tools.averages import checkpoint_table

    print(checkpoint_table(_existing(runs[0])))


def _info(values: flags.Values, runs: list[str]) -> None:
    from transformer_jax.tools.checkpoint_tools.averages import describe_checkpoint

    print(describe_checkpoint(_existing(runs[0]), values.checkpoint or "best", has_all=values.all))


def _average(values: flags.Values, runs: list[str]) -> None:
    source = _existing(runs[0])
    if not values.output:
        raise ConfigError("--output", "is required", "give a folder for the new run")
    if values.steps and values.present.keys() & {"count", "checkpoint"}:
        raise ConfigError("--steps", "says which checkpoints to average", "leave --count and --checkpoint out")
    from transformer_jax.checkpoints.reader import CheckpointReader
    from transformer_jax.tools.checkpoint_tools.averages import averaged_steps, write_average
    from transformer_jax.training.schedules import remark_on_average

    steps = averaged_steps(source, values.count, values.checkpoint or "last", values.steps)
    progress = CheckpointReader(source.checkpoints).progress(steps[-1])
    config = load_run_config(source.path)
    if remark := remark_on_average(config, steps, progress):
        print(remark, file=sys.stderr)
    written = write_average(source, steps, values.output)
    of = f"checkpoints {', '.join(map(str, steps))} of {source.path!s}"
    print(f"the mean of {of}; run directory {written.path}")
    run = f"{shlex.quote(str(written.path))}{plugin_flags()}"
    print(f"  {program_name()} evaluate --workdir={run} --split={split_to_try(config)}")


ACTIONS = {
    "ls": Action(_ls, "the folder of one run", 1, 1, ()),
    "info": Action(_info, "the folder of one run", 1, 1, ("checkpoint", "all")),
    "average": Action(_average, "the folder of one run", 1, 1, ("checkpoint", "count", "steps", "output")),
}


@flags.command(
    flags.arguments("ACTION RUN", f"{', '.join(ACTIONS)}, and the folder of the run"),
    flags.string("checkpoint", None, f"{CHECKPOINT_MEANING} (info: best, average: last)"),
    flags.boolean("all", False, "info: counters, and the parameters of modules inside modules"),
    flags.integer("count", 5, "average: number of checkpoints, up to --checkpoint", lower_bound=1),
    flags.strings("steps", [], "average: exactly these, for example 2520,3150,3775"),
    flags.string("output", None, "average: folder of the new run"),
)
def checkpoint(values: flags.Values) -> int:
    """List, describe or average the checkpoints of a run.

    Example:
        transformer-jax checkpoint ls      runs/m30k
        transformer-jax checkpoint info    runs/m30k --checkpoint=last
        transformer-jax checkpoint average runs/m30k --count=5 --output=runs/m30k-average

    ls: score, size and time of checkpoints, and damaged ones that were set aside. info: score,
    parameters by module, optimizer state, and digests of data and settings, with --all every array.
    average: a new run directory with the mean of several checkpoints, without optimizer state.
    """
    action, runs = chosen_action("checkpoint", ACTIONS, values)
    action.do(values, runs)
    return 0

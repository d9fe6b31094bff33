"""Look at the checkpoints of a run, compare two, average some, delete what is no longer needed.

Example:
    transformer-jax checkpoint ls      runs/m30k
    transformer-jax checkpoint info    runs/m30k --checkpoint=last
    transformer-jax checkpoint diff    runs/m30k:630 runs/m30k:last
    transformer-jax checkpoint average runs/m30k --count=5 --checkpoint=last --output=runs/m30k-average
    transformer-jax checkpoint average runs/m30k --steps=2520,3150,3775 --output=runs/m30k-average
    transformer-jax checkpoint prune   runs/m30k --keep_last=1 --keep_best=1 --dry_run

ls: every checkpoint with its score, size and time, which is best and last, and what was set aside as damaged.
info: what is in one: parameters module by module, optimizer state, counters, digests of the data and the settings.
diff: of two checkpoints, RUN or RUN:CHECKPOINT (best by default): parameters that one lacks or has in another shape, how far
apart the others are, and the settings that differ.
average: a new run directory with the mean of several checkpoints, for evaluate, translate and train --init_from. It has no
optimizer state, so no run resumes from it.
prune: deletes all but the last and the best, unless another process trains there.

The best is that with the best validation score (BLEU, or what the task selects by): the run's own, or what evaluate --watch
found where it measured none.
"""

import shlex
from collections.abc import Callable
from typing import NamedTuple

from absl import flags

from transformer_jax.commands.config import difference_text
from transformer_jax.commands.flag_parsing import define_arguments
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, split_checkpoint
from transformer_jax.config import ConfigError, difference, load_run_config
from transformer_jax.config.errors import nearest
from transformer_jax.config.plugins import plugin_flags
from transformer_jax.runtime.startup import program_name


class Action(NamedTuple):
    """An action of the command: its function, the number of runs that it takes, and the flags that it reads."""

    do: Callable[[flags.FlagValues, list[str]], None]
    runs: int
    flags: tuple[str, ...]


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_arguments(values, "ACTION RUN ...", f"{', '.join(ACTIONS)}, and the folder of the run; diff takes two")
    flags.DEFINE_string("checkpoint", None, f"{CHECKPOINT_MEANING} (info: best, average: last)", flag_values=values)
    flags.DEFINE_integer(
        "count", 5, "average: number of checkpoints, up to --checkpoint", flag_values=values, lower_bound=1
    )
    flags.DEFINE_list("steps", [], "average: exactly these, for example 2520,3150,3775", flag_values=values)
    flags.DEFINE_string("output", None, "average: folder of the new run", flag_values=values)
    flags.DEFINE_integer("keep_last", 1, "prune: number of the newest to keep", flag_values=values, lower_bound=0)
    flags.DEFINE_integer("keep_best", 1, "prune: number of the best to keep", flag_values=values, lower_bound=0)
    flags.DEFINE_boolean("dry_run", False, "prune: only print what would be deleted", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Runs the action of the first argument; returns 0."""
    name, *runs = values.arguments or [""]
    if name not in ACTIONS:
        near = nearest(name, ACTIONS, cutoff=0.5)
        hint = f"did you mean {near}?" if near else f"give one of {', '.join(ACTIONS)}, and then the folder of a run"
        raise ConfigError(f"checkpoint: {name!r} is not an action; {hint}")
    action = ACTIONS[name]
    if len(runs) != action.runs:
        wanted = "the folders of two runs" if action.runs == 2 else "the folder of one run"
        raise ConfigError(f"checkpoint {name}: takes {wanted}, found {' '.join(runs) or 'none'}")
    of_others = {flag for other in ACTIONS.values() for flag in other.flags} - set(action.flags)
    for flag in sorted(of_others):
        if values[flag].present:
            takes = ", ".join(f"--{each}" for each in action.flags) or "no flags"
            raise ConfigError(f"--{flag}: checkpoint {name} does not take it; it takes {takes}")
    action.do(values, runs)
    return 0


def _ls(values: flags.FlagValues, runs: list[str]) -> None:
    from transformer_jax.runs.checkpoint_tools import checkpoint_table
    from transformer_jax.runs.run_directory import RunDirectory

    run_directory = RunDirectory(runs[0])
    run_directory.require_run("RUN")
    print(checkpoint_table(run_directory))


def _info(values: flags.FlagValues, runs: list[str]) -> None:
    from transformer_jax.runs.checkpoint_tools import describe_checkpoint
    from transformer_jax.runs.run_directory import RunDirectory

    run_directory = RunDirectory(runs[0])
    run_directory.require_run("RUN")
    print(describe_checkpoint(run_directory, values.checkpoint or "best"))


def _diff(values: flags.FlagValues, runs: list[str]) -> None:
    from transformer_jax.runs.checkpoint_tools import (
        compare_parameters,
        difference_table,
        read_parameters,
        require_same_kind,
    )
    from transformer_jax.runs.run_directory import RunDirectory

    (left, of_left), (right, of_right) = (split_checkpoint(run, "RUN") for run in runs)
    folders = RunDirectory(left), RunDirectory(right)
    for folder in folders:
        folder.require_run("RUN")
    require_same_kind(*folders)
    (left_step, left_params), (right_step, right_params) = map(
        read_parameters, folders, (of_left or "best", of_right or "best")
    )
    found = compare_parameters(left_params, right_params)
    print(difference_table(found, f"{left}:{left_step}", f"{right}:{right_step}"))
    print("\n" + difference_text(difference(load_run_config(left), load_run_config(right)), left, right))


def _average(values: flags.FlagValues, runs: list[str]) -> None:
    from transformer_jax.runs.run_directory import RunDirectory

    source = RunDirectory(runs[0])
    source.require_run("RUN")
    if not values.output:
        raise ConfigError("--output: is required; give a folder for the new run")
    if values.steps and (values["count"].present or values["checkpoint"].present):
        raise ConfigError("--steps: says which checkpoints to average; leave --count and --checkpoint out")
    from transformer_jax.runs.checkpoint_tools import chosen_steps, write_average

    steps = chosen_steps(source, values.count, values.checkpoint or "last", values.steps)
    written = write_average(source, steps, values.output)
    print(f"the mean of checkpoints {', '.join(map(str, steps))} of {source.path}; run directory {written.path}")
    print(f"  {program_name()} evaluate --workdir={shlex.quote(str(written.path))}{plugin_flags()} --split=test")


def _prune(values: flags.FlagValues, runs: list[str]) -> None:
    from transformer_jax.checkpoints.format import bytes_in, remove
    from transformer_jax.checkpoints.selection import scored_checkpoints, selection_of
    from transformer_jax.runs.checkpoint_tools import bytes_text, count_text, to_remove
    from transformer_jax.runs.run_directory import RunDirectory
    from transformer_jax.runtime.object_store import with_addresses

    run_directory = RunDirectory(runs[0])
    run_directory.require_run("RUN")
    with run_directory.locked(f"prune: another process is training in {run_directory.path}; prune when it has ended"):
        stored = scored_checkpoints(run_directory)
        removed = to_remove(stored, values.keep_last, values.keep_best, selection_of(run_directory))
        freed = sum(bytes_in(each.folder) for each in removed)
        for each in removed:
            size = bytes_text(bytes_in(each.folder))
            if not values.dry_run:
                remove(each.folder)
            print(f"{'would delete' if values.dry_run else 'deleted'} {with_addresses(str(each.folder))}, {size}")
    kept = [str(each.step) for each in stored if each not in removed]
    done = "to delete" if values.dry_run else "deleted"
    print(f"{count_text(len(removed))}, {bytes_text(freed)}, {done}; kept: {', '.join(kept) or 'none'}")


ACTIONS = {
    "ls": Action(_ls, 1, ()),
    "info": Action(_info, 1, ("checkpoint",)),
    "diff": Action(_diff, 2, ()),
    "average": Action(_average, 1, ("checkpoint", "count", "steps", "output")),
    "prune": Action(_prune, 1, ("keep_last", "keep_best", "dry_run")),
}

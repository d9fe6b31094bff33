r"""Train a model, or resume a run that stopped.

Example:
    transformer-jax train --config=multi30k:tiny_hour --config.data.directory=multi30k --workdir=runs/m30k
    transformer-jax train --config=quickstart --workdir=runs/quickstart --config.training.num_updates=500

The run directory receives the resolved settings, the tokenizers, metrics (metrics.jsonl and TensorBoard) and checkpoints.
Where it already holds a run with the same settings, it resumes from its newest checkpoint, bit for bit. SIGINT (Ctrl-C)
and SIGTERM save and end, with exit status 130 and 143; the same command resumes. It may lie in an object store,
--workdir=s3://bucket/runs/a (docs/training.md).

With --init_from=runs/other (or runs/other:last, runs/other:5000) a new run starts from the parameters of another, with its
tokenizers; update count, schedule and optimizer start from zero. --config.init.rename and --config.init.leave_out say what is
renamed and what stays randomly initialized, --config.optimizer.freeze what is not trained; the patterns are
searched for in paths as `transformer-jax checkpoint info` shows them. What was taken is said at the start and kept in
run.json:
    transformer-jax train --config=multi30k:tiny_hour --config.data.directory=captions --workdir=runs/captions \
        --init_from=runs/m30k --config.optimizer.freeze='^encoder_|embedding' --config.optimizer.learning_rate=5e-4
Once it has a checkpoint the run resumes without --init_from too, or with the folder to which the other run was moved.

With --distributed several processes train one model, and all their devices are one mesh: one process a host on TPU pods and
Kubernetes, one a GPU under SLURM and Open MPI; these need nothing else. By hand, two processes:
    export JAX_COORDINATOR_ADDRESS=host0:8476 JAX_NUM_PROCESSES=2
    JAX_PROCESS_ID=0 transformer-jax train --distributed ...    (on host0)
    JAX_PROCESS_ID=1 transformer-jax train --distributed ...    (on the other)
"""

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from absl import flags

from transformer_jax.commands.flag_parsing import (
    define_config_flag,
    define_distributed_flag,
    overrides_of,
    required_config,
)
from transformer_jax.commands.run_flags import split_checkpoint
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.plugins import plugin_flags
from transformer_jax.runtime.startup import program_name

if TYPE_CHECKING:
    from transformer_jax.runs.hooks import ProfiledSteps
    from transformer_jax.runs.run import Outcome
    from transformer_jax.runs.run_directory import RunDirectory


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_config_flag(values)
    flags.DEFINE_string(
        "workdir", None, "folder of the run; made if it is not there", flag_values=values, required=True
    )
    meaning = "RUN[:CHECKPOINT]: start from the parameters of another run; sets init.run and init.checkpoint"
    flags.DEFINE_string("init_from", None, meaning, flag_values=values)
    meaning = "time that training may take, such as 20m or 2h: sizes the model for the corpus (data.source=text)"
    flags.DEFINE_string("budget", None, meaning, flag_values=values)
    meaning = "where --budget will not suffice: shorten makes fewer updates, stretch takes longer"
    flags.DEFINE_enum("budget_policy", None, ["shorten", "stretch"], meaning, flag_values=values)
    define_distributed_flag(values)
    flags.DEFINE_string(
        "profile_steps", None, "A:B: trace the updates from A to B into profile/ of the run", flag_values=values
    )


def run(values: flags.FlagValues) -> int:
    """Trains; 0 when finished or out of patience, 128 + the number of a signal that ended it with everything saved (130, 143),
    1 when the loss diverged.
    """
    if values.init_from is not None:
        source, checkpoint = split_checkpoint(values.init_from, "--init_from")
        values.config_override += [f"init.run={source}", f"init.checkpoint={checkpoint or 'best'}"]
    if values.budget_policy is not None:
        values.config_override += [f"training.budget_policy={values.budget_policy}"]
    from transformer_jax.data.corpora import with_languages
    from transformer_jax.tasks.sizing import sized

    found = sized(
        required_config(values), overrides_of(values), values.workdir, values.budget, is_alone=not values.distributed
    )
    if found.remark:
        print(found.remark, file=sys.stderr)
    config, remark = with_languages(found.config)
    if remark:
        print(remark, file=sys.stderr)
    config = replace(config, init=config.init.absolute(), data=config.data.absolute())
    from transformer_jax.runs.resumption import require_same_run, with_recorded_init

    require_same_run(config, values.workdir)
    config = with_recorded_init(config, values.workdir)
    require_ready(config, values.workdir, is_alone=not values.distributed)
    from transformer_jax.runs.hooks import ProfiledSteps

    profiled = ProfiledSteps.parse(values.profile_steps) if values.profile_steps is not None else None
    return train(config, values.workdir, profiled, values.distributed, found.record)


def train(
    config: ExperimentConfig,
    workdir: str,
    profiled: "ProfiledSteps | None" = None,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Trains, prints the result, and returns the exit status."""
    from transformer_jax.checkpoints.save_failure import SaveFailed, record_failure
    from transformer_jax.runs.run import TrainingDiverged
    from transformer_jax.runs.run_directory import RunDirectory
    from transformer_jax.runs.trainer import run_training
    from transformer_jax.runtime.distributed import ending_with_others, say, wait_until_all_are_done
    from transformer_jax.runtime.preemption import ending_at_once
    from transformer_jax.tools.pictures.curves import curves_at_end

    started, directory = time.perf_counter(), RunDirectory(workdir)
    try:
        with ending_with_others() if is_distributed else ending_at_once():
            with curves_at_end(directory, config):
                outcome = run_training(config, workdir, profiled=profiled, is_distributed=is_distributed, origin=origin)
            wait_until_all_are_done()
    except TrainingDiverged as error:
        print(error, file=sys.stderr)
        return 1
    except (SaveFailed, OSError) as error:
        print(record_failure(directory, error), file=sys.stderr)
        return 1
    say(summary(outcome, directory, config, time.perf_counter() - started))
    return 128 + outcome.signal if outcome.signal else 0


def summary(outcome: "Outcome", run: "RunDirectory", config: ExperimentConfig, seconds: float) -> str:
    """Summary of a run: its outcome, its folder, commands to try next."""
    from transformer_jax.runtime.object_store import with_addresses
    from transformer_jax.tasks.task import task_class

    if outcome.reason == "interrupted":
        when = f"interrupted at update {outcome.step} after {seconds / 60:.1f} minutes, everything is saved"
        return f"{when}; resume with:\n  {program_name()} {shlex.join(sys.argv[1:])}"
    selection = config.selection
    best = "" if outcome.best is None else f", best validation {selection.label} {selection.text(outcome.best)}"
    reason = {
        "finished": "finished",
        "patience": f"stopped: validation {selection.label} no longer improved",
        "stopped": "stopped after a validation, as asked",
    }[outcome.reason]
    workdir = f"{shlex.quote(str(run.path))}{plugin_flags()}"
    commands = (each.format(workdir=workdir) for each in task_class(config.task).next_commands)
    if not _has_test_split(config):
        commands = (each.replace("--split=test", "--split=validation") for each in commands)
    lines = [
        f"{reason} at update {outcome.step}{best}, {seconds / 60:.1f} minutes; run directory {run.path}",
        *(f"  WARNING: {sign}" for sign in outcome.signs),
        f"  {outcome.time_spent}",
        f"  curves: {run.curves}",
        *(f"  {program_name()} {command}" for command in commands),
    ]
    return with_addresses("\n".join(lines))


def _has_test_split(config: ExperimentConfig) -> bool:
    from transformer_jax.tasks.task import task_class

    if config.data.source == "tfds":
        return True
    try:
        task_class(config.task).require_split(config, "test")
    except DataError:
        return False
    return True


def require_ready(config: ExperimentConfig, workdir: str, *, is_alone: bool) -> None:
    """Raises ConfigError and DataError, before JAX starts, when the folder is locked or cannot be written, or a split cannot be
    read: its files, their encoding, and as many lines on both sides. Of several processes, which are not
    ``is_alone``, only the first locks the folder, and later.
    """
    from transformer_jax.data.corpora import require_readable
    from transformer_jax.runs.run_directory import RunDirectory, require_own
    from transformer_jax.runs.trackers import require_libraries
    from transformer_jax.runtime.atomic_files import require_writable

    require_libraries(config)
    if config.data.source == "text":
        needed = ["train", *["validation"] * bool(config.training.evaluate_every)]
        named = [split for split in ("validation", "test") if getattr(config.data, split, "")]
        for split in dict.fromkeys([*needed, *named]):
            require_readable(config, split, is_whole=True)
    # The folder comes last: a run that is refused leaves none.
    require_own(RunDirectory(workdir).path)
    if not is_alone:
        require_writable(workdir, "--workdir")
        return
    with RunDirectory(workdir).locked():
        pass

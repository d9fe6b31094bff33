import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import commands_to_try, split_checkpoint, split_to_try
from transformer_jax.config import ExperimentConfig
from transformer_jax.errors import StoreError, is_out_of_memory
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.files.paths import in_store
from transformer_jax.run_directory.layout import RunDirectory, require_own
from transformer_jax.runs.trackers import require_libraries
from transformer_jax.runtime.startup import program_name

if TYPE_CHECKING:
    from transformer_jax.checkpoints.save_failure import SaveFailed
    from transformer_jax.runs.hooks import ProfiledSteps
    from transformer_jax.runs.run import Outcome

# A command may take this much longer than its run before the difference is reported.
SECONDS_OF_A_START = 6.0


@flags.command(
    flags.config,
    flags.string("workdir", None, "folder of the run; made if it does not exist", required=True),
    flags.string("init_from", None, "RUN[:CHECKPOINT]: start from its parameters; sets init.run and init.checkpoint"),
    flags.string("budget", None, "training time, such as 20m or 2h: sizes the model for the corpus (data.source=text)"),
    flags.enum(
        "budget_policy", None, ["shorten", "stretch"], "if --budget is too short: make fewer updates, or take longer"
    ),
    flags.distributed,
    flags.string("profile_steps", None, "A:B: trace the updates from A to B into profile/ of the run"),
)
def train(values: flags.Values) -> int:
    r"""Train a model, or resume a run that stopped.

    Example:
        transformer-jax train --config=text --config.data.train=corpus/train.en,corpus/train.de \
            --config.data.validation=corpus/dev.en,corpus/dev.de --budget=20m --workdir=runs/mine
        transformer-jax train --config=multi30k:tiny_hour --config.data.directory=multi30k \
            --workdir=runs/m30k
        transformer-jax train --config=quickstart --workdir=runs/quickstart

    The first trains on your text, for the time that you have. The run directory receives the
    resolved settings, the tokenizers, metrics (metrics.jsonl and TensorBoard) and checkpoints. If
    it already has a run with the same settings, that resumes from its newest checkpoint, bit for
    bit. SIGINT (Ctrl-C) and SIGTERM save and end, with exit status 130 and 143. The same command
    resumes. It may be in an object store, --workdir=s3://bucket/runs/a (docs/training.md).

    With --init_from=runs/other (or runs/other:last, runs/other:5000) a new run starts from the
    parameters of another, with its tokenizers. Update count, schedule and optimizer start from
    zero. --config.init.rename renames parameters, --config.init.leave_out leaves them randomly
    initialized, and --config.optimizer.freeze keeps them untrained:
        transformer-jax train --config=multi30k:tiny_hour --config.data.directory=captions \
            --workdir=runs/captions --init_from=runs/m30k \
            --config.optimizer.freeze='^encoder_|embedding' --config.optimizer.learning_rate=5e-4

    With --distributed several processes train one model, and all their devices form one mesh: one
    process a host on TPU pods and Kubernetes, one a GPU under SLURM and Open MPI, all of which JAX
    recognizes. Elsewhere, two processes:
        export JAX_COORDINATOR_ADDRESS=host0:8476 JAX_NUM_PROCESSES=2
        JAX_PROCESS_ID=0 transformer-jax train --distributed ...    (on host0)
        JAX_PROCESS_ID=1 transformer-jax train --distributed ...    (on the other)
    """
    add_flags_to_overrides(values)
    from transformer_jax.runs.train_run import settings_to_train

    recipe, overrides = flags.required_config(values), flags.overrides_of(values)
    config, origin = settings_to_train(
        recipe, overrides, values.workdir, values.budget, is_distributed=values.distributed
    )
    require_ready(config, values.workdir, is_distributed=values.distributed)
    from transformer_jax.runs.hooks import ProfiledSteps

    profiled = ProfiledSteps.parse(values.profile_steps) if values.profile_steps is not None else None
    return train_and_report(config, values.workdir, profiled, values.distributed, origin)


def add_flags_to_overrides(values: flags.Values) -> None:
    """Add the settings of --init_from and --budget_policy to the overrides."""
    if values.init_from is not None:
        source, checkpoint = split_checkpoint(values.init_from, "--init_from")
        checkpoint = checkpoint or dict(flags.overrides_of(values)).get("init.checkpoint", "best")
        values.config_override += [f"init.run={source}", f"init.checkpoint={checkpoint}"]
    if values.budget_policy is not None:
        values.config_override += [f"training.budget_policy={values.budget_policy}"]


def train_and_report(
    config: ExperimentConfig,
    workdir: str,
    profiled: "ProfiledSteps | None" = None,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Train, print the result, and return the exit status."""
    import jax

    from transformer_jax.checkpoints.save_failure import end_after_failed_save
    from transformer_jax.runs.hooks import Profile
    from transformer_jax.runs.run import TrainingDiverged
    from transformer_jax.runs.train_run import train_run
    from transformer_jax.runtime.distributed import is_first, say
    from transformer_jax.runtime.out_of_memory import ending_without_memory
    from transformer_jax.runtime.preemption import ending_at_once
    from transformer_jax.runtime.process_group import ending_with_others

    started, directory = time.perf_counter(), RunDirectory(workdir)
    try:
        with ExitStack() as stack:
            stack.enter_context(ending_with_others() if is_distributed else ending_at_once())
            stack.enter_context(
                ending_without_memory(lambda: _without_memory(directory), watches_aborts=not is_distributed)
            )
            profiles = [stack.enter_context(closing(Profile(profiled)))] if profiled else []
            outcome = train_run(config, workdir, profiles, is_distributed=is_distributed, origin=origin)
    except TrainingDiverged as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        failure = _recorded_failure(directory, error, is_written=not is_distributed or is_first())
        if is_distributed and jax.process_count() > 1:
            end_after_failed_save(lambda: failure)
        print(f"transformer-jax: {failure}", file=sys.stderr)
        return failure.status
    say(summary(outcome, directory, config, time.perf_counter() - started))
    return 128 + outcome.signal if outcome.signal else 0


def _recorded_failure(run: RunDirectory, error: Exception, is_written: bool) -> "SaveFailed":
    """Record and return the reason why nothing more can be saved. Raises other errors again."""
    from transformer_jax.checkpoints.disk import DiskFolder
    from transformer_jax.checkpoints.save_failure import SaveFailed, failed_in_store, is_disk_full

    is_gone = not in_store(run.path) and not run.path.is_dir()
    if is_out_of_memory(error):
        failure = SaveFailed(_without_memory(run))
    elif isinstance(error, SaveFailed):
        failure = error
    elif isinstance(error, StoreError):
        failure = failed_in_store(str(error), is_outage=error.is_outage)
    elif isinstance(error, OSError) and (is_disk_full(error) or is_gone):
        failure = DiskFolder(run.checkpoints).failure(error)
    else:
        raise error
    if is_written and not is_gone:
        with suppress(OSError, StoreError):
            if in_store(run.path) and run.lock_file.exists():
                # Another process took the run over.
                return failure
            steps = run.checkpoint_steps()
            run.write_outcome(step=steps[-1] if steps else 0, reason="failed", problem=str(failure))
    return failure


def _without_memory(run: RunDirectory) -> str:
    """Return the message of a run that ran out of memory."""
    steps = run.checkpoint_steps()
    return (
        f"{run.path}: out of memory; newest whole checkpoint: {steps[-1] if steps else 'none'}. Give the "
        "run more memory and run the same command, or start a new one that needs less, with batching.accumulation_steps=2"
    )


def summary(outcome: "Outcome", run: RunDirectory, config: ExperimentConfig, seconds: float) -> str:
    """Return the outcome of a run, its folder, and commands to try next, as text."""
    minutes, here = f"{max(outcome.seconds, seconds) / 60:.1f} minutes", f"{seconds / 60:.1f}"
    if outcome.seconds - seconds > SECONDS_OF_A_START:
        minutes = f"{minutes}, {here} of them since the resume"
    if outcome.reason == "interrupted":
        when = f"interrupted at update {outcome.step} after {minutes}, everything is saved"
        return f"{when}; resume with:\n  {program_name()} {shlex.join(sys.argv[1:])}"
    selection = config.selection
    best = "" if outcome.best is None else f", best validation {selection.score(outcome.best, outcome.basis)}"
    reason = {
        "finished": "finished",
        "patience": f"stopped: validation {selection.label} no longer improved",
        "stopped": "stopped by a callback",
    }[outcome.reason]
    has_curves = False
    with suppress(StoreError):
        has_curves = run.curves.is_file()
    lines = [
        f"{reason} at update {outcome.step}{best}, {minutes}; run directory {run.path}",
        *(f"  WARNING: {sign}" for sign in outcome.signs),
        f"  {outcome.time_spent}",
        *([f"  curves: {run.curves}"] if has_curves else []),
        *(f"  {command}" for command in commands_to_try(config, run.path, evaluated=split_to_try(config))),
    ]
    return "\n".join(lines)


def require_ready(config: ExperimentConfig, workdir: str, *, is_distributed: bool) -> None:
    """Raise ConfigError and DataError, before JAX starts, when a run cannot begin.

    The folder is locked or cannot be written, or a split has missing files, bad encoding or sides
    of different length. Process 0 of a distributed run locks the folder later.
    """
    from transformer_jax.data.corpora import require_readable

    require_libraries(config)
    if config.data.store:
        from transformer_jax.data.stores import finished_manifest

        finished_manifest(config.data.store)
    if config.data.source in ("text", "mixture"):
        needed = [*["train"] * (not config.data.store), *["validation"] * bool(config.training.evaluate_every)]
        listed = [split for split in ("validation", "test") if getattr(config.data, split, "")]
        for split in dict.fromkeys([*needed, *listed]):
            require_readable(config, split, is_whole=True)
    # The folder comes last: a run that is refused leaves none.
    directory = RunDirectory(workdir)
    require_own(directory.path)
    if is_distributed or in_store(directory.path):
        require_writable(directory.path, "--workdir")
        return
    with directory.locked():
        pass

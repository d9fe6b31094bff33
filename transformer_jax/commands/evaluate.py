"""Translate a whole split with a trained model and score it against the raw references.

Example:
    transformer-jax evaluate --workdir=runs/m30k --split=test
    transformer-jax evaluate --workdir=runs/m30k --split=test --checkpoint=last --average=5 --config.decoding.beam_width=5
    transformer-jax evaluate --workdir=runs/a --ensemble=runs/b,runs/c:4000
    transformer-jax evaluate --workdir=runs/m30k --watch

Prints a table and writes, into the run directory, evaluation-SPLIT-STEP.json and the translations, one a line, beside it.
Settings of decoding can be changed, and are then part of the name; so can the devices and the place of the data. Everything
else is the run's. With --ensemble the models of several runs, of whatever kind, are scored as one: every next token has the
mean of their probabilities. They must share their tokenizers; decoding, devices and data are those of --workdir. The names
of the results say who took part: evaluation-SPLIT-STEP-ensemble+RUN-STEP+RUN-STEP.json, where a RUN that lies elsewhere than
beside --workdir has a digest of its path.

With --watch every checkpoint of a run that another process trains is scored as it comes, on the whole of --split (there:
validation), so that the run can do without (--config.training.evaluate_every=0). Give this process a device of its own:
CUDA_VISIBLE_DEVICES, or JAX_PLATFORMS=cpu. evaluate-SPLIT/ in the run directory gets metrics.jsonl, with the keys of the
run's own, and TensorBoard events; --checkpoint=best obeys it where the run scored nothing. The run deletes all
but its last training.keep_last checkpoints, the best or not: keep as many as you may want. Ends with the run; one that was
interrupted or died is waited for. Ctrl-C ends it too, and the same command resumes with the checkpoints that were not scored.
"""

import json
import shlex
import signal
from dataclasses import replace
from functools import partial

from absl import flags

from transformer_jax.commands.flag_parsing import define_distributed_flag
from transformer_jax.commands.run_flags import chosen_runs, define_ensemble_flag, define_run_flags, run_config
from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config
from transformer_jax.runtime.program_name import program_name


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    define_ensemble_flag(values)
    define_distributed_flag(values)
    flags.DEFINE_boolean("json", False, "print JSON instead of text", flag_values=values)
    meaning = "train, validation, test, or a name that the data has; for --watch validation if not given"
    flags.DEFINE_string("split", "test", meaning, flag_values=values)
    flags.DEFINE_integer("examples", 5, "how many translations to print beside their references", flag_values=values)
    flags.DEFINE_string("output", None, "folder for the results (default: the run directory)", flag_values=values)
    flags.DEFINE_boolean("watch", False, "score every checkpoint of a run in progress as it comes", flag_values=values)
    meaning = "with --watch: how long to wait before looking for checkpoints again"
    flags.DEFINE_float("poll_seconds", 30.0, meaning, flag_values=values, lower_bound=0.1)


def run(values: flags.FlagValues) -> int:
    """Scores; 0."""
    config = run_config(values)
    if values.watch:
        return _watch(values, config)
    if config.task != "translation":
        return _evaluate_without_translations(values, config)
    chosen = chosen_runs(values, config)
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.runtime.distributed import is_first, join_processes, require_same
    from transformer_jax.tasks.saved_evaluations import evaluation_stem, save_evaluation
    from transformer_jax.tasks.translation.trained_ensemble import (
        ensemble_ending,
        ensemble_of,
        open_chosen_runs,
        other_members,
    )

    folder = require_writable(values.output or values.workdir, "--output" if values.output else "--workdir")
    if values.distributed:
        join_processes()
        # JAX takes it to find an update to stop after; here there is none.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        same = chosen, values.split, values.average
        require_same(repr(same), "--distributed: the processes were started with different flags; use the same command")
    start_jax(config.data.cache_directory)
    runs = open_chosen_runs(chosen, values.average)
    trained = ensemble_of(runs)
    step, averaged = trained.steps[-1], len(trained.steps)
    report, hypotheses = trained.evaluator.evaluate(trained.params, values.split)
    members = other_members(chosen, runs)
    report = replace(report, checkpoint_step=step, averaged_checkpoints=averaged, ensemble=members)
    if not is_first():
        return 0

    name = evaluation_stem(report.split, step, averaged, load_run_config(values.workdir), config)
    stem = folder / f"{name}{ensemble_ending(values.workdir, report.ensemble)}"
    save_evaluation(stem, report, hypotheses)
    if values.json:
        print(json.dumps(report.to_json(), ensure_ascii=False))
        return 0
    pairs = trained.evaluator.pairs(report.split, max(values.examples, 1))
    for pair, hypothesis in zip(pairs[: values.examples], hypotheses, strict=False):
        print(f"source      {pair.source}\ntranslation {hypothesis}\nreference   {pair.target}\n")
    print(report.table())
    print(f"\nrun directory {values.workdir}\n  translations {stem}.txt\n  scores       {stem}.json\nnext:")
    print(f"  {program_name()} attention --workdir={shlex.quote(values.workdir)} --text={shlex.quote(pairs[0].source)}")
    together_with = f" --ensemble={','.join(report.ensemble)}" if report.ensemble else ""
    print(f"  {program_name()} translate --workdir={shlex.quote(values.workdir)}{together_with}")
    return 0


def _evaluate_without_translations(values: flags.FlagValues, config: ExperimentConfig) -> int:
    """Scores a run of another task; 0."""
    for name in ("ensemble", "examples", "distributed"):
        if values[name].present:
            raise ConfigError(f"--{name}: is for translation, and {values.workdir} is a run of task={config.task}")
    from transformer_jax.checkpoints.run_directory import write_json
    from transformer_jax.runs.restore import restore_params
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.saved_evaluations import evaluation_stem

    folder = require_writable(values.output or values.workdir, "--output" if values.output else "--workdir")
    start_jax(config.data.cache_directory)
    task, params, steps = restore_params(values.workdir, config, values.checkpoint, values.average)
    found = task.evaluate(params, values.split)
    report = {"checkpoint_step": steps[-1], "averaged_checkpoints": len(steps), **found.to_json()}
    split = config.data.split_name(values.split)
    name = evaluation_stem(split, steps[-1], len(steps), load_run_config(values.workdir), config)
    write_json(folder / f"{name}.json", report)
    if values.json:
        print(json.dumps(report, ensure_ascii=False))
        return 0
    print(f"{found.table()}\n\nrun directory {values.workdir}\n  scores {folder / name}.json")
    return 0


def _watch(values: flags.FlagValues, config: ExperimentConfig) -> int:
    """Scores every checkpoint of a run until it ends; 0."""
    needless = ("checkpoint", "average", "ensemble", "distributed", "json", "examples")
    for name in needless:
        if values[name].present:
            raise ConfigError(
                f"--{name}: --watch scores each checkpoint alone, in one process, and keeps a log; leave it out"
            )
    from transformer_jax.checkpoints.run_directory import RunDirectory
    from transformer_jax.runs.watch import seconds, watch
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.runtime.compilation_cache import start_jax

    run, split = RunDirectory(values.workdir), values.split if values["split"].present else "validation"
    folder = require_writable(values.output or values.workdir, "--output" if values.output else "--workdir")
    folder /= run.watched(split).name
    training = config.training
    if training.evaluate_every == 0 and training.num_updates // training.checkpoint_every > training.keep_last:
        print(f"the run keeps its last {training.keep_last} checkpoints only, the best or not (training.keep_last)")
    start_jax(config.data.cache_directory)
    watch(run, config, split, folder, pause=seconds(values.poll_seconds), say=partial(print, flush=True))
    print(f"the run has ended; scores: {folder / 'metrics.jsonl'}")
    return 0

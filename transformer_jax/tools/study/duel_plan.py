"""The plan of a duel: the length of each contender's runs, counted or measured, and the sweep that trains them.

``duel.json`` in the folder of the duel keeps it, so that the same command resumes, and one with more ideas adds to it.
"""

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from transformer_jax.config import ConfigError, ExperimentConfig, resolve
from transformer_jax.config.optimization import decays
from transformer_jax.files.atomic_files import locked, write_whole
from transformer_jax.runs.goodput import TRAINING
from transformer_jax.runs.run import Position, RunParts
from transformer_jax.runs.trainer import run_training
from transformer_jax.runtime.hardware import resolve_for_device, settings_on, start_jax
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.tools.preflight.compiled_program import bytes_on_a_device, product_flops, without_recomputation
from transformer_jax.tools.sizing.plans import seconds_of
from transformer_jax.tools.study.contenders import BASE, OFF, Contender
from transformer_jax.tools.study.sweeps import Sweep
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import count_parameters, param_shapes, without_loss_terms
from transformer_jax.training.update import Update

VALIDATIONS, WIDTH_MULTIPLE, MOST_WIDENED = 8, 8, 16
# A pilot: updates before the clock starts, updates and seconds that it takes at least, rounds where
# the time counts.
FIRST_UPDATES, LEAST_UPDATES, LEAST_SECONDS, ROUNDS = 3, 10, 3.0, 3
COUNTED_BATCHES, UNSTEADY = 64, 1.2
SWEEP_FILE = '''"""Runs of a duel: sweep.py:N trains N seeds."""

from pathlib import Path

from transformer_jax.tools.study.duel_plan import sweep_of


def get_sweep(seeds):
    return sweep_of(Path(__file__).parent, seeds)
'''


@dataclass(frozen=True)
class Cost:
    """Parameters; FLOPs, bytes of memory and measured seconds of an update, on the same batches for all.

    ``load``: processes that wanted a core while the seconds were measured, per core (load average over a minute).
    """

    parameters: int
    flops: float
    memory: int
    seconds: float
    load: float = 0.0


@dataclass(frozen=True)
class Planned:
    """A contender with its cost, the ``updates`` that its budget pays, and the settings that follow."""

    contender: Contender
    cost: Cost
    updates: int
    settings: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """The conditions of a duel, which stay the same in its folder, and the contenders planned so far, by name.

    ``plugins``: the digests of files that ``--plugin`` named.
    """

    recipe: str
    overrides: list[list[str]]
    equal: str
    budget: str
    metric: str
    planned: dict[str, Planned] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)

    @property
    def num_ideas(self) -> int:
        """The number of ideas that were ever planned: each counts as a test."""
        return len(self.planned.keys() - {BASE})

    def config_of(self, contender: Contender, more: Mapping[str, str] | None = None) -> ExperimentConfig:
        stated = [(key, text) for key, text in self.overrides]
        return resolve(self.recipe, stated, {**contender.settings, **(more or {})})

    def write(self, workdir: Path) -> None:
        write_whole(workdir / "duel.json", json.dumps(asdict(self), indent=1) + "\n")
        write_whole(workdir / "sweep.py", SWEEP_FILE)


def read_plan(workdir: Path) -> Plan | None:
    """Return the plan in a folder; None if there is none. Raises ConfigError for one of an older version."""
    file = workdir / "duel.json"
    if not file.is_file():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    if "tune" in content:
        raise ConfigError("--workdir", f"{file} is of an older version", "use another folder")
    for name, each in content["planned"].items():
        contender = Contender(**each["contender"])
        content["planned"][name] = Planned(contender, Cost(**each["cost"]), each["updates"], each["settings"])
    return Plan(**content)


def require_same_duel(old: Plan, new: Plan, contenders: Sequence[Contender]) -> None:
    """Raise ConfigError when a folder holds a duel under other conditions, or an idea changed since it was planned."""
    for name in ("recipe", "overrides", "equal", "budget", "metric"):
        before, now = getattr(old, name), getattr(new, name)
        if name == "overrides":
            before, now = (dict(each) for each in (before, now))
        if before != now:
            problem = f"the folder holds a duel with {name}={before!r}, and this command has {now!r}"
            raise ConfigError("--workdir", problem, "use another folder")
    for file, digest in new.plugins.items():
        if old.plugins.get(file, digest) != digest:
            raise ConfigError("--plugin", f"{file} changed since the duel began", "use another folder")
    for each in contenders:
        if each.name in old.planned and old.planned[each.name].contender != each:
            raise ConfigError(
                "--ideas", f"{each.name}: its file or settings changed since it was planned", "use another folder"
            )


def sweep_of(workdir: Path, seeds: str) -> Sweep:
    """Return the runs of a planned duel, with this number of seeds."""
    plan = read_plan(workdir)
    if plan is None:
        raise ConfigError(workdir, "no duel.json", "transformer-jax duel writes it")
    rows = {name: each.contender.settings | each.settings for name, each in plan.planned.items()}
    numbers = tuple(range(int(seeds)))
    return Sweep(plan.recipe, dict(plan.overrides), rows, numbers, metric=plan.metric, are_seeds_paired=True)


def make_plan(plan: Plan, contenders: Sequence[Contender], workdir: Path, say: Callable[[str], None]) -> None:
    """Add the contenders that are new to the plan in the folder, each after a pilot run of seconds.

    Raises ConfigError when a contender cannot run, its parameters cannot be matched, or another process plans this duel.
    """
    problem = "another process plans this duel; give the command again when it is done"
    with locked(workdir / "duel.lock", ConfigError("--workdir", problem)):
        plan = read_plan(workdir) or plan
        base = contenders[0]
        start_jax(plan.config_of(base).data.cache_directory)
        new = [each for each in contenders if each.name not in plan.planned]
        # Times compare only where the base takes turns.
        tried = [base, *(each for each in new if each != base)] if plan.equal == "time" and new else new
        is_matched = plan.equal == "parameters"
        widths = {each.name: _width(plan, base, each) if is_matched and each != base else {} for each in tried}
        costs = _costs(plan, tried, widths, say)
        for each in new:
            cost, before = costs[each.name], plan.planned.get(base.name)
            if before:
                base_cost = costs.get(base.name, before.cost)
                ratios = {"flops": base_cost.flops / cost.flops, "time": base_cost.seconds / cost.seconds}
                updates = round(before.updates * ratios.get(plan.equal, 1.0))
            elif plan.budget:
                updates = int(seconds_of(plan.budget) / cost.seconds)
            else:
                updates = plan.config_of(each).training.num_updates
            if updates < VALIDATIONS:
                raise ConfigError("--budget", f"pays {updates} updates of {each.name}", f"give at least {VALIDATIONS}")
            settings = widths[each.name] | _length(plan, each, updates)
            # Raises where the settings exclude each other.
            plan.config_of(each, settings)
            plan = replace(plan, planned={**plan.planned, each.name: Planned(each, cost, updates, settings)})
            plan.write(workdir)
            counts = f"{cost.parameters:,} parameters, {cost.flops:.3g} FLOPs and {1e3 * cost.seconds:.0f} ms an update"
            say(f"{each.name}: {counts}: {updates:,} updates")


def _length(plan: Plan, contender: Contender, updates: int) -> dict[str, str]:
    """Return the settings of a run of ``updates``: validations at equal shares, and a warm-up that
    keeps its share, unless stated.
    """
    config, every = plan.config_of(contender), -(-updates // VALIDATIONS)
    found = {
        "training.evaluate_every": every,
        "training.checkpoint_every": every,
        "training.log_every": min(config.training.log_every, every),
        "training.keep_last": 1,
    }
    together = dict.fromkeys(OFF, 0) | {"training.num_updates": updates}
    warmup, length = config.optimizer.warmup_updates, config.training.num_updates
    if updates != length and decays(config.optimizer.schedule):
        found["optimizer.warmup_updates"] = max(round(warmup * updates / length), 1)
    stated = contender.settings.keys() | {key for key, _ in plan.overrides}
    found = {key: value for key, value in found.items() if key not in stated}
    return {key: str(value) for key, value in (found | together).items()}


def _width(plan: Plan, base: Contender, contender: Contender) -> dict[str, str]:
    """Return the feed-forward width, a multiple of 8, with which a contender has the parameters of the base."""
    config = plan.config_of(contender)
    if not hasattr(config.model, "d_ff"):
        raise ConfigError(
            "--equal=parameters", "matches model.d_ff, which this model does not have", "use another budget"
        )

    def count(each: Contender, more: dict[str, str]) -> int:
        found = resolve_for_device(plan.config_of(each, more), lambda: settings_on(jax.devices()[0]))
        objective = objective_of(found, make_mesh(config.mesh))
        return count_parameters(without_loss_terms(param_shapes(objective.init_params)))

    @cache
    def with_width(width: int) -> int:
        return count(contender, {"model.d_ff": str(width)})

    start, wanted, own = config.model.d_ff, count(base, {}), count(contender, {})
    if own == wanted:
        return {}
    # Parts may round the width, so the parameters are a step function of it.
    first, last = (WIDTH_MULTIPLE, start) if own > wanted else (start - start % WIDTH_MULTIPLE, MOST_WIDENED * start)
    widths = range(max(first, WIDTH_MULTIPLE), last + WIDTH_MULTIPLE, WIDTH_MULTIPLE)
    index = bisect_left(widths, wanted, key=with_width)
    if index == len(widths) or (index == 0 and with_width(widths[0]) != wanted):
        problem = f"no model.d_ff gives {contender.name} the {wanted:,} parameters of the base"
        raise ConfigError("--equal=parameters", problem, "use another budget")
    return {
        "model.d_ff": str(min(widths[max(index - 1, 0) : index + 1], key=lambda width: abs(with_width(width) - wanted)))
    }


def _costs(
    plan: Plan, contenders: Sequence[Contender], widths: Mapping[str, dict[str, str]], say: Callable[[str], None]
) -> dict[str, Cost]:
    """Return the cost of each contender, measured in turn; of several rounds the fastest counts."""
    counts: dict[str, tuple[int, float, int]] = {}
    seconds: dict[str, list[float]] = {}
    loads: dict[str, float] = {}
    updates = 0
    for number in range(ROUNDS if plan.equal == "time" else 1):
        for each in contenders:
            say(f"pilot of {each.name} ...")
            config = plan.config_of(each, widths[each.name])
            never, pilot = config.training.num_updates, _Pilot(updates, is_first=number == 0)
            # The first one evaluates once, decodes and saves: the dry run of every run.
            training = replace(config.training, checkpoint_every=never)
            training = replace(
                training, evaluate_every=never * (number == 0), trackers="jsonl", patience=0, budget_seconds=0.0
            )
            with TemporaryDirectory() as folder:
                outcome = run_training(replace(config, training=training), folder, [pilot])
            if outcome.reason == "interrupted":
                raise KeyboardInterrupt(outcome.signal)
            # All make the same updates, on the same batches.
            updates = updates or pilot.updates
            counts.setdefault(each.name, pilot.counts)
            seconds.setdefault(each.name, []).append(pilot.seconds)
            loads[each.name] = max(loads.get(each.name, 0.0), os.getloadavg()[0] / (os.cpu_count() or 1))
    for name, times in seconds.items():
        if max(times) > UNSTEADY * min(times):
            measured = f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f} ms an update"
            say(f"WARNING: pilots of {name} took {measured}: other programs may use this machine")
    return {name: Cost(*counts[name], min(times), loads[name]) for name, times in seconds.items()}


class _Pilot:
    """A hook that times ``updates`` updates of a run (0: seconds of them), counts if it ``is_first``, and stops the run."""

    def __init__(self, updates: int, *, is_first: bool) -> None:
        self.updates, self._is_first, self._is_over = updates, is_first, False
        self.seconds, self._start = 0.0, 0.0
        self.counts = 0, 0.0, 0

    def __call__(self, run: RunParts, position: Position) -> None:
        spent, first = run.clock.total(TRAINING), min(FIRST_UPDATES, position.num_updates // 2)
        made, seconds = position.number - first, spent - self._start
        if made <= 0:
            self._start = spent
            return
        is_enough = made >= self.updates if self.updates else made >= LEAST_UPDATES and seconds >= LEAST_SECONDS
        if not self._is_over and (is_enough or position.number == position.num_updates):
            self._is_over, self.updates, self.seconds = True, made, seconds / made
            self.counts = _count(run) if self._is_first else self.counts
            position.stop()


def _count(run: RunParts) -> tuple[int, float, int]:
    """Parameters, FLOPs of an update (mean over the first batches), bytes of its state and program for its largest batch.

    Parameters are those of the model, without loss terms. FLOPs are preflight's: matrix products
    and convolutions, forward, backward and in the optimizer, without recomputation.
    """
    config, update = without_recomputation(run.config), run.update
    sizes = run.task.tokenizers.source.vocabulary_size, run.task.tokenizers.target.vocabulary_size
    objective = task_class(config.task).new_objective(config, sizes, update.mesh)
    plain_update = Update(config, objective.loss, objective.init_params, update.mesh, objective.update_rule)
    flops: dict[Any, int] = {}
    total = 0
    for batch in islice(run.data.batches(0), COUNTED_BATCHES):
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), batch)
        key = tuple(leaf.shape for leaf in jax.tree.leaves(shapes))
        if key not in flops:
            arguments = plain_update.state_shapes, shapes, plain_update.hyperparameter_shapes
            flops[key] = product_flops(plain_update.step, *arguments)
        total += flops[key]
    largest = max(run.data.batch_shapes(0), key=lambda shapes: sum(leaf.size for leaf in jax.tree.leaves(shapes)))
    memory: Any = update.lower(largest).compile().memory_analysis()
    num_bytes = bytes_on_a_device(update.state_shapes) + (memory.temp_size_in_bytes if memory else 0)
    return count_parameters(without_loss_terms(update.state_shapes.params)), total / COUNTED_BATCHES, num_bytes

"""The plan of a duel: the number of updates of every contender, and the sweep that trains them.

``duel.json`` in the folder of the duel keeps the plan. So the same command resumes, and a command
with more ideas adds to it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from transformer_jax.runtime.hardware import start_jax
from transformer_jax.tasks.task import task_class
from transformer_jax.tools.preflight.compiled_program import bytes_on_a_device, product_flops, without_recomputation
from transformer_jax.tools.sizing.plan import seconds_of
from transformer_jax.tools.study.contenders import BASE, OFF, Contender
from transformer_jax.tools.study.sweeps import Sweep
from transformer_jax.training.state import count_parameters, without_loss_terms
from transformer_jax.training.update import Update

# The number of validations in a run.
VALIDATIONS = 8
# Updates of a pilot before its clock starts: they compile, and fill the buffers of the data.
FIRST_UPDATES = 3
# Updates and seconds that a pilot takes at least.
LEAST_UPDATES = 10
LEAST_SECONDS = 3.0
# Pilots of a contender with --equal=time, of which the fastest counts.
ROUNDS = 3
# The ratio of the slowest to the fastest of them from which a warning is printed.
UNSTEADY = 1.2
# Batches over which FLOPs are averaged.
COUNTED_BATCHES = 64
SWEEP_FILE = '''"""Runs of a duel: sweep.py:N trains N seeds."""

from pathlib import Path

from transformer_jax.tools.study.duel_plan import sweep_of


def get_sweep(seeds):
    return sweep_of(Path(__file__).parent, seeds)
'''


@dataclass(frozen=True)
class Cost:
    """The cost of an update, on the same batches for all contenders.

    ``memory`` is in bytes. ``load`` is the load average over a minute, per core, during the pilot.
    """

    parameters: int
    flops: float
    memory: int
    seconds: float
    load: float = 0.0


@dataclass(frozen=True)
class Planned:
    """A contender with its cost, the ``updates`` that its budget pays, and its settings."""

    contender: Contender
    cost: Cost
    updates: int
    settings: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """The conditions of a duel, which stay the same in its folder, and its contenders by name.

    ``plugins``: digests of the files of ``--plugin``.
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
        """The number of ideas that were ever planned, which all count as tests."""
        return len(self.planned.keys() - {BASE})

    def config_of(self, contender: Contender, more: Mapping[str, str] | None = None) -> ExperimentConfig:
        overrides = [(key, text) for key, text in self.overrides]
        return resolve(self.recipe, overrides, {**contender.settings, **(more or {})})

    def write(self, workdir: Path) -> None:
        write_whole(workdir / "duel.json", json.dumps(asdict(self), indent=1) + "\n")
        write_whole(workdir / "sweep.py", SWEEP_FILE)


def read_plan(workdir: Path) -> Plan | None:
    """Return the plan in a folder, or None."""
    file = workdir / "duel.json"
    if not file.is_file():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    if "tune" in content:
        raise ConfigError("--workdir", f"{file} is of an older version", "use another folder")
    for name, record in content["planned"].items():
        contender = Contender(**record["contender"])
        content["planned"][name] = Planned(contender, Cost(**record["cost"]), record["updates"], record["settings"])
    return Plan(**content)


def require_same_duel(old: Plan, new: Plan, contenders: Sequence[Contender]) -> None:
    """Raise ConfigError if the conditions of a duel changed, or an idea since it was planned."""
    for name in ("recipe", "overrides", "equal", "budget", "metric"):
        before, now = getattr(old, name), getattr(new, name)
        if name == "overrides":
            before, now = (dict(pairs) for pairs in (before, now))
        if before != now:
            problem = f"the folder holds a duel with {name}={before!r}, and this command has {now!r}"
            raise ConfigError("--workdir", problem, "use another folder")
    for file, digest in new.plugins.items():
        if old.plugins.get(file, digest) != digest:
            raise ConfigError("--plugin", f"{file} changed since the duel began", "use another folder")
    for contender in contenders:
        if contender.name in old.planned and old.planned[contender.name].contender != contender:
            raise ConfigError(
                "--ideas", f"{contender.name}: its file or settings changed since it was planned", "use another folder"
            )


def sweep_of(workdir: Path, seeds: str) -> Sweep:
    """Return the runs of a planned duel, with this number of seeds."""
    plan = read_plan(workdir)
    if plan is None:
        raise ConfigError(workdir, "no duel.json", "transformer-jax duel writes it")
    rows = {name: row.contender.settings | row.settings for name, row in plan.planned.items()}
    numbers = tuple(range(int(seeds)))
    return Sweep(plan.recipe, dict(plan.overrides), rows, numbers, metric=plan.metric, are_seeds_paired=True)


def make_plan(plan: Plan, contenders: Sequence[Contender], workdir: Path, say: Callable[[str], None]) -> None:
    """Add new contenders to the plan in the folder, after pilot runs of seconds.

    Raises ConfigError if a contender cannot run, or another process plans this duel.
    """
    problem = "another process plans this duel; give the command again when it is done"
    with locked(workdir / "duel.lock", ConfigError("--workdir", problem)):
        plan = read_plan(workdir) or plan
        base = contenders[0]
        start_jax(plan.config_of(base).data.cache_directory)
        new = [contender for contender in contenders if contender.name not in plan.planned]
        # Times compare only if the base takes turns.
        tried = [base, *(contender for contender in new if contender != base)] if plan.equal == "time" and new else new
        costs = _costs(plan, tried, say)
        for contender in new:
            cost, before = costs[contender.name], plan.planned.get(base.name)
            if before:
                base_cost = costs.get(base.name, before.cost)
                ratios = {"flops": base_cost.flops / cost.flops, "time": base_cost.seconds / cost.seconds}
                updates = round(before.updates * ratios.get(plan.equal, 1.0))
            elif plan.budget:
                updates = int(seconds_of(plan.budget) / cost.seconds)
            else:
                updates = plan.config_of(contender).training.num_updates
            if updates < VALIDATIONS:
                raise ConfigError(
                    "--budget", f"pays {updates} updates of {contender.name}", f"give at least {VALIDATIONS}"
                )
            settings = _length(plan, contender, updates)
            # Raises ConfigError if the settings exclude each other.
            plan.config_of(contender, settings)
            plan = replace(plan, planned={**plan.planned, contender.name: Planned(contender, cost, updates, settings)})
            plan.write(workdir)
            counts = f"{cost.parameters:,} parameters, {cost.flops:.3g} FLOPs and {1e3 * cost.seconds:.0f} ms an update"
            say(f"{contender.name}: {counts}: {updates:,} updates")


def _length(plan: Plan, contender: Contender, updates: int) -> dict[str, str]:
    """Return settings for ``updates``: validations and warm-up at equal shares, unless stated."""
    config, every = plan.config_of(contender), -(-updates // VALIDATIONS)
    defaults = {
        "training.evaluate_every": every,
        "training.checkpoint_every": every,
        "training.log_every": min(config.training.log_every, every),
        "training.keep_last": 1,
    }
    together = dict.fromkeys(OFF, 0) | {"training.num_updates": updates}
    warmup, length = config.optimizer.warmup_updates, config.training.num_updates
    if updates != length and decays(config.optimizer.schedule):
        defaults["optimizer.warmup_updates"] = max(round(warmup * updates / length), 1)
    overridden = contender.settings.keys() | {key for key, _ in plan.overrides}
    defaults = {key: value for key, value in defaults.items() if key not in overridden}
    return {key: str(value) for key, value in (defaults | together).items()}


def _costs(plan: Plan, contenders: Sequence[Contender], say: Callable[[str], None]) -> dict[str, Cost]:
    """Measure contenders in turn and return costs by name. The fastest of several rounds counts."""
    counts: dict[str, tuple[int, float, int]] = {}
    seconds: dict[str, list[float]] = {}
    loads: dict[str, float] = {}
    updates = 0
    for number in range(ROUNDS if plan.equal == "time" else 1):
        for contender in contenders:
            say(f"pilot of {contender.name} ...")
            config = plan.config_of(contender)
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
            counts.setdefault(contender.name, pilot.counts)
            seconds.setdefault(contender.name, []).append(pilot.seconds)
            loads[contender.name] = max(loads.get(contender.name, 0.0), os.getloadavg()[0] / (os.cpu_count() or 1))
    for name, times in seconds.items():
        if max(times) > UNSTEADY * min(times):
            measured = f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f} ms an update"
            say(f"WARNING: pilots of {name} took {measured}: other programs may use this machine")
    return {name: Cost(*counts[name], min(times), loads[name]) for name, times in seconds.items()}


class _Pilot:
    """A hook that times ``updates`` updates, or if 0 some seconds, and then stops the run.

    If it ``is_first``, it also counts parameters, FLOPs and bytes.
    """

    def __init__(self, updates: int, *, is_first: bool) -> None:
        self.updates, self._is_first, self._is_over = updates, is_first, False
        self.seconds, self._start = 0.0, 0.0
        self.counts = 0, 0.0, 0

    def __call__(self, run: RunParts, position: Position) -> None:
        spent, first = run.clock.total(TRAINING), min(FIRST_UPDATES, position.num_updates // 2)
        timed, seconds = position.number - first, spent - self._start
        if timed <= 0:
            self._start = spent
            return
        is_enough = timed >= self.updates if self.updates else timed >= LEAST_UPDATES and seconds >= LEAST_SECONDS
        if not self._is_over and (is_enough or position.number == position.num_updates):
            self._is_over, self.updates, self.seconds = True, timed, seconds / timed
            self.counts = _count(run) if self._is_first else self.counts
            position.stop()


def _count(run: RunParts) -> tuple[int, float, int]:
    """Return the parameters of the model, FLOPs of an update (mean over batches), and bytes.

    Loss terms have no parameters here. FLOPs are of matrix products and convolutions: forward,
    backward and in the optimizer, without recomputation. Bytes are those of the state, and of the
    program of the largest batch.
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

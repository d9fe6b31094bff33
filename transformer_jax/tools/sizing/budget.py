"""The watch on the time budget of a run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jax

from transformer_jax.config.optimization import decays
from transformer_jax.run_directory.layout import read_starts
from transformer_jax.runs.goodput import TRAINING
from transformer_jax.runs.hooks import is_save_due
from transformer_jax.runs.progress import LOGGER
from transformer_jax.runs.run import Hook, Position, RunParts
from transformer_jax.runs.train_run import TrainingStart

# Interval of the estimates of the end of a run: seconds of updates, and at most a share of the
# budget.
SECONDS_OF_AN_ESTIMATE = 60.0
SHARE_OF_AN_ESTIMATE = 0.1
# An estimate this close to the budget changes nothing: noise of the clock must not move the end of
# the schedule.
TOLERANCE = 0.03
# A run with time for fewer updates than this after a validation ends there.
FEW_UPDATES = 10
# An estimate is logged again when the length of the run, or with budget_policy=stretch its time,
# changed by more than this.
LOGGED_CHANGE = 0.2


@contextmanager
def keep_to_budget(start: TrainingStart) -> Iterator[Sequence[Hook]]:
    """Surround a training with the watch on its budget, if it has one."""
    has_budget = start.config.training.budget_seconds > 0
    starts = [start.origin, *read_starts(start.directory.run_record)] if has_budget else []
    max_updates = max((record["sizing"].get("max_updates", 0) for record in starts if "sizing" in record), default=0)
    yield [KeepToBudget(max_updates, is_sized="sizing" in start.origin)] if has_budget else []


class KeepToBudget:
    """A hook that estimates the end of a run before each checkpoint, and every minute.

    If the end misses ``training.budget_seconds``, it logs that, and changes the length of the run:
    a shorter one if ``training.budget_policy`` allows, a longer one of at most ``max_updates``
    while the learning rate does not decay. ``is_sized``: this start chose the sizes of the model by
    the speed of the CPU. Does nothing in one of several processes, whose clocks differ.
    """

    def __init__(self, max_updates: int = 0, *, is_sized: bool = False) -> None:
        self._max_updates, self._is_sized = max_updates, is_sized
        self._estimated_at, self._logged = 0.0, 0.0

    def needs_state(self, run: RunParts, position: Position, number: int) -> bool:
        """Return whether an estimate is due after update ``number``."""
        if jax.process_count() > 1:
            return False
        interval = min(SECONDS_OF_AN_ESTIMATE, SHARE_OF_AN_ESTIMATE * run.config.training.budget_seconds)
        is_due = run.clock.total(TRAINING) - self._estimated_at >= interval
        return is_due or is_save_due(run, position, number)

    def __call__(self, run: RunParts, position: Position) -> None:
        """Estimate the end, and change the length of the run."""
        if position.results.metrics is None:
            self._log_notes(position)
        number, current, training = position.number, position.num_updates, run.config.training
        # The speed is not known before the second update of a start.
        if number >= current or position.ends or not run.clock.recent_update_seconds():
            return
        spent, seconds = sum(run.goodput.seconds().values()), run.seconds_per_update(position)
        self._estimated_at = run.clock.total(TRAINING)
        limit = max(training.num_updates, self._max_updates)
        length = affordable_updates(number, spent, seconds, training.budget_seconds, current, limit)
        if length == current or (length > training.num_updates and self._changes_rate(run, position, length)):
            return
        expected, planned = (spent + (current - number) * seconds) / 60, training.budget_seconds / 60
        problem = f"update {number}: {current:,} updates will take {expected:.1f} minutes, not {planned:.1f}"
        if training.budget_policy == "stretch" and length < current:
            self._log(expected, f"{problem} (training.budget_policy=stretch)")
            return
        if number == position.counters.validated_at and length - number < FEW_UPDATES:
            # Another validation, which always ends a run, would show the same.
            length = number
            position.stop("finished")
        decay = ", and its learning rate decays until then" * (
            decays(run.config.optimizer.schedule) and length > number
        )
        self._log(length, f"{problem}; the run now ends at update {length:,}{decay}")
        position.change_length(length)

    def _changes_rate(self, run: RunParts, position: Position, length: int) -> bool:
        """Return whether ``length`` changes the next learning rate, as in the decay of the rate."""
        lengths = position.num_updates, length
        rates = [float(run.update.schedule(run.hyperparameters(updates))(position.number + 1)) for updates in lengths]
        return rates[0] != rates[1]

    def _log(self, estimate: float, message: str) -> None:
        if abs(estimate - self._logged) > LOGGED_CHANGE * self._logged:
            self._logged = estimate
            LOGGER.info("%s", message)

    def _log_notes(self, position: Position) -> None:
        backend = jax.default_backend()
        if jax.process_count() > 1:
            LOGGER.info("training.budget_seconds: %d updates stay: clocks of processes differ", position.num_updates)
        elif self._is_sized and backend != "cpu":
            remedy = "for a larger model state sizes and training.num_updates in a new folder"
            LOGGER.info("--budget measured the CPU: on a %s the run may end early; %s", backend, remedy)


def affordable_updates(
    number: int, spent: float, seconds_per_update: float, budget: float, current: int, limit: int
) -> int:
    """Return the number of updates that fit into the budget.

    It is at least ``number + 1`` and at most ``limit``.

    ``number`` updates took ``spent`` of ``budget`` seconds. A ``current`` length within 3 % of the
    budget stays.
    """
    expected = spent + (current - number) * seconds_per_update
    if abs(expected - budget) <= TOLERANCE * budget:
        return current
    affordable = number + int((budget - spent) / max(seconds_per_update, 1e-9))
    return min(max(affordable, number + 1), limit)

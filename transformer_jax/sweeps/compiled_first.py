"""Which trial a worker takes next: one that was begun, one that runs what it compiled last, one that nobody else compiles."""

from collections.abc import Callable

from optuna.trial import FrozenTrial, TrialState

from transformer_jax.config import ConfigError, ExperimentConfig, structure_of
from transformer_jax.sweeps.study import SharedStudy, given_point, number_of, was_begun

BEGUN, COMPILED, NEW, OTHERS = range(4)


class CompiledFirst:
    """The preference of one worker, by what it trained last."""

    def __init__(self, study: SharedStudy) -> None:
        self._study = study
        self._last: ExperimentConfig | None = None
        self._structures: dict[int, ExperimentConfig | None] = {}

    def note(self, config: ExperimentConfig) -> None:
        """Remembers what the worker trains now."""
        self._last = structure_of(config)

    def ranks(self) -> Callable[[FrozenTrial], int]:
        """How a trial ranks at this moment; all alike where their settings are yet to be chosen."""
        states = (TrialState.RUNNING,)
        running = [self._structure(each) for each in self._study.study.get_trials(deepcopy=False, states=states)]

        def rank(trial: FrozenTrial) -> int:
            if was_begun(trial):
                return BEGUN
            structure = self._structure(trial)
            if structure is None or structure == self._last:
                return COMPILED
            return OTHERS if structure in running else NEW

        return rank

    def unlike(self, config: ExperimentConfig) -> set[int]:
        """The numbers of the trials that wait and are known to compile something else."""
        structure = structure_of(config)
        waiting = self._study.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        return {number_of(each) for each in waiting if self._structure(each) not in (None, structure)}

    def _structure(self, trial: FrozenTrial) -> ExperimentConfig | None:
        """What the trial compiles; None where that is not known yet, or not possible."""
        point = given_point(trial)
        if not point:
            return None
        if trial.number not in self._structures:
            try:
                self._structures[trial.number] = structure_of(self._study.sweep.settings(point))
            except ConfigError:
                self._structures[trial.number] = None
        return self._structures[trial.number]

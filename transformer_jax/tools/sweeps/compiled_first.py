"""Order of the trials of a worker: begun ones, those of its last compiled program, those no other worker compiles."""

from collections.abc import Callable

from optuna.trial import FrozenTrial, TrialState

from transformer_jax.config import ConfigError, ExperimentConfig, structure_of
from transformer_jax.tools.sweeps.study import SharedStudy, given_point, number_of, was_begun

BEGUN, COMPILED, NEW, OTHERS = range(4)


class CompiledFirst:
    """Ranks the trials for one worker, by the program that it compiled last."""

    def __init__(self, study: SharedStudy) -> None:
        self._study = study
        self._last: ExperimentConfig | None = None
        self._structures: dict[int, ExperimentConfig | None] = {}

    def note(self, config: ExperimentConfig) -> None:
        """Records the settings that the worker trains now."""
        self._last = structure_of(config)

    def ranks(self) -> Callable[[FrozenTrial], int]:
        """Returns the rank of a trial now; the same for all trials whose settings are not chosen yet."""
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
        """Numbers of the waiting trials that are known to need another program."""
        structure = structure_of(config)
        waiting = self._study.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        return {number_of(each) for each in waiting if self._structure(each) not in (None, structure)}

    def _structure(self, trial: FrozenTrial) -> ExperimentConfig | None:
        """Settings that determine the compiled program of a trial; None where they are unknown or invalid."""
        point = given_point(trial)
        if not point:
            return None
        if trial.number not in self._structures:
            try:
                self._structures[trial.number] = structure_of(self._study.sweep.settings(point))
            except ConfigError:
                self._structures[trial.number] = None
        return self._structures[trial.number]

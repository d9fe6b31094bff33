"""A task: the contract between runs, commands and tools, and whatever is trained (translation, language modeling, ...)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.config.tasks import TASKS, TaskSettings, imported
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.texts import TextAttention, TokenScores
from transformer_jax.training.step import UpdateRule


@runtime_checkable
class Evaluation(Protocol):
    """The result of evaluating parameters on a split; each task has its own class, with more fields."""

    @property
    def split(self) -> str:
        """Name of the split in the data."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, as logged below ``validation/``; includes ``loss``."""

    @property
    def outputs(self) -> Sequence[str] | None:
        """The generated lines, in the order of the split; None where the task generates nothing."""

    @property
    def summary(self) -> str:
        """One line for the terminal."""

    def to_json(self) -> dict[str, object]:
        """All results in types that ``json.dumps`` accepts."""

    def rows(self) -> list[tuple[str, str, str]]:
        """The results as lines of a table: name, value, remark."""

    def examples(self, count: int) -> str:
        """The first ``count`` inputs, outputs and references as text; empty where nothing is generated."""


class WithoutOutputs:
    """The part of an ``Evaluation`` that is the same wherever nothing is generated."""

    @property
    def outputs(self) -> None:
        """Nothing is generated."""

    def examples(self, count: int) -> str:
        """Nothing is generated."""
        del count
        return ""


@dataclass(frozen=True)
class MeasuredSplit(WithoutOutputs):
    """The evaluation of a task that only measures: metrics by name, ``loss`` among them, means over ``num_examples``."""

    split: str
    metrics: Mapping[str, float]
    num_examples: int

    @property
    def summary(self) -> str:
        """Every metric, with four digits."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.metrics.items())

    def to_json(self) -> dict[str, object]:
        """Count and metrics for ``json.dumps``; a number that is not finite becomes null."""
        return {"split": self.split, "examples": self.num_examples, **finite_or_null(self.metrics)}

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of every line of the table."""
        measured = [(name.replace("_", " "), f"{value:.4f}", "") for name, value in self.metrics.items()]
        return [("split", self.split, f"{self.num_examples:,} examples"), *measured]


def finite_or_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with None for every float that is not finite, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


class DataReport(NamedTuple):
    """The training data and its batches: as JSON for ``data.json``, as text for the terminal.

    The entry ``unigram_entropy`` of the content, if any, is the loss of guessing tokens by their frequency, nats per token.
    """

    content: Mapping[str, object]
    text: str


@runtime_checkable
class TrainingData(Protocol):
    """The tokenized training split, and the assignment of its examples to updates."""

    @property
    def report(self) -> DataReport:
        """Counts of the data and of its batches."""

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """The shapes of all batches, over all processes, in the order in which the updates after ``first_update`` need them."""

    def require_sound(self) -> None:
        """Raises DataError where the tokenized data are damaged; called before anything that was trained on them is saved."""

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """The batches of the updates after ``first_update``, forever; each process reads only its rows."""


class DecodingProgram(NamedTuple):
    """Decoding of a batch as pure functions of parameters and shapes, which preflight compiles without a run.

    The search is over ``rows`` inputs of ``width`` positions, whose shapes, rows first, are ``inputs``.
    ``start(params, inputs, capacity)`` reads the inputs and makes the state before the first token, in arrays for ``capacity``
    tokens; ``step(params, state)`` chooses one token more in every row. ``capacities`` are the capacities of a search in
    their order, each with the number of tokens chosen in it; no row is done before the last.
    """

    rows: int
    width: int
    beam_width: int
    inputs: PyTree
    start: Callable[[PyTree, PyTree, int], PyTree]
    step: Callable[[PyTree, PyTree], PyTree]
    capacities: list[tuple[int, int]]

    @property
    def tokens(self) -> int:
        """Tokens of a row after all its steps."""
        return sum(count for _, count in self.capacities)


class Task(ABC):
    """Data, model, loss and evaluation of a run, and what can be asked of its task before there is a run.

    One class a task, registered with its settings, see ``config.tasks``. An object serves every run of the same structure on
    the same data: no hyperparameter of a run is in it. Data is read on first use. ``objective`` is model and loss, which need
    no data: ``init_params(key)`` makes the parameters before the first update; ``loss(params, batch, key, hyperparameters)``
    sums over the batch, and its ``loss`` is differentiated; ``training_model(hyperparameters)`` is the model with
    numbers that may be traced.

    ``next_commands`` are what to try after a run, ``commands_of_trained`` after its evaluation. ``reads_texts``: a trained run
    scores and shows texts that are not in its data; ``has_targets``: each of them comes with its translation.
    """

    settings: ClassVar[TaskSettings]
    next_commands: ClassVar[tuple[str, ...]] = ("evaluate --workdir={workdir} --split=test",)
    commands_of_trained: ClassVar[tuple[str, ...]] = ()
    reads_texts: ClassVar[bool] = False
    has_targets: ClassVar[bool] = False

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        """``objective``: by default the one of the settings."""
        self.config, self.tokenizers, self.mesh = config, tokenizers, mesh
        sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        self.objective = self.new_objective(config, sizes, mesh) if objective is None else objective

    # Before there is a run.

    @staticmethod
    @abstractmethod
    def open_source(config: ExperimentConfig) -> Any:
        """The source of the data, which reads nothing yet; ``fingerprint(split)`` is its digest of a split."""

    @staticmethod
    @abstractmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Trained on the training split, and not saved yet."""

    @staticmethod
    @abstractmethod
    def require_split(config: ExperimentConfig, split: str) -> None:
        """Raises DataError when the data has no such split."""

    @staticmethod
    @abstractmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
        """The shape of a batch of ``rows`` rows of ``length`` positions."""

    @staticmethod
    @abstractmethod
    def longest_row(config: ExperimentConfig) -> int:
        """The maximum length of a row of a batch."""

    @staticmethod
    @abstractmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> Any:
        """Model and loss for vocabularies of these sizes, source and target."""

    @staticmethod
    def begin(config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
        """The settings of a run in ``directory``, completed with choices that are made once, when it begins."""
        del directory
        return config

    @staticmethod
    def update_rule(objective: Any) -> UpdateRule | None:
        """The update of ``objective`` where it is not one of a dense gradient."""
        del objective
        return None

    @staticmethod
    def decoding(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
        """The search with the model of ``objective`` for inputs of ``length`` positions (0: the longest).

        Raises ConfigError where the task decodes nothing.
        """
        raise ConfigError(f"--program: {config.task} decodes nothing; leave it out")

    # Training.

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Digests of the training data and tokenizers, by name; a run resumes only with the same."""

    @abstractmethod
    def training_data(self) -> TrainingData:
        """Tokenizes the training split, unless that was done before, and plans the batches."""

    @abstractmethod
    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """All module outputs of a training pass, to find the first non-finite one."""

    @abstractmethod
    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` as validations do, on ``train``, ``validation``, ``test`` or another split.

        ``limit``: on its first examples only; 0: all.
        """

    # A trained run.

    def evaluate_trained(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` as the command ``evaluate`` does: by all scores, with the settings of decoding."""
        return self.evaluate(params, split, limit=limit)

    def ensemble(self, others: Sequence["Task"]) -> "Task":
        """The same task with an ensemble of the models of all; raises ConfigError where probabilities cannot be averaged."""
        raise ConfigError(f"--ensemble: task={self.config.task} has no ensembles")

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> Any:
        """The text of --source and --references; raises ConfigError or DataError, before JAX starts, where it is none."""
        raise NotImplementedError

    def evaluate_text(self, params: PyTree, text: Any, name: str) -> Evaluation:
        """Scores what ``open_text`` returned; the result is called ``text-NAME-DIGEST``."""
        raise NotImplementedError

    def score_texts(self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None) -> list[TokenScores]:
        """The log-probability of each text, or of its target."""
        raise NotImplementedError

    def attention_of(self, params: PyTree, text: str, target: str | None) -> TextAttention:
        """All attention of a teacher-forced pass over a text, and its target."""
        raise NotImplementedError

    @classmethod
    def require_targets(cls, flag: str, *, is_given: bool, is_optional: bool = False) -> None:
        """Raises ConfigError where ``flag`` gives targets that the task does not have, or none that it needs."""
        if is_given and not cls.has_targets:
            raise ConfigError(f"{flag}: this task reads one text, without its target; leave it out")
        if cls.has_targets and not is_given and not is_optional:
            raise ConfigError(f"{flag}: is required; give the target of each text")


def task_class(name: str) -> type[Task]:
    """The class of the task of this name, which is imported on first use."""
    found = TASKS[name].implementation
    made: type[Task] = imported(found) if isinstance(found, str) else found
    return made


def objective_of(config: ExperimentConfig, mesh: Mesh) -> Any:
    """Model and loss with vocabularies as large as the settings allow: before there are tokenizers."""
    size = config.tokenizer.vocabulary_size
    return task_class(config.task).new_objective(config, (size, size), mesh)


def task_that_reads_texts(config: ExperimentConfig, where: str) -> type[Task]:
    """The task of a run; raises ConfigError, which begins with ``where``, when it takes no texts of a user."""
    found = task_class(config.task)
    if not found.reads_texts:
        takes = " or ".join(f"task={name}" for name in TASKS if task_class(name).reads_texts)
        raise ConfigError(f"{where} is a run of task={config.task}; this takes {takes}")
    return found

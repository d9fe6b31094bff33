"""The contract of a task, such as translation, with the loop that trains it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.tasks import TASKS, TaskSettings, imported
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.files.terminal import text_table
from transformer_jax.notebook import table
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.tasks.objective import OpenTask


@runtime_checkable
class Evaluation(Protocol):
    """The result of evaluating parameters on a split, to which tasks add fields."""

    @property
    def split(self) -> str:
        """Name of the split in the data."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, as logged below ``validation/``, including ``loss``."""

    @property
    def outputs(self) -> Sequence[str] | None:
        """The generated lines in the order of the split, or None if the task generates nothing."""

    @property
    def basis(self) -> str:
        """The examples that were scored, and the search: ``96 of 1,014 sentences, greedy``."""

    @property
    def signature(self) -> str:
        """The definition of the scores for the log of a run, or empty if their names say all."""

    def to_json(self) -> dict[str, object]:
        """Return all results in types that ``json.dumps`` accepts."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the results as rows of a table: name, value, remark."""

    def examples(self, count: int) -> str:
        """Return the first ``count`` inputs, outputs and references as text, if any."""


class PrintedEvaluation:
    """Base of an ``Evaluation`` that generates nothing; prints its rows as a table."""

    outputs: Sequence[str] | None = None

    @property
    def signature(self) -> str:
        return ""

    def __repr__(self: Evaluation) -> str:
        return text_table(self.rows())

    def examples(self, count: int) -> str:
        del count
        return ""

    def _repr_html_(self: Evaluation) -> str:
        return table(self.rows())


@dataclass(frozen=True, repr=False)
class MeasuredSplit(PrintedEvaluation):
    """An evaluation with metrics alone, including ``loss``: means over ``num_examples``."""

    split: str
    metrics: Mapping[str, float]
    num_examples: int

    @property
    def basis(self) -> str:
        return f"{self.num_examples:,} examples"

    def to_json(self) -> dict[str, object]:
        return {"split": self.split, "examples": self.num_examples, **self.metrics}

    def rows(self) -> list[tuple[str, str, str]]:
        measured = [(name.replace("_", " "), f"{value:.4f}", "") for name, value in self.metrics.items()]
        return [("split", self.split, self.basis), *measured]


def share_of(scored: int, total: int, examples: str) -> str:
    """Return ``96 of 1,014 sentences``, or ``1,014 sentences`` if all are scored (``total`` 0)."""
    return f"{scored:,} {examples}" if total in (0, scored) else f"{scored:,} of {total:,} {examples}"


class DataReport(NamedTuple):
    """Statistics of the training data: ``content`` for ``data.json``, ``text`` for the log.

    An entry ``unigram_entropy`` of the content is the loss of guessing tokens by their frequency,
    in nats per token.
    """

    content: Mapping[str, object]
    text: str


@runtime_checkable
class TrainingData(Protocol):
    @property
    def report(self) -> DataReport:
        """Counts of the data and of its batches."""

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """Return the shapes of all (global) batches, in order from ``first_update`` on."""

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """Yield the batches after ``first_update``, forever, in ``parts_of_rows`` of a process."""


class Task(OpenTask, ABC):
    """Data, model, loss, evaluation and identity of a run; static methods need no run.

    One class a task, registered with its settings and its selection metric (``config.tasks``). An
    object has no hyperparameters of a run, and serves all runs of the same structure on the same
    data. Data is read on first use.

    ``objective`` is model and loss, without data. ``init_params(key)`` makes the parameters before
    the first update. ``loss(params, batch, key, hyperparameters)`` returns sums over the batch,
    whose ``loss`` is differentiated; ``activations`` takes the same, and returns all module outputs
    of a training pass. ``update_rule`` replaces gradient and optimizer, unless it is None.
    ``training_model(hyperparameters)`` is the model with hyperparameters that may be traced.

    ``commands``: commands to try with a trained run, in which ``{run}`` are the flags of the run,
    and ``{input}`` is a file of lines. ``needs_tensorflow``: it feeds the training data.

    A task may have more methods: a tool declares the ones that it needs as a ``Protocol``, and gets
    the task with ``task_that``. A subclass sets an inherited method to None to take it away.
    """

    settings: ClassVar[TaskSettings]
    commands: ClassVar[tuple[str, ...]] = ()
    needs_tensorflow: ClassVar[bool] = True

    @staticmethod
    @abstractmethod
    def open_source(config: ExperimentConfig) -> Any:
        """Return the unread source of the data; ``fingerprint(split)`` is the digest of a split."""

    @staticmethod
    @abstractmethod
    def require_split(config: ExperimentConfig, split: str) -> None:
        """Raise DataError if the data has no such split."""

    @staticmethod
    def begin(config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
        """Return the settings of a run, with choices that are made once, when it begins."""
        del directory
        return config

    @staticmethod
    @abstractmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Train tokenizers on the training split, without saving them."""

    @staticmethod
    @abstractmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> Any:
        """Make model and loss for vocabularies of these sizes, source and target."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Digests of the training data and tokenizers, which a resumed run must have again."""

    @abstractmethod
    def training_data(self) -> TrainingData:
        """Open the training split, tokenize it if necessary, and plan its batches."""

    @abstractmethod
    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Score ``params`` as validations do, on ``train``, ``validation``, ``test`` or another.

        ``limit``: number of examples, the first ones; 0: all.
        """

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Score ``params`` as the command ``evaluate``, by all scores and decoding settings."""
        return self.validate(params, split, limit=limit)


def task_class(name: str) -> type[Task]:
    implementation = TASKS[name].implementation
    return imported(implementation) if isinstance(implementation, str) else implementation


def task_that(protocol: type, config: ExperimentConfig, key: str, problem: str) -> Any:
    """Return the task of a run as the ``protocol`` of a tool, or raise ConfigError."""
    task = task_class(config.task)
    if isinstance(task, protocol):
        return task
    able = " or ".join(f"task={name}" for name in TASKS if isinstance(task_class(name), protocol))
    raise ConfigError(key, problem, f"this takes {able}")


def objective_of(config: ExperimentConfig, mesh: Mesh) -> Any:
    """Make model and loss without tokenizers, for vocabularies as large as the settings allow."""
    size = config.tokenizer.vocabulary_size
    return task_class(config.task).new_objective(config, (size, size), mesh)

"""The contract of a task, such as translation, with runs, commands and tools."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.config.tasks import TASKS, TaskSettings, imported
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.notebook import table
from transformer_jax.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from transformer_jax.data.cached_stores import Tokenization
    from transformer_jax.data.sentence_pairs import SentencePair
    from transformer_jax.evaluation.significance import PairedScores
    from transformer_jax.tasks.texts import TextAttention, TokenScores
    from transformer_jax.training.step import UpdateRule


@runtime_checkable
class Evaluation(Protocol):
    """The result of evaluating parameters on a split; tasks have classes of their own, with more fields."""

    @property
    def split(self) -> str:
        """Name of the split in the data."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, as logged below ``validation/``; includes ``loss``."""

    @property
    def outputs(self) -> Sequence[str] | None:
        """The generated lines, in the order of the split; None if the task generates nothing."""

    @property
    def summary(self) -> str:
        """One line for the terminal."""

    def to_json(self) -> dict[str, object]:
        """All results in types that ``json.dumps`` accepts."""

    def rows(self) -> list[tuple[str, str, str]]:
        """The results as rows of a table: name, value, remark."""

    def examples(self, count: int) -> str:
        """The first ``count`` inputs, outputs and references as text; empty if nothing is generated."""


class WithoutOutputs:
    """Base of an ``Evaluation`` of a task that generates nothing."""

    @property
    def outputs(self) -> None:
        return None

    def examples(self, count: int) -> str:
        del count
        return ""

    def _repr_html_(self: Evaluation) -> str:
        return table(self.rows())


@dataclass(frozen=True)
class MeasuredSplit(WithoutOutputs):
    """An evaluation with metrics alone, including ``loss``: means over ``num_examples``."""

    split: str
    metrics: Mapping[str, float]
    num_examples: int

    @property
    def summary(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.metrics.items())

    def to_json(self) -> dict[str, object]:
        return {"split": self.split, "examples": self.num_examples, **self.metrics}

    def rows(self) -> list[tuple[str, str, str]]:
        measured = [(name.replace("_", " "), f"{value:.4f}", "") for name, value in self.metrics.items()]
        return [("split", self.split, f"{self.num_examples:,} examples"), *measured]


class DataReport(NamedTuple):
    """Statistics of the training data and its batches: ``content`` for ``data.json``, ``text`` for the log.

    An entry ``unigram_entropy`` of the content is the loss of guessing tokens by their frequency, nats per token.
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
        """The shapes of all (global) batches, in the order in which the updates after ``first_update`` need them."""

    def require_sound(self) -> None:
        """Raises DataError where the tokenized data are damaged; called before anything trained on them is saved."""

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """The batches of the updates after ``first_update``, forever; each process reads only its ``parts_of_rows``."""


class DecodingProgram(NamedTuple):
    """Decoding of a batch as pure functions, which preflight compiles without a run.

    The batch has ``rows`` inputs of ``width`` positions; ``inputs`` are their shapes, rows first.
    ``start(params, inputs, capacity)`` reads the inputs and makes the state before the first token, for at most ``capacity``
    tokens; ``step(params, state)`` chooses one more token in every row. ``capacities``: the capacities of a search in order,
    each with the number of tokens chosen in it; all rows are as long as allowed.
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
        """Tokens of a row after all steps."""
        return sum(count for _, count in self.capacities)


class Task(ABC):
    """Data, model, loss and evaluation of a run; static methods need no run.

    One class a task, registered with its settings (``config.tasks``). An object has no hyperparameters of a run, and serves all
    runs of the same structure on the same data. Data is read on first use. ``objective`` is model and loss, without data:
    ``init_params(key)`` makes the parameters before the first update; ``loss(params, batch, key, hyperparameters)`` returns
    sums over the batch, whose ``loss`` is differentiated; ``training_model(hyperparameters)`` is the model with
    hyperparameters that may be traced.

    ``next_commands``: commands to try after training; ``commands_of_trained``: after evaluation. ``reads_texts``: a trained run
    takes texts that are not in its data; ``has_targets``: with the translation of each. ``needs_tensorflow``:
    it feeds the training data.
    """

    settings: ClassVar[TaskSettings]
    next_commands: ClassVar[tuple[str, ...]] = ("evaluate --workdir={workdir} --split=test",)
    commands_of_trained: ClassVar[tuple[str, ...]] = ()
    reads_texts: ClassVar[bool] = False
    needs_tensorflow: ClassVar[bool] = True
    has_targets: ClassVar[bool] = False

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        """``objective``: by default the one of the settings."""
        self.config, self.tokenizers, self.mesh = config, tokenizers, mesh
        sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        self.objective = self.new_objective(config, sizes, mesh) if objective is None else objective

    # A run.

    @staticmethod
    @abstractmethod
    def open_source(config: ExperimentConfig) -> Any:
        """The source of the data, which is not read yet; ``fingerprint(split)`` is the digest of a split."""

    @staticmethod
    @abstractmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Tokenizers trained on the training split, not saved."""

    @staticmethod
    @abstractmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> Any:
        """Model and loss for vocabularies of these sizes, source and target."""

    @staticmethod
    @abstractmethod
    def require_split(config: ExperimentConfig, split: str) -> None:
        """Raises DataError when the data has no such split."""

    @staticmethod
    def begin(config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
        """The settings of a run in ``directory``, with choices that are made once, when the run begins."""
        del directory
        return config

    @staticmethod
    def update_rule(objective: Any) -> "UpdateRule | None":
        """The update of ``objective``; None: by a dense gradient and an optimizer."""
        del objective
        return None

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Digests of the training data and tokenizers, by name; a run resumes only with the same."""

    @abstractmethod
    def training_data(self) -> TrainingData:
        """The training split, which is tokenized unless that was done before, and its batches."""

    @abstractmethod
    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """All module outputs of a training pass, to find the first non-finite one."""

    @abstractmethod
    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` as validations do, on ``train``, ``validation``, ``test`` or another split.

        ``limit``: number of examples, the first ones; 0: all.
        """

    # A trained run.

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` as the command ``evaluate`` does: by all scores, with the decoding settings."""
        return self.validate(params, split, limit=limit)

    def ensemble(self, others: Sequence["Task"]) -> "Task":
        """This task with an ensemble of all models; raises ConfigError where probabilities cannot be averaged."""
        raise ConfigError(f"--ensemble: task={self.config.task} has no ensembles")

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> Any:
        """The text of --source and --references; raises ConfigError or DataError, before JAX starts, where it is unusable."""
        raise NotImplementedError

    def evaluate_text(self, params: PyTree, text: Any, name: str) -> Evaluation:
        """Scores the result of ``open_text``; the split of the evaluation is called ``text-NAME-DIGEST``."""
        raise NotImplementedError

    def score_texts(self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None) -> "list[TokenScores]":
        """The log-probability of each target, or of each text where the task has no targets."""
        raise NotImplementedError

    def attention_of(self, params: PyTree, text: str, target: str | None) -> "TextAttention":
        """All attention of a teacher-forced pass over a text and its target, by default the model's own."""
        raise NotImplementedError

    @classmethod
    def require_targets(cls, flag: str, *, is_given: bool, is_optional: bool = False) -> None:
        """Raises ConfigError where ``flag`` gives targets that the task does not take, or none and the task needs them."""
        if is_given and not cls.has_targets:
            raise ConfigError(f"{flag}: this task reads one text, without its target; leave it out")
        if cls.has_targets and not is_given and not is_optional:
            raise ConfigError(f"{flag}: is required; give the target of each text")

    # Tools.

    @staticmethod
    @abstractmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
        """The shape of a batch of ``rows`` rows of ``length`` positions."""

    @staticmethod
    @abstractmethod
    def longest_row(config: ExperimentConfig) -> int:
        """The maximum length of a row of a batch."""

    @staticmethod
    def decoding(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
        """The search with the model of ``objective`` over a full batch of inputs of ``length`` positions (0: the longest).

        Raises ConfigError where the task decodes nothing.
        """
        raise ConfigError(f"--program: {config.task} decodes nothing; leave it out")

    def tokenization(self) -> "Tokenization[Any]":
        """How the training split is tokenized; raises ConfigError where that is only done by training itself."""
        raise ConfigError(f"tokenize: task={self.config.task} tokenizes when training begins; start train")

    @staticmethod
    def scored_pairs(config: ExperimentConfig, split: str) -> "list[SentencePair]":
        """The inputs of a split, and the references that outputs are scored against."""
        raise NotImplementedError

    @staticmethod
    def paired_scores(config: ExperimentConfig) -> "PairedScores":
        """How ``compare`` tests two systems; raises ConfigError where the task has no outputs."""
        raise ConfigError(f"A B: a run of task={config.task} has no outputs to compare; see report")


def task_class(name: str) -> type[Task]:
    """The class of a task by name, imported on first use."""
    found = TASKS[name].implementation
    made: type[Task] = imported(found) if isinstance(found, str) else found
    return made


def decoder_class(name: str) -> Any:
    """The class of the part of a task that decodes with a trained run: the class of the task, unless it names another."""
    found = TASKS[name].decoder
    return imported(found) if found else task_class(name)


def objective_of(config: ExperimentConfig, mesh: Mesh) -> Any:
    """Model and loss without tokenizers, for vocabularies as large as the settings allow."""
    size = config.tokenizer.vocabulary_size
    return task_class(config.task).new_objective(config, (size, size), mesh)


def task_that_reads_texts(config: ExperimentConfig, where: str) -> type[Task]:
    """The task of a run; raises ConfigError, which begins with ``where``, unless it takes texts of a user."""
    found = task_class(config.task)
    if not found.reads_texts:
        takes = " or ".join(f"task={name}" for name in TASKS if task_class(name).reads_texts)
        raise ConfigError(f"{where} is a run of task={config.task}; this takes {takes}")
    return found

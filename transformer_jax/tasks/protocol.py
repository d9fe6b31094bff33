"""Interface of a task: all that the loop knows of translation, language modeling, or anything else that is trained."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.training.losses import LossSums


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


@runtime_checkable
class Task(Protocol):
    """Data, model, loss and evaluation of a run.

    Serves every run of the same structure on the same data: no hyperparameter of a run is in it.
    """

    config: ExperimentConfig
    tokenizers: TokenizerPair

    @property
    def identity(self) -> Mapping[str, str]:
        """Digests of what the training reads, by name: another one is another run."""

    def training_data(self) -> TrainingData:
        """Tokenizes the training split, unless that was done before, and plans the batches."""

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""

    def loss(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Sums over the batch; ``loss`` is differentiated."""

    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """All module outputs of a training pass, to find the first non-finite one."""

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` on ``train``, ``validation``, ``test`` or another split, or on its first ``limit`` examples."""


@runtime_checkable
class Trained(Protocol):
    """Restored parameters of a run, or of an ensemble."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The updates of the checkpoints whose mean the parameters are."""

    @property
    def members(self) -> tuple[str, ...]:
        """The other runs of an ensemble, as ``RUN:UPDATE``."""

    def evaluate(self, split: str, *, limit: int = 0) -> Evaluation:
        """Scores the parameters on a split, or on its first ``limit`` examples."""

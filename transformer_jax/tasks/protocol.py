"""What the loop asks of a task: all that it knows of translation, language modeling, or anything else that is trained."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.training.losses import LossSums


@runtime_checkable
class Evaluation(Protocol):
    """What evaluating parameters on a split found; tasks have classes of their own, with more in them."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """By name, as the log has them below ``validation/``; ``loss`` is among them."""

    @property
    def outputs(self) -> Sequence[str]:
        """The lines that were generated, if any, in the order of the split."""

    @property
    def summary(self) -> str:
        """One line for the terminal."""

    def to_json(self) -> dict[str, object]:
        """Everything that was measured, as what ``json.dumps`` takes."""

    def table(self) -> str:
        """The same as aligned text."""


class DataReport(NamedTuple):
    """The training data and its batches: as JSON for ``data.json``, as text for the terminal."""

    content: Mapping[str, object]
    text: str


@runtime_checkable
class TrainingData(Protocol):
    """The tokenized training split, and which of its examples go into which update."""

    @property
    def report(self) -> DataReport:
        """Counts of the data and of its batches."""

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """The shapes of all batches, over all processes, in the order in which the updates after ``first_update`` need them."""

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
        """Everything that the modules return in a training pass, for finding what is not finite."""

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> Evaluation:
        """Scores ``params`` on ``train``, ``validation``, ``test`` or another split, or on its first ``limit`` examples."""

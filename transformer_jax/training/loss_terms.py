"""Terms that parts add to the training loss."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Hidden, Int, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, Number, parts_with
from transformer_jax.config.plugins import registered
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import projected_cross_entropy, projected_sum

SOWN = "losses"
"""The collection into which modules sow scalars for loss terms."""


class ForcedPass(NamedTuple):
    """The teacher-forced pass of a training batch: logits are ``hidden`` times the transposed output matrix.

    ``sown``: the scalars that modules sowed into ``losses``. ``again()``: the hidden states of another pass, with other dropout
    masks. ``cross_entropy(hidden)``: the training loss of hidden states, without terms. ``sum_of_tokens(function, *hidden)``:
    the sum over tokens of ``function(*logits)``, with logits [..., V] in float32 of every argument, in blocks.
    """

    hidden: Hidden
    labels: Int[Array, "B T"]
    weights: Float[Array, "B T"]
    sown: PyTree
    again: Callable[[], Hidden]
    cross_entropy: Callable[[Hidden], LossSums]
    sum_of_tokens: Callable[..., Array]


class LossTerm:
    """What a part adds to the training loss; override one of the methods.

    ``reads_sown``: whether it uses ``ForcedPass.sown``. ``is_sum_of_tokens``: whether the term of a batch is the sum of the
    terms of its parts; if not, it depends on ``batching.accumulation_steps``.
    """

    reads_sown = False
    is_sum_of_tokens = True

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def of_logits(self) -> Partial | None:
        """``Partial(function, *arrays)``; ``function(*arrays, logits, labels)``: float32 logits [..., V] to values of tokens.

        It costs little: the loss computes the logits anyway, a block at a time.
        """
        return None

    def of_pass(self, forced: ForcedPass) -> Array | None:
        """A sum over the tokens of the batch."""
        return None


class LossTerms:
    """The terms of ``training.loss_terms``, with hyperparameters that may be traced."""

    def __init__(self, config: ExperimentConfig, hyperparameters: Hyperparameters) -> None:
        parts = parts_with(config, hyperparameters)
        names = config.training.loss_term_names
        self._terms: dict[str, LossTerm] = {name: registered("loss_term")[name](parts.get(name)) for name in names}

    @property
    def collections(self) -> list[str]:
        """The collections that the teacher-forced pass returns."""
        return [SOWN] if any(term.reads_sown for term in self._terms.values()) else []

    @property
    def of_logits(self) -> dict[str, Partial]:
        """The terms that ``projected_cross_entropy`` adds."""
        return {name: found for name, term in self._terms.items() if (found := term.of_logits()) is not None}

    def of_pass(
        self,
        sums: LossSums,
        factors: tuple[Hidden, Array],
        collected: Mapping[str, PyTree],
        again: Callable[[], Hidden],
        targets: tuple[Array, Array, Number],
        **how: Any,
    ) -> LossSums:
        """``sums`` and the other terms; ``targets``: labels, weights, smoothing, ``how``: of ``projected_cross_entropy``."""
        (hidden, matrix), (labels, weights, _) = factors, targets
        forced = ForcedPass(
            hidden,
            labels,
            weights,
            collected.get(SOWN, {}),
            again,
            cross_entropy=lambda hidden: projected_cross_entropy(hidden, matrix, *targets, **how),
            sum_of_tokens=lambda function, *hidden: projected_sum(function, hidden, matrix, weights, **how),
        )
        for name, term in self._terms.items():
            value = term.of_pass(forced)
            sums = sums if value is None else sums.with_term(name, value)
        return sums

"""Terms that parts add to the training loss."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Hidden, Int, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.registry.plugins import registered
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import LossSums
from transformer_jax.training.state import LOSS_TERMS, SOWN


class ForcedPass(NamedTuple):
    """The teacher-forced pass of a training batch.

    Logits are ``hidden`` times the transposed output matrix. ``weights``: 1 on tokens of
    ``target``, 0 on padding. ``sown``: the scalars that modules sowed into ``losses``.
    ``cross_entropy(hidden, labels, weights)``: the training loss of hidden states, without terms,
    by default of ``target``. Only its ``loss`` has a gradient, and none by ``weights``. ``config``:
    of the run. ``params``: of the term, from ``init_params``. ``key``: of the dropout of the pass;
    fold a number into it.
    """

    hidden: Hidden
    target: Tokens
    weights: Float[Array, "B T"]
    sown: PyTree
    cross_entropy: Callable[..., LossSums]
    config: ExperimentConfig
    model: Any
    params: PyTree
    key: Array


class LossTerm:
    """A part that adds to the training loss; override one or both of ``of_logits`` and ``of_pass``.

    ``further_passes``: passes of the batch with other dropout masks whose logits ``of_logits`` also
    reads. ``reads_sown``: whether it uses ``ForcedPass.sown``. ``is_sum_of_tokens``: whether the
    term of a batch is the sum of the terms of its micro-batches. If not, it depends on
    ``batching.accumulation_steps`` and, for recurrent models, on the mesh.
    """

    further_passes = 0
    reads_sown = False
    is_sum_of_tokens = True

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def of_logits(self, labels: Int[Array, "B T"], weights: Float[Array, "B T"]) -> Partial | None:
        """Return ``Partial(function, *arrays)``, from logits to values of tokens.

        ``function(*arrays, logits, labels)`` gets float32 logits [..., V], a block at a time. It
        costs little, because the loss computes the logits anyway. ``labels`` and ``weights``: of
        the batch. With ``further_passes`` the function gets ``(logits, losses)`` of the passes
        behind ``labels``. See ``LogitTerms``.
        """
        return None

    def init_params(self, config: ExperimentConfig, model: Any, key: Array) -> PyTree:
        """Return the parameters of the term, trained and saved beside the model."""
        return {}

    def of_pass(self, forced: ForcedPass) -> Array | None:
        """Return a sum over the tokens of the batch."""
        return None


class LossTerms:
    """The terms of ``training.loss_terms``, with hyperparameters that may be traced."""

    def __init__(self, config: ExperimentConfig, hyperparameters: Hyperparameters) -> None:
        parts = parts_with(config, hyperparameters)
        names = config.training.loss_term_names
        self._config = config
        self._terms: dict[str, LossTerm] = {name: registered("loss_term")[name](parts.get(name)) for name in names}

    @property
    def collections(self) -> list[str]:
        """The collections that the teacher-forced pass returns."""
        return [SOWN] if any(term.reads_sown for term in self._terms.values()) else []

    @property
    def further_passes(self) -> int:
        """Passes with other dropout masks, which the terms share."""
        return max((term.further_passes for term in self._terms.values()), default=0)

    def of_logits(self, labels: Array, weights: Array) -> dict[str, Partial]:
        """Return the terms that ``projected_cross_entropy`` adds. Raises ConfigError."""
        functions: dict[str, Partial] = {}
        for name, term in self._terms.items():
            signature = inspect.signature(term.of_logits)
            try:
                signature.bind(labels, weights)
            except TypeError:
                problem = f"of_logits of loss term {name!r} takes {signature}"
                raise ConfigError("training.loss_terms", problem, "write of_logits(self, labels, weights)") from None
            function = term.of_logits(labels, weights)
            if function is not None:
                functions[name] = function if term.further_passes else Partial(without_passes, function)
        return functions

    def init_params(self, model: Any, key: Array) -> dict[str, PyTree]:
        """Return ``{"loss_terms": {name: parameters}}`` of the terms that have parameters."""
        trees = {name: term.init_params(self._config, model, key) for name, term in self._terms.items()}
        params = {name: tree for name, tree in trees.items() if tree}
        return {LOSS_TERMS: params} if params else {}

    def of_pass(self, sums: LossSums, forced: ForcedPass) -> LossSums:
        """Add the terms of the pass to ``sums``."""
        for name, term in self._terms.items():
            value = term.of_pass(forced._replace(params=forced.params.get(name, {})))
            sums = sums if value is None else sums.with_term(name, value)
        return sums


def without_passes(function: Partial, logits: Array, labels: Array, *passes: Any) -> Array:
    """Call ``function`` with logits and labels alone."""
    return function(logits, labels)

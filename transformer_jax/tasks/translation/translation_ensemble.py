"""An ensemble of translation models, and its loss."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, PyTree
from transformer_jax.models.ensemble import Ensemble, joined_params, mean_log_probs
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy


class EnsembleObjective:
    """The ensemble of ``members`` and its loss, for evaluation only: members were trained alone."""

    def __init__(self, members: Sequence[TranslationObjective]) -> None:
        self._members = members
        self.model = Ensemble(tuple(member.model for member in members))
        limits = [member.longest_sequence for member in members if member.longest_sequence is not None]
        self.longest_sequence = min(limits, default=None)
        self.evaluation_dtype = ", ".join(dict.fromkeys(member.evaluation_dtype for member in members))

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> LossSums:
        """Return the cross entropy of the mean probabilities, a column of tokens at a time."""
        names = joined_params(self._members)
        factors = [call(member.model, params[name], "factors", *batch, train=False) for name, member in names.items()]
        precisions = [member.evaluation_precision for member in self._members]

        def loss_of_column(column: tuple[list[Array], Array, Array]) -> LossSums:
            hidden, labels, weights = column
            members = zip(factors, hidden, precisions, strict=True)
            logits = [factor._replace(hidden=of_member).logits(precision) for factor, of_member, precision in members]
            return label_smoothed_cross_entropy(mean_log_probs(logits), labels, weights, None)

        labels, weights = jnp.asarray(batch.target.ids), jnp.asarray(batch.target.segments != 0, jnp.float32)
        # From [B, T, ...] to columns [T, B, 1, ...].
        columns = jax.tree.map(
            lambda array: jnp.moveaxis(array[:, :, None], 1, 0),
            ([factor.hidden for factor in factors], labels, weights),
        )
        return jax.tree.map(jnp.sum, jax.lax.map(loss_of_column, columns))

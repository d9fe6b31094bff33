"""Multi-token prediction: the loss is its equation, and the model is the one without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import MeshConfig, from_dict, hyperparameters_of
from transformer_jax.kit.multi_token import Head
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.sharding import make_mesh

CAP = 0.5
SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2, "dropout": 0.0, "embedding_dropout": 0.0}
# The bias of the logits is a column of the output matrix that the heads do not have.
LANGUAGE_MODEL = {
    "task": "language_model",
    "tokenizer": {"kind": "byte"},
    "model": {**SIZES, "num_layers": 1, "logits_bias": True, "projection": "soft_capped"},
}
# Two sentences in the first row, and padding.
ROWS = Tokens(
    np.array([[5, 6, 7, 2, 8, 9, 2], [9, 5, 2, 0, 0, 0, 0]], np.int32),
    np.array([[1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 0, 0, 0, 0]], np.int32),
    np.array([[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 0, 0, 0, 0]], np.int32),
)


def objective(values, terms):
    values = values | {"training": {"loss_terms": terms, "label_smoothing": 0.0}}
    is_capped = values["model"].get("projection") == "soft_capped"
    values |= {"parts": {"soft_capped": {"cap": CAP}}} if is_capped else {}
    if terms:
        values["parts"] = values.get("parts", {}) | {"multi_token": {"tokens": 3, "weight": 0.5}}
    return objective_of(from_dict(values), make_mesh(MeshConfig(data=1), jax.devices()[:1]))


@pytest.mark.slow
def test_heads_predict_the_tokens_after_the_next_one_beside_the_parameters_of_the_model():
    with_heads, base = objective(LANGUAGE_MODEL, "multi_token"), objective(LANGUAGE_MODEL, "")
    params, plain = (jax.jit(item.init_params)(jax.random.key(0)) for item in (with_heads, base))
    jax.tree.map(np.testing.assert_array_equal, {name: params[name] for name in plain}, plain)
    heads = params["loss_terms"]["multi_token"]
    assert heads.keys() == {"head_2", "head_3"} and heads["head_2"].keys() == {"layer", "norm"}
    hyperparameters = hyperparameters_of(with_heads.config)

    @jax.jit
    def losses(params):
        model = with_heads.training_model(hyperparameters)
        hidden, matrix, _ = call(model, params, "factors", ROWS, train=False)
        result = [Head.of(model).apply({"params": heads[head]}, hidden[..., :8], ROWS, train=False) for head in heads]
        logits = [item @ matrix[:, :8].T + matrix[:, 8][None, None] for item in result]
        capped = [CAP * jnp.tanh(z / CAP) for z in logits]
        return with_heads.loss(params, ROWS, jax.random.key(1), hyperparameters), [
            jax.nn.log_softmax(z) for z in capped
        ]

    sums, log_probs = losses(params)
    expected = 0.0
    for distance, of_head in enumerate(log_probs, 1):
        for row, position in np.ndindex(2, 7 - distance):
            segment = ROWS.segments[row, position]
            if segment and ROWS.segments[row, position + distance] == segment:
                expected -= 0.5 * of_head[row, position, ROWS.ids[row, position + distance]]
    assert float(sums.extras["multi_token"]) == pytest.approx(float(expected), rel=1e-5)
    assert float(sums.loss) == pytest.approx(float(sums.nll + expected), rel=1e-5)

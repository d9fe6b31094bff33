"""Lion: the sign of a momentum as the direction of every update (Chen et al. 2023).

transformer-jax train --plugin=examples/lion_optimizer.py --config=quickstart --config.optimizer.name=lion \
    --config.optimizer.learning_rate=3e-4 --workdir=runs/lion
"""

import optax

import transformer_jax


@transformer_jax.register("optimizer", "lion")
def lion(hyperparameters):
    return [optax.scale_by_lion(hyperparameters.b1, hyperparameters.b2)]

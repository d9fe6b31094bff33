"""Our side: the model, the loss and the compiled step that ``transformer-jax train`` uses, none of
it special."""

import sys
from dataclasses import replace

from stopwatch import limit_cores, parse_arguments, time_steps


def main() -> None:
    """Trains on the recorded batches and writes the times."""
    arguments = parse_arguments(("--compute_dtype", {"choices": ["float32", "bfloat16"], "default": "float32"}))
    limit_cores(arguments.threads)
    # After the limit: JAX counts the cores when it starts.
    import jax

    from transformer_jax.config import hyperparameters_of
    from transformer_jax.tasks.translation.translation_objective import TranslationObjective
    from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
    from transformer_jax.training.update import Update

    config, vocabulary = arguments.workload.config, arguments.workload.vocabulary_size
    config = replace(config, model=replace(config.model, compute_dtype=arguments.options.compute_dtype))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    objective = TranslationObjective(config, vocabulary, vocabulary, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    state, hyperparameters = update.initial_state(config.seed), put_hyperparameters(hyperparameters_of(config), mesh)
    compiled = update.jitted

    def step(batch) -> float:
        nonlocal state
        state, metrics = compiled(state, put_batch(batch, mesh), hyperparameters)
        return float(metrics.sums.loss) / float(metrics.sums.tokens)

    time_steps(step, arguments)
    if "tensorflow" in sys.modules:
        sys.exit("tensorflow was imported: its threads share the cores")


if __name__ == "__main__":
    main()

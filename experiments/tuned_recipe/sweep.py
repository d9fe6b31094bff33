"""What does a search gain? ``:search`` looks for the numbers of a recipe, ``:confirm`` trains old
and new with three seeds.

    transformer-jax sweep --sweep=experiments/tuned_recipe/sweep.py:search --workdir=runs/search --workers=2 \\
        --config.data.directory=multi30k
    transformer-jax sweep --sweep=experiments/tuned_recipe/sweep.py:confirm --workdir=runs/confirm --workers=2 \\
        --config.data.directory=multi30k
"""

from transformer_jax.tools.study.sweeps import Integers, LogUniform, Sweep, Uniform

VARIANTS = ("search", "confirm")

RECIPE = "configs/multi30k.py:tiny_minutes"
# The recipe before the search; now it has what was found.
BEFORE = {
    "optimizer.learning_rate": 2.5e-3,
    "optimizer.warmup_updates": 100,
    "optimizer.b2": 0.98,
    "model.dropout": 0.2,
    "model.embedding_dropout": 0.1,
    "training.label_smoothing": 0.1,
}
# The best trial of the search, rounded.
FOUND = {
    "optimizer.learning_rate": 2.1e-3,
    "optimizer.warmup_updates": 310,
    "optimizer.b2": 0.987,
    "model.dropout": 0.085,
    "model.embedding_dropout": 0.065,
    "training.label_smoothing": 0.125,
}
# Rates that are 0 would be another program: what is off is not there at all.
SPACE = {
    "optimizer.learning_rate": LogUniform(5e-4, 1e-2),
    "optimizer.warmup_updates": Integers(20, 400),
    "optimizer.b2": Uniform(0.95, 0.999),
    "model.dropout": Uniform(0.01, 0.3),
    "model.embedding_dropout": Uniform(0.01, 0.3),
    "training.label_smoothing": Uniform(0.01, 0.2),
}


def get_sweep(variant: str) -> Sweep:
    """The search on the first 256 validation sentences, or old and new with three seeds on all of
    them."""
    if variant == "search":
        often = {"training.evaluate_every": 200, "training.validation_sentences": 256}
        often["training.validation_beam_width"] = 0
        return Sweep(config=RECIPE, overrides=often, space=SPACE, sampler="tpe", pruner="median", trials=20)
    rows = {"before": BEFORE, "found": FOUND}
    whole = {"training.validation_sentences": 0, "training.validation_beam_width": 0}
    return Sweep(config=RECIPE, overrides={"data.seed": 0, **whole}, rows=rows, seeds=(1, 2, 3))

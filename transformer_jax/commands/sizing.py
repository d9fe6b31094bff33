"""Settings of ``train`` that follow from the corpus and a budget of time."""

import itertools
import time
from pathlib import Path

from absl import flags

from transformer_jax.commands.flag_parsing import overrides_of, resolve_config
from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    apply_overrides,
    from_dict,
    load_recipe,
    load_run_config,
    without_its_cache,
)
from transformer_jax.config.python_files import names_in_file
from transformer_jax.config.recipes import find_recipe
from transformer_jax.config.sizing import Corpus, plan_of, seconds_of

SAMPLED_PAIRS = 10_000
PRODUCT_WIDTH, MEASURED_SECONDS = 768, 0.5


def sized_config(values: flags.FlagValues) -> tuple[ExperimentConfig, str]:
    """The settings that the flags state, and a line that says what was chosen by --budget, or by the recipe's ``BUDGET``.

    A run that has begun keeps its size. Raises ConfigError when the size of something else than translated text is asked for.
    """
    budget = values.budget or _budget_of(values.config)
    config = resolve_config(values)
    if budget is None:
        return config, ""
    if config.task != "translation" or config.data.source != "text":
        raise ConfigError(
            "--budget: sizes a translation of text files (data.source=text); for others set the sizes yourself"
        )
    from transformer_jax.checkpoints.run_directory import RunDirectory

    directory = RunDirectory(values.workdir)
    if directory.has_checkpoints() and directory.config.is_file():
        base = without_its_cache(load_run_config(directory.path))
        return resolve_config(values, base=base), "the run keeps its size"
    corpus = _measured(config)
    plan = plan_of(corpus, seconds_of(budget), _flops())
    stated = apply_overrides(load_recipe(values.config), [(key, str(value)) for key, value in plan.settings().items()])
    return from_dict(apply_overrides(stated, overrides_of(values))), f"{plan.text(corpus)}; budget {budget}"


def _budget_of(spec: str | None) -> str | None:
    if not spec or Path(spec).expanduser().is_dir() or spec.endswith(".json"):
        return None
    found = names_in_file(find_recipe(spec.partition(":")[0])).get("BUDGET")
    return None if found is None else str(found)


def _measured(config: ExperimentConfig) -> Corpus:
    """Counted pairs, and the mean length of the first ones."""
    from transformer_jax.data.corpora import open_corpus

    source = open_corpus(config.data, config.data_seed)
    split = config.data.train_split
    words = [
        max(len(pair.source.split()), len(pair.target.split()))
        for pair in itertools.islice(source.pairs(split), SAMPLED_PAIRS)
    ]
    return Corpus(max(source.count(split), 1), sum(words) / max(len(words), 1))


def _flops() -> float:
    """Floating-point operations per second of the fastest of some matrix products in float32 on this CPU."""
    import numpy as np

    matrix = np.ones((PRODUCT_WIDTH, PRODUCT_WIDTH), np.float32)
    fastest, ends = float("inf"), time.perf_counter() + MEASURED_SECONDS
    while time.perf_counter() < ends:
        started = time.perf_counter()
        matrix @ matrix
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * PRODUCT_WIDTH**3 / fastest

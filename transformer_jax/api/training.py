"""Training in Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer_jax.api.loaded_run import Run, as_overrides, load, python_errors
from transformer_jax.config import ExperimentConfig, to_dict
from transformer_jax.config.run_settings import with_selected_parts
from transformer_jax.errors import complain
from transformer_jax.runs.run import Hook
from transformer_jax.runs.train_run import settings_to_train, train_run


def train(
    config: str | ExperimentConfig | ConfigDict | Mapping[str, Any],
    workdir: str | Path,
    callbacks: Sequence[Hook] = (),
    *,
    settings: Mapping[str, object] | None = None,
    budget: str | None = None,
) -> Run:
    """Train a run, or resume the one in ``workdir`` (also ``s3://...``), and return it.

    The result has its best checkpoint. ``config``: a recipe (``"multi30k:tiny_hour"``,
    ``"mine.py"``), nested settings, or an ``ExperimentConfig``. ``settings`` override single ones:
    ``{"training.num_updates": 500}``. ``budget``, such as ``"20m"``: selects sizes that the
    settings leave open; the recipe ``"text"`` has one. ``callbacks``: functions ``hook(run,
    position)``, called after every update; a ``Callback`` has methods for logs, validations and
    checkpoints. An interruption (Ctrl-C) saves and returns. The same call resumes.

    Raises:
        ConfigError, DataError: Mistakes that the caller can correct.
        TrainingDiverged: Loss or gradient were not finite.
    """
    with python_errors():
        overrides = as_overrides(settings)
        if isinstance(config, ExperimentConfig):
            config = with_selected_parts(to_dict(config), overrides)
        resolved, origin = settings_to_train(config, overrides, str(workdir), budget)
        outcome = train_run(resolved, workdir, callbacks, origin=origin)
        for sign in outcome.signs:
            complain(f"WARNING: {sign}")
        return load(workdir)

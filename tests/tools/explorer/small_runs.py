"""Untrained runs of models of a few thousand parameters."""

import jax
import numpy as np
from run_settings import tiny_settings
from tasks.language_model_settings import language_model_config

from transformer_jax.config import from_dict
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.training.sharding import make_mesh

RNN = {"kind": "rnn", "d_embedding": 12, "d_hidden": 12, "d_attention": 10}
LOCATION = {"attention": "location_sensitive", "wiring": "bahdanau", "cell": "gru", "location_taps": 4}


def translation_run(cache, noise=0.3, **model):
    settings = tiny_settings(cache)
    settings["model"] = model if "kind" in model else settings["model"] | model
    return _run(TranslationTask, from_dict(settings), noise)


def language_model_run(cache, parts=None, **model):
    decoding = {"max_new_tokens": 6, "beam_width": 3}
    return _run(LanguageModelTask, language_model_config(cache, model=model, decoding=decoding, parts=parts or {}))


def _run(task_class, config, scale=0.3):
    """With noise: biases and norms that change something, and values that float16 does not round to
    nothing."""
    task = task_class(config, task_class.new_tokenizers(config), make_mesh(config.mesh, jax.devices()[:1]))
    params = jax.jit(task.objective.init_params)(jax.random.key(0))
    noise = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: leaf + scale * noise.standard_normal(leaf.shape).astype(np.float32), params)
    return TrainedRun(task, params, (1,))

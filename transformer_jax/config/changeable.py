"""Settings that may change when a run resumes."""

from transformer_jax.config.experiment import ExperimentConfig

# Settings that may change when a run resumes: they alter neither the model nor the order of its updates. Of scores alone
# evaluation.bleu_tokenizer changes the figures, which is said.
CHANGEABLE = (
    "training.log_every",
    "training.patience",
    "training.keep_last",
    "training.keep_best",
    "training.trackers",
    "training.validation_metrics",
    "training.skip_nonfinite",
    "training.hang_factor",
    "training.deterministic",
    "training.budget_",
    "data.directory",
    "data.train",
    "data.validation",
    "data.test",
    "data.download",
    "data.source_language",
    "data.target_language",
    "data.cache_directory",
    "batching.prefetch_batches",
    "decoding.batch_tokens",
    "decoding.max_source_tokens",
    "evaluation.metrics",
    "evaluation.bleu_tokenizer",
    "mesh.",
    "model.attention_backend",
    "model.scan_layers",
    "model.rematerialize",
)


def may_change(key: str, saved: ExperimentConfig, config: ExperimentConfig) -> bool:
    """Whether a run that was ``saved`` may resume as ``config``, which differs in ``key``."""
    if key == "init.embeddings":
        # Nor at the file of its first embeddings; one that had none cannot get some now.
        return bool(saved.init.embeddings)
    if key.startswith("init."):
        # A run that resumes no longer looks at the other: that may be gone, or lie elsewhere now.
        return bool(saved.init.run) and (not config.init.run or key == "init.run")
    if key == "training.num_updates":
        # These end at the last update, so that every rate depends on how many there are.
        return config.optimizer.schedule not in ("cosine", "linear")
    if key == "model.compute_dtype":
        # The dtype resolved when the run began stays, on any hardware.
        return config.model.compute_dtype == "auto"
    if key == "evaluation.selection":
        # Where the command leaves it open the run keeps its own.
        return not config.evaluation.selection
    return key.startswith(CHANGEABLE)

"""Migration of settings and counters that versions from 0.1 on (commit f87273f) saved."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from transformer_jax.errors import ConfigError

# Raise it when a key or its meaning changes, not for a new key whose default is the old behavior.
SCHEMA_VERSION = 3
RENAMED = {"model.rematerialise": "model.rematerialize", "data.file": "data.train"}
"""Keys of schema versions 1 and 2, and their names now."""
REMOVED: dict[str, object] = {
    "decoding.shortlist": "",
    "decoding.diverse_groups": 1,
    "decoding.diversity": 0.5,
    "decoding.mbr": "",
    "decoding.samples": 16,
    "decoding.epsilon": 0.02,
    "decoding.sampling_seed": 0,
    "decoding.neighbors": 10,
    "training.local_checkpoint_every": 0,
}
"""Removed settings, with the value that had no effect."""
RENAMED_VALUES = {"model.feed_forward": {"gated_gelu": "geglu", "gated_silu": "swiglu"}}
NAMED_ONCE = (
    *("training.loss_terms", "training.corruptions", "training.watch", "training.trackers"),
    *("training.validation_metrics", "evaluation.metrics"),
)
"""Lists in which versions before 0.4 accepted a name twice."""
# Versions without this block scored all translations so.
EVALUATION = {"evaluation": {"bleu_tokenizer": "13a", "selection": "bleu"}}


def migrated(saved: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return settings of a schema version with the keys of this one. Warns about removed ones."""
    renamed = RENAMED if version < SCHEMA_VERSION else {}
    values = dict(saved)
    for block, fields in saved.items():
        if isinstance(fields, Mapping):
            values[block] = {}
            for name, value in fields.items():
                key = f"{block}.{name}"
                if key not in REMOVED:
                    now = RENAMED_VALUES.get(key, {}).get(value, value) if isinstance(value, str) else value
                    if key in NAMED_ONCE and isinstance(now, str):
                        now = ",".join(dict.fromkeys(filter(None, map(str.strip, now.split(",")))))
                    values[block][renamed.get(key, key).partition(".")[2]] = now
                elif value != REMOVED[key]:
                    warnings.warn(f"{key}={value} is ignored: the setting was removed", stacklevel=3)
    return values


def corruptions_applied_twice(content: Mapping[str, Any]) -> list[str]:
    """Return corruptions that a run names twice, which versions before 0.4 applied twice."""
    text = content["config"].get("training", {}).get("corruptions", "")
    names = [name.strip() for name in text.split(",")]
    return sorted({name for name in names if name and names.count(name) > 1})


def decoding_of_report(saved: Mapping[str, Any], now: Any) -> dict[str, Any]:
    """Return decoding settings of a saved report, with defaults for new settings."""
    return asdict(type(now)()) | migrated({"decoding": saved}, SCHEMA_VERSION)["decoding"]


def key_error(key: str) -> ConfigError | None:
    """Return the error for a key that was removed or renamed, or None."""
    if key in REMOVED:
        return ConfigError(key, "was removed", "leave it out")
    return ConfigError(key, "unknown key", f"it is {RENAMED[key]} now") if key in RENAMED else None


def counters(saved: Mapping[str, Any], step: int, evaluate_every: int) -> dict[str, Any]:
    """Return the counters in the checkpoint of update ``step``.

    Version 0.1 named the best value ``best_bleu``. Version 0.3 validated at multiples of
    ``evaluate_every`` and did not count that.
    """
    renamed = {"best" if name == "best_bleu" else name: value for name, value in saved.items()}
    return {"validated_at": step - step % max(evaluate_every, 1)} | renamed


def earlier_digest(config: Any, open_source: Callable[[Any], Any]) -> str:
    """Return the digest of training data before 0.3, with modification times of large files."""
    return "" if config.data.store else open_source(config).fingerprint(config.data.train_split)

"""Settings of a run: frozen, validated dataclasses, and their strict conversion from ml_collections.

The field of a setting states its type, default, meaning, choices and bounds: see ``setting``. Nothing here imports JAX, so that
a wrong setting is reported before a device is used.
"""

from transformer_jax.config.checks import setting
from transformer_jax.config.conversion import (
    apply_overrides,
    difference,
    flatten,
    from_dict,
    from_json,
    to_dict,
    to_json,
)
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.config.evaluation import Metric
from transformer_jax.config.experiment import (
    ExperimentConfig,
    Hyperparameters,
    Number,
    Rates,
    hyperparameters_of,
    may_change,
    parts_with,
    rates_of,
)
from transformer_jax.config.language_model import (
    DecoderOnlyConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
)
from transformer_jax.config.model import InitConfig, RnnConfig, TransformerConfig, TransformerLayersConfig
from transformer_jax.config.optimization import MeshConfig, OptimizerConfig, TrainingConfig
from transformer_jax.config.parts import Parts, default_parts
from transformer_jax.config.recipes import (
    config_for_use,
    load_recipe,
    load_run_config,
    on_any_devices,
    resolve,
    without_its_cache,
)
from transformer_jax.config.translation import DecodingConfig

__all__ = [
    "BatchingConfig",
    "ConfigError",
    "DataConfig",
    "DataError",
    "DecoderOnlyConfig",
    "DecodingConfig",
    "ExperimentConfig",
    "GenerationConfig",
    "Hyperparameters",
    "InitConfig",
    "MeshConfig",
    "Metric",
    "Number",
    "OptimizerConfig",
    "Parts",
    "Rates",
    "RnnConfig",
    "TextBatchingConfig",
    "TextDataConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "TransformerLayersConfig",
    "apply_overrides",
    "config_for_use",
    "default_parts",
    "difference",
    "flatten",
    "from_dict",
    "from_json",
    "hyperparameters_of",
    "load_recipe",
    "load_run_config",
    "may_change",
    "on_any_devices",
    "parts_with",
    "rates_of",
    "resolve",
    "setting",
    "to_dict",
    "to_json",
    "without_its_cache",
]

"""Settings of a run: frozen, validated dataclasses, and their strict conversion from ml_collections.

Nothing here imports JAX: a wrong setting is found before any device is touched.
"""

from transformer_jax.config.changeable import may_change
from transformer_jax.config.conversion import difference, flatten, from_dict, to_dict
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.decoding import DecodingConfig
from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.hyperparameters import (
    Hyperparameters,
    Number,
    Rates,
    hyperparameters_of,
    rates_of,
    structure_of,
)
from transformer_jax.config.initialization import InitConfig
from transformer_jax.config.language_model import (
    DecoderOnlyConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
)
from transformer_jax.config.metric import Metric
from transformer_jax.config.model import TransformerConfig, TransformerLayersConfig
from transformer_jax.config.optimization import MeshConfig, OptimizerConfig, TrainingConfig
from transformer_jax.config.overrides import apply_overrides
from transformer_jax.config.recipes import load_recipe
from transformer_jax.config.rnn import RnnConfig
from transformer_jax.config.saved import (
    config_for_use,
    from_json,
    load_run_config,
    on_any_devices,
    resolve,
    to_json,
    without_its_cache,
)
from transformer_jax.config.word_vectors import (
    BlockConfig,
    GloveConfig,
    NoDecodingConfig,
    Word2vecConfig,
    WordTextConfig,
)

__all__ = [
    "BatchingConfig",
    "BlockConfig",
    "ConfigError",
    "DataConfig",
    "DataError",
    "DecoderOnlyConfig",
    "DecodingConfig",
    "ExperimentConfig",
    "GenerationConfig",
    "GloveConfig",
    "Hyperparameters",
    "InitConfig",
    "MeshConfig",
    "Metric",
    "NoDecodingConfig",
    "Number",
    "OptimizerConfig",
    "Rates",
    "RnnConfig",
    "TextBatchingConfig",
    "TextDataConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "TransformerLayersConfig",
    "Word2vecConfig",
    "WordTextConfig",
    "apply_overrides",
    "config_for_use",
    "difference",
    "flatten",
    "from_dict",
    "from_json",
    "hyperparameters_of",
    "load_recipe",
    "load_run_config",
    "may_change",
    "on_any_devices",
    "rates_of",
    "resolve",
    "structure_of",
    "to_dict",
    "to_json",
    "without_its_cache",
]

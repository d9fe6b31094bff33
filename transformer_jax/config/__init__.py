"""Settings of a run: frozen, validated dataclasses, converted strictly from ml_collections.

The field of a setting has its type, default, meaning, choices and bounds: see ``setting``. Nothing
here imports JAX, so that a wrong setting is reported before a device is used.
"""

from transformer_jax.config.checks import setting as setting
from transformer_jax.config.conversion import apply_overrides as apply_overrides
from transformer_jax.config.conversion import difference as difference
from transformer_jax.config.conversion import flatten as flatten
from transformer_jax.config.conversion import from_dict as from_dict
from transformer_jax.config.conversion import from_json as from_json
from transformer_jax.config.conversion import to_dict as to_dict
from transformer_jax.config.conversion import to_json as to_json
from transformer_jax.config.data import BatchingConfig as BatchingConfig
from transformer_jax.config.data import DataConfig as DataConfig
from transformer_jax.config.data import TokenizerConfig as TokenizerConfig
from transformer_jax.config.experiment import ExperimentConfig as ExperimentConfig
from transformer_jax.config.experiment import may_change as may_change
from transformer_jax.config.hyperparameters import Hyperparameters as Hyperparameters
from transformer_jax.config.hyperparameters import Rates as Rates
from transformer_jax.config.hyperparameters import hyperparameters_of as hyperparameters_of
from transformer_jax.config.hyperparameters import parts_with as parts_with
from transformer_jax.config.hyperparameters import rates_of as rates_of
from transformer_jax.config.hyperparameters import scheduled_hyperparameters_of as scheduled_hyperparameters_of
from transformer_jax.config.model import InitConfig as InitConfig
from transformer_jax.config.model import RnnConfig as RnnConfig
from transformer_jax.config.model import TransformerConfig as TransformerConfig
from transformer_jax.config.model import TransformerLayersConfig as TransformerLayersConfig
from transformer_jax.config.optimization import MeshConfig as MeshConfig
from transformer_jax.config.optimization import OptimizerConfig as OptimizerConfig
from transformer_jax.config.optimization import TrainingConfig as TrainingConfig
from transformer_jax.config.parts import default_parts as default_parts
from transformer_jax.config.recipes import load_recipe as load_recipe
from transformer_jax.config.run_settings import config_for_use as config_for_use
from transformer_jax.config.run_settings import load_run_config as load_run_config
from transformer_jax.config.run_settings import on_any_devices as on_any_devices
from transformer_jax.config.run_settings import resolve as resolve
from transformer_jax.config.run_settings import without_its_cache as without_its_cache
from transformer_jax.config.tasks import Metric as Metric
from transformer_jax.config.translation import DecodingConfig as DecodingConfig
from transformer_jax.config.update_schedules import Number as Number
from transformer_jax.errors import ConfigError as ConfigError
from transformer_jax.errors import DataError as DataError

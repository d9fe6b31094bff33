from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.run_settings import budget_of
from transformer_jax.errors import complain
from transformer_jax.registry.index import single_behind

if TYPE_CHECKING:
    from transformer_jax.data.tokenization import Tokenization


@runtime_checkable
class Tokenizes(Protocol):
    """A task whose training split can be tokenized before training begins."""

    def tokenization(self) -> "Tokenization[Any]":
        """Return how the training split is tokenized."""


@flags.command(
    flags.config,
    flags.string("output", "", "folder or address (s3://, gs://) of a store for data.store (default: the cache)"),
    flags.string("shard", None, "INDEX/COUNT, such as 3/64: only this shard of --output; indices begin with 0"),
)
def tokenize(values: flags.Values) -> int:
    """Tokenize the training split of a recipe, so that training begins at once.

    Example:
        transformer-jax tokenize --config=transformer_base
            --config.data.cache_directory=/shared/cache
        transformer-jax tokenize --config=transformer_base --output=s3://bucket/tokens --shard=3/64

    Training with the same settings of data and tokenizer finds the result in data.cache_directory,
    or with --output in data.store. The tokenizers are trained first, on a sample of
    tokenizer.training_sentences, unless cache or store have them.

    With --output and --shard one process tokenizes one of COUNT equal shards: start a process for
    each, as jobs of an array, in any order and on any machines. Run the first alone if they should
    not all train the tokenizers. A shard that exists is not tokenized again, so a job that was
    killed can be repeated. The process that completes the last shard finishes the store. Until then
    training names missing shards and ends. The result is the same as without shards.

    Machines may have copies of the text. They need the same content, and files of parallel text the
    same names.
    """
    import jax

    from transformer_jax.config import MeshConfig
    from transformer_jax.data.corpora import completed
    from transformer_jax.data.examination import examined
    from transformer_jax.data.stores import add_tokenizers, open_split, shared_tokenizers, write_shard
    from transformer_jax.data.tokenization import WHOLE_SPLIT, Shard
    from transformer_jax.runtime.hardware import resolve_for_device, settings_on, start_jax
    from transformer_jax.tasks.new_tokenizers import cached_tokenizers
    from transformer_jax.tasks.task import task_that
    from transformer_jax.training.sharding import make_mesh

    shard = Shard.parse(values.shard) if values.shard is not None else WHOLE_SPLIT
    config, remark = completed(checked_config(values))
    print(remark, end="\n" * bool(remark))
    for warning in () if shard.index else examined("run", config, only_training=True):
        complain(warning)
    start_jax(config.data.cache_directory)
    config = resolve_for_device(config, lambda: settings_on(jax.local_devices()[0]))
    task_type = task_that(Tokenizes, config, "tokenize", f"task={config.task} tokenizes when training begins")
    if values.output:
        # The seed selects their sample: jobs that write a store need the same seed, runs do not.
        settings = asdict(config.tokenizer) | {"data.seed": config.data_seed}
        add_tokenizers(values.output, settings, partial(cached_tokenizers, config, task_type))
        tokenizers = shared_tokenizers(values.output, settings, "--output")
    else:
        tokenizers = cached_tokenizers(config, task_type)
    work, cache = task_type(config, tokenizers, make_mesh(MeshConfig())).tokenization(), config.data.cache_directory
    outcome = f"the training split is tokenized in {values.output or cache}"
    if not values.output:
        open_split(work, cache)
    elif missing := write_shard(work, values.output, cache, shard):
        listed = ", ".join(f"{index}/{shard.count}" for index in missing)
        outcome = f"shard {values.shard} is tokenized; missing: {listed}"
    print(outcome)
    return 0


def checked_config(values: flags.Values) -> ExperimentConfig:
    """Return the settings of ``tokenize``, without reading text. Raises ConfigError."""
    recipe, overrides = flags.required_config(values), flags.overrides_of(values)
    if require_stated := single_behind("require_stated"):
        require_stated(recipe, overrides, None, "tokenize")
    elif budget_of(recipe, overrides):
        raise ConfigError(
            "tokenize", f"--config={recipe} gets its sizes from a budget", "take a recipe that states them"
        )
    config = flags.resolve_config(values)
    if config.data.store:
        raise ConfigError("data.store", "is read by train", "tokenize writes --output")
    if values.shard and not values.output:
        raise ConfigError("--shard", "shards need a store", "add --output=/shared/tokens or an address, for data.store")
    if values.output and config.init.run and config.init.tokenizer == "adopt":
        raise ConfigError(
            "init.run", "training adopts its tokenizers, and a store has its own", "use init.tokenizer=new"
        )
    return config

from dataclasses import replace

from transformer_jax.commands import flags


@flags.command(
    flags.config,
    flags.string("shard", None, "INDEX/COUNT, such as 3/64: only this shard; indices begin with 0"),
)
def tokenize(values: flags.Values) -> int:
    """Tokenize the training split of a recipe, so that training begins at once.

    Example:
        transformer-jax tokenize --config=transformer_base --config.data.cache_directory=/shared/cache
        transformer-jax tokenize --config=transformer_base --config.data.cache_directory=/shared/cache --shard=3/64

    Training with the same settings of data and tokenizer finds the result in data.cache_directory. The tokenizers are
    trained first, on a sample of tokenizer.training_sentences, unless the cache has them.

    With --shard one process tokenizes one of COUNT equal shards: start one for each, as jobs of an array, in any order and
    on any machines that share the cache and the files of the text (a copy has another digest); run the first alone if they
    should not all train the tokenizers. The process that completes the last shard joins them. The result is the same as
    without shards. A shard that exists is not tokenized again, so a job that was killed can be repeated. Until all shards
    are joined, training names missing ones and ends.
    """
    import jax

    from transformer_jax.config import MeshConfig
    from transformer_jax.data.cached_stores import WHOLE_SPLIT, Shard
    from transformer_jax.data.corpora import with_languages
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.runtime.hardware import resolve_for_device, settings_on
    from transformer_jax.tasks.run_tokenizers import new_tokenizers
    from transformer_jax.tasks.task import task_class
    from transformer_jax.training.sharding import make_mesh

    shard = Shard.parse(values.shard) if values.shard is not None else WHOLE_SPLIT
    config, remark = with_languages(flags.resolve_config(values))
    print(remark, end="\n" * bool(remark))
    start_jax(config.data.cache_directory)
    config = resolve_for_device(
        replace(config, data=config.data.absolute()), lambda: settings_on(jax.local_devices()[0])
    )
    task_type = task_class(config.task)
    task = task_type(config, new_tokenizers(config, task_type), make_mesh(MeshConfig()))
    missing = task.tokenize(shard)
    where = f"the training split is tokenized in {config.data.cache_directory}"
    if missing:
        listed = ", ".join(f"{index}/{shard.count}" for index in missing)
        where = f"shard {values.shard} is tokenized; missing: {listed}"
    print(where)
    return 0

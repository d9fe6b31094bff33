"""Write a trained model in the format of another toolkit, and prove that it computes the same there.

Example:
    transformer-jax export --workdir=runs/m30k --format=ctranslate2 --output=m30k-ct2
    transformer-jax export --workdir=runs/m30k --format=ctranslate2 --quantization=int8 --output=m30k-int8 --average=5

Formats: ctranslate2; huggingface (a Marian model of transformers, a GPT-2 of a language model); safetensors (an archive with
settings, tokenizers, and a manifest with digests); stablehlo (programs for --batch_size sources of --source_length tokens).
--output is a new folder: it appears whole or not at all. The exported model is then loaded and compared with the run, as verify
does, on the first sentences of --text (default: the validation split); --no_verify skips this. Exit status 1: the two differ
by more than the tolerance. The libraries: pip install ctranslate2 safetensors torch transformers.
"""

from pathlib import Path

from absl import flags

from transformer_jax.commands.compared_texts import define_text_flags, texts_to_compare
from transformer_jax.commands.run_flags import define_run_flags, run_config
from transformer_jax.config import ConfigError
from transformer_jax.tools.interop.formats import EXPORTED, format_module, open_counterpart

OPTIONS = {"ctranslate2": ("quantization",), "stablehlo": ("batch_size", "source_length")}
QUANTIZATIONS = ("float32", "float16", "int8")


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_enum("format", None, EXPORTED, "format to write", flag_values=values, required=True)
    flags.DEFINE_string("output", None, "folder to write", flag_values=values, required=True)
    meaning = "precision of the weights (ctranslate2)"
    flags.DEFINE_enum("quantization", "float32", QUANTIZATIONS, meaning, flag_values=values)
    flags.DEFINE_integer("batch_size", 8, "sources at once (stablehlo)", flag_values=values, lower_bound=1)
    meaning = "most tokens of a source, EOS included (stablehlo)"
    flags.DEFINE_integer("source_length", 128, meaning, flag_values=values, lower_bound=2)
    flags.DEFINE_boolean("no_verify", False, "do not compare the exported model with the run", flag_values=values)
    define_text_flags(values)


def run(values: flags.FlagValues) -> int:
    """Exports; 0, or 1 when the comparison fails."""
    config = run_config(values)
    output = Path(values.output).expanduser().resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--output: {output} is there already; give a new folder")
    options = {name: values[name].value for name in OPTIONS.get(values.format, ())}
    for name in (name for names in OPTIONS.values() for name in names):
        if values[name].present and name not in options:
            raise ConfigError(f"--{name}: not an option of --format={values.format}; leave it out")
    from transformer_jax.evaluation.text_table import text_table
    from transformer_jax.runtime.atomic_files import appearing_folder, require_writable
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tools.interop.opened_model import open_model
    from transformer_jax.tools.interop.parity import compare

    require_writable(output.parent, "--output")
    start_jax(config.data.cache_directory)
    model = open_model(values.workdir, config, checkpoint=values.checkpoint, average=values.average)
    texts = texts_to_compare(values, model)
    with appearing_folder(output) as folder:
        format_module(values.format).export(model, folder, texts, **options)
    print(f"{output}: {values.format}, checkpoint {', '.join(map(str, model.steps))} of {values.workdir}")
    if values.no_verify:
        return 0
    found = compare(model, open_counterpart(output, model), texts)
    print(text_table(found.rows()))
    return 0 if found.holds else 1

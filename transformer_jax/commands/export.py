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
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, run_config
from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.interop.formats import EXPORTED, format_module, open_counterpart

if TYPE_CHECKING:
    from transformer_jax.tools.interop.opened_model import OpenedModel

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


def define_text_flags(values: flags.FlagValues) -> None:
    """``--text`` and ``--sentences``, which name the sentences to compare."""
    meaning = "file of source sentences to compare on, plain or .gz; default: the validation split"
    flags.DEFINE_string("text", None, meaning, flag_values=values)
    flags.DEFINE_integer("sentences", 100, "how many to compare", flag_values=values, lower_bound=1)


def texts_to_compare(values: flags.FlagValues, model: "OpenedModel") -> list[str]:
    """Sentences of ``--text``, or of the validation split of the run; without it, and with ``--no_verify``, none.

    Raises DataError where there is no sentence, ConfigError, which names ``--text``, where the data of the run cannot be read.
    """
    from transformer_jax.data.text_files import read_lines

    if values.text is not None:
        texts = [line for line in read_lines(Path(values.text).expanduser()) if line.strip()][: values.sentences]
        if not texts:
            raise DataError(f"{values.text}: no sentence in it")
        return texts
    try:
        return model.validation_texts(values.sentences)
    except (ConfigError, DataError) as error:
        if "no_verify" in values and values.no_verify:
            return []
        raise ConfigError(f"{error}; name a file of source sentences with --text") from None

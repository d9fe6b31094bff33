"""Make a run directory, for every command, of a model that export or another toolkit wrote.

Example:
    transformer-jax import --format=safetensors --input=m30k-archive --workdir=runs/again
    transformer-jax import --format=huggingface --input=opus-mt-en-de --workdir=runs/opus
    transformer-jax import --format=huggingface --input=nllb --source_language=eng_Latn --target_language=deu_Latn --workdir=new

Formats: huggingface (the folder of a Marian model such as OPUS-MT, of M2M-100, of NLLB, or of a GPT-2 that export wrote);
fairseq (a checkpoint beside its dict.*.txt and codes); safetensors (written by export). No code in the input is run: a pickle
that holds more than tensors and settings is refused. Data, decoding and training are set as for train, for example
--config.data.source=text --config.data.directory=data/wmt; model and tokenizers are fixed by the input. The run directory
appears whole or not at all. Fine-tune with train --config=RUN --config.init.run=RUN. The libraries: pip install safetensors
torch transformers.
"""

from dataclasses import replace
from pathlib import Path

from absl import flags

from transformer_jax.commands.flag_parsing import define_override_flag, resolve_config
from transformer_jax.config import ConfigError, difference
from transformer_jax.tools.interop.formats import IMPORTED, format_module

LANGUAGES = ("source_language", "target_language")
FIXED = ("task", "model.", "tokenizer.")


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_enum("format", None, IMPORTED, "format to read", flag_values=values, required=True)
    flags.DEFINE_string("input", None, "folder or file to read", flag_values=values, required=True)
    flags.DEFINE_string("workdir", None, "folder of the new run", flag_values=values, required=True)
    for name in LANGUAGES:
        flags.DEFINE_string(name, None, "language of M2M-100 and NLLB (huggingface)", flag_values=values)
    define_override_flag(values)


def run(values: flags.FlagValues) -> int:
    """Imports; 0."""
    source, workdir = Path(values.input).expanduser(), Path(values.workdir).expanduser().resolve()
    if not source.exists():
        raise ConfigError(f"--input: {source} does not exist")
    if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
        raise ConfigError(f"--workdir: {workdir} is there already; give a new folder")
    languages = {name: values[name].value for name in LANGUAGES if values[name].value is not None}
    if languages and values.format != "huggingface":
        raise ConfigError(f"--{next(iter(languages))}: not an option of --format={values.format}; leave it out")
    from transformer_jax.runtime.atomic_files import appearing_folder, require_writable

    require_writable(workdir.parent, "--workdir")
    found = format_module(values.format).read(source, **languages)
    config = resolve_config(values, base=found.config)
    for key, before, _ in difference(found.config, config):
        if key.startswith(FIXED):
            raise ConfigError(f"--config.{key}: the imported model has {before!r}")
    with appearing_folder(workdir) as folder:
        replace(found, config=config).write(folder, format=values.format, path=str(source.absolute()))
    print(f"run directory {workdir}: {sum(leaf.size for leaf in found.named.values()):,} parameters")
    return 0

"""Models of other toolkits: ``export``, ``import`` and ``verify``."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, run_config, run_flags
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, difference
from transformer_jax.config.parts import default_parts
from transformer_jax.data.text_files import read_lines
from transformer_jax.files.atomic_files import appearing_folder, require_local, require_writable
from transformer_jax.files.terminal import text_table
from transformer_jax.run_directory.layout import write_json
from transformer_jax.run_directory.package_origin import package_origin
from transformer_jax.tools.interop.weight_files import require_plain_files

if TYPE_CHECKING:
    from transformer_jax.tools.interop.models import OpenedModel
    from transformer_jax.tools.interop.parity import Counterpart

# The module of a format is imported on first use, with its libraries.
MODULES = {"ctranslate2": "ctranslate2", "huggingface": "hugging_face", "safetensors": "archive"}
IMPORTED = ("huggingface", "safetensors")
# Files by which a format is recognized. Every format has config.json.
MARKS = {"model.bin": "ctranslate2", "manifest.json": "safetensors", "config.json": "huggingface"}
LANGUAGES = ("source_language", "target_language")
FIXED = ("task", "model.", "tokenizer.")
# Beside the files of every format.
ORIGIN = "origin.json"

TEXT_FLAGS = (
    flags.string(
        "source",
        None,
        "file of sentences to compare on, one a line, plain, .gz or .xz (default: the validation split)",
        also=("text",),
    ),
    flags.integer("sentences", 100, "how many to compare", lower_bound=1),
)


@flags.command(
    run_flags,
    flags.enum("format", None, list(MODULES), "format to write", required=True),
    flags.string("output", None, "folder to write", required=True),
    flags.enum("quantization", "float32", ("float32", "float16", "int8"), "precision of the weights (ctranslate2)"),
    flags.boolean("verify", True, "compare the exported model with the run"),
    *TEXT_FLAGS,
)
def export(values: flags.Values) -> int:
    """Write a trained model in the format of another toolkit, and compare both.

    Example:
        transformer-jax export runs/m30k --format=ctranslate2 --output=m30k-ct2
        transformer-jax export runs/m30k --format=ctranslate2 --quantization=int8 --output=m30k-int8

    Formats: ctranslate2, huggingface (a Marian model of transformers, or GPT-2 for a language
    model) and safetensors (an archive with settings, tokenizers, and a manifest with digests).
    --output is a new folder, written completely or not at all, with origin.json (version and commit
    of this package, run and updates). Then verify compares the exported model with the run on the
    first sentences of --source (default: the validation split), unless --no_verify is set. Exit
    status 1: they differ by more than the tolerance. Libraries: pip install ctranslate2 safetensors
    torch transformers.
    """
    (run,) = chosen_runs(values, run_config(values))
    output = _new_folder(values.output, "--output")
    if "quantization" in values.present and values.format != "ctranslate2":
        raise ConfigError("--quantization", f"not an option of --format={values.format}", "leave it out")
    require_writable(output.parent, "--output")
    model = _open(values, run.config)
    texts = _texts_to_compare(values, model)
    options = {"ctranslate2": {"quantization": values.quantization}, "safetensors": {"texts": texts}}
    with appearing_folder(output) as folder:
        format_module(values.format).export(model, folder, **options.get(values.format, {}))
        write_json(folder / ORIGIN, {"package": package_origin(), "run": values.workdir, "steps": list(model.steps)})
    steps = ", ".join(map(str, model.steps))
    print(f"{output}: {values.format}, checkpoint {steps} of {values.workdir}")
    return _compare(model, output, texts) if values.verify else 0


@flags.command(
    flags.enum("format", None, IMPORTED, "format to read", required=True),
    flags.string("input", None, "folder to read", required=True),
    flags.string("workdir", None, "folder of the new run", required=True),
    *(flags.string(name, None, "language of M2M-100 and NLLB (huggingface)") for name in LANGUAGES),
    flags.overrides,
)
def import_model(values: flags.Values) -> int:
    """Make a run directory from a model that export or another toolkit wrote.

    Example:
        transformer-jax import --format=safetensors --input=m30k-archive --workdir=runs/again
        transformer-jax import --format=huggingface --input=nllb --source_language=eng_Latn \
            --target_language=deu_Latn --workdir=runs/nllb

    Formats: huggingface (the folder of a Marian model such as OPUS-MT, of M2M-100 or of NLLB) and
    safetensors (written by export). No code in the input is run: a pickle with more than tensors is
    refused. Data, decoding and training are set as for train, for example --config.data.source=text
    --config.data.directory=data/wmt. The input fixes model, parts and tokenizers. The run directory
    is written completely or not at all. Fine-tune with train --config=RUN --config.init.run=RUN.
    Libraries: pip install safetensors torch transformers.
    """
    source, workdir = Path(values.input).expanduser(), _new_folder(values.workdir, "--workdir")
    if not source.exists():
        raise ConfigError("--input", f"{source} does not exist")
    languages = {name: getattr(values, name) for name in LANGUAGES if name in values.present}
    if languages and values.format != "huggingface":
        raise ConfigError(f"--{next(iter(languages))}", f"not an option of --format={values.format}", "leave it out")
    require_plain_files(source)
    require_writable(workdir.parent, "--workdir")
    model = format_module(values.format).read(source, **languages)
    config = flags.resolve_config(values, base=model.config)
    fixed = *FIXED, *(f"parts.{name}." for name in default_parts(model.config.model))
    for key, before, _ in difference(model.config, config):
        if key.startswith(fixed):
            raise ConfigError(f"--config.{key}", f"the imported model has {before!r}")
    with appearing_folder(workdir) as folder:
        replace(model, config=config).write(folder, format=values.format, path=str(source.absolute()))
    print(f"run directory {workdir}: {sum(leaf.size for leaf in model.arrays.values()):,} parameters")
    return 0


@flags.command(
    run_flags, flags.string("against", None, "folder of the exported or imported model", required=True), *TEXT_FLAGS
)
def verify(values: flags.Values) -> int:
    """Compare a run with the same model in another format: outputs and greedy translations.

    Example:
        transformer-jax verify runs/m30k --against=m30k-ct2 --source=test.en --sentences=1000

    Both compute on this machine, the run in float32. The targets are the run's greedy translations
    of --source (default: the validation split). Prints a table, and the greedy translations that
    differ. Exit status 1: an output differs by more than the tolerance of the format, greedy
    translations differ elsewhere than at a near tie (float16: more than a tenth of them, int8: more
    than four tenths), or a text is tokenized differently.
    """
    (run,) = chosen_runs(values, run_config(values))
    against = Path(values.against).expanduser()
    require_plain_files(against)
    model = _open(values, run.config)
    return _compare(model, against, _texts_to_compare(values, model))


def format_module(name: str) -> Any:
    """Return the module of a format.

    It has ``export(model, folder, **options)`` and ``open_counterpart(folder, model)``. A format in
    ``IMPORTED`` also has ``read(path, **options)``.
    """
    return importlib.import_module(f"transformer_jax.tools.interop.{MODULES[name]}")


def open_counterpart(folder: Path, model: "OpenedModel") -> "Counterpart":
    """Open the exported model in ``folder``. Raise ConfigError for an unknown format."""
    if not folder.is_dir():
        raise ConfigError("--against", f"{folder} is not a folder", "give one that export wrote")
    for file, name in MARKS.items():
        if (folder / file).is_file():
            counterpart: Counterpart = format_module(name).open_counterpart(folder, model)
            return counterpart
    names = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise ConfigError("--against", f"{folder} has no model in a format of {', '.join(MODULES)}", f"it has {names}")


def _new_folder(name: str, flag: str) -> Path:
    require_local(name, flag)
    folder = Path(name).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(flag, f"{folder} exists already", "give a new folder")
    return folder


def _open(values: flags.Values, config: ExperimentConfig) -> "OpenedModel":
    from transformer_jax.tools.interop.models import open_model

    return open_model(values.workdir, config, checkpoint=values.checkpoint, average=values.average)


def _texts_to_compare(values: flags.Values, model: "OpenedModel") -> list[str]:
    """Return the sentences of --source, or of the validation split of the run.

    With --no_verify there may be none, if the split cannot be read.
    """
    if values.source is not None:
        texts = [line for line in read_lines(Path(values.source).expanduser()) if line.strip()][: values.sentences]
        if not texts:
            raise DataError(f"{values.source}: no sentence in it")
        return texts
    try:
        return model.validation_texts(values.sentences)
    except (ConfigError, DataError) as error:
        if "verify" in values and not values.verify:
            return []
        raise ConfigError(error, remedy="name a file of sentences with --source") from None


def _compare(model: "OpenedModel", folder: Path, texts: list[str]) -> int:
    from transformer_jax.tools.interop.parity import compare

    comparison = compare(model, open_counterpart(folder, model), texts)
    print(text_table(comparison.rows()))
    return 0 if comparison.holds else 1

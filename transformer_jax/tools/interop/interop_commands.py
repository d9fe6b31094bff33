"""Models of other toolkits: ``export``, ``import`` and ``verify``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, run_config, run_flags
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, difference
from transformer_jax.config.parts import default_parts
from transformer_jax.data.text_files import read_lines
from transformer_jax.files.atomic_files import appearing_folder, require_local, require_writable
from transformer_jax.files.terminal import text_table
from transformer_jax.run_directory.layout import write_json
from transformer_jax.run_directory.package_origin import package_origin
from transformer_jax.tools.interop.formats import EXPORTED, IMPORTED, format_module, open_counterpart
from transformer_jax.tools.interop.weight_files import require_plain_files

if TYPE_CHECKING:
    from transformer_jax.tools.interop.models import OpenedModel

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
    flags.enum("format", None, EXPORTED, "format to write", required=True),
    flags.string("output", None, "folder to write", required=True),
    flags.enum("quantization", "float32", ("float32", "float16", "int8"), "precision of the weights (ctranslate2)"),
    flags.boolean("verify", True, "compare the exported model with the run"),
    *TEXT_FLAGS,
)
def export(values: flags.Values) -> int:
    """Write a trained model in the format of another toolkit, and verify that it computes the same there.

    Example:
        transformer-jax export --workdir=runs/m30k --format=ctranslate2 --output=m30k-ct2
        transformer-jax export --workdir=runs/m30k --format=ctranslate2 --quantization=int8 --output=m30k-int8

    Formats: ctranslate2; huggingface (a Marian model of transformers, a GPT-2 of a language model);
    safetensors (an archive with settings, tokenizers, and a manifest with digests). --output is a
    new folder, which is written completely or not at all, with origin.json (version and commit of
    this package, run and updates). The exported model is then loaded and compared with the run, as
    by verify, on the first sentences of --source (default: the validation split); --no_verify skips
    this. Exit status 1: they differ by more than the tolerance. Libraries: pip install ctranslate2
    safetensors torch transformers.
    """
    (run,) = chosen_runs(values, run_config(values))
    output = _new_folder(values.output, "--output")
    if "quantization" in values.present and values.format != "ctranslate2":
        raise ConfigError("--quantization", f"not an option of --format={values.format}", "leave it out")
    options = {"quantization": values.quantization} if values.format == "ctranslate2" else {}
    require_writable(output.parent, "--output")
    model = _open(values, run.config)
    texts = _texts_to_compare(values, model)
    with appearing_folder(output) as folder:
        format_module(values.format).export(model, folder, texts, **options)
        write_json(folder / ORIGIN, {"package": package_origin(), "run": values.workdir, "steps": list(model.steps)})
    steps = ", ".join(map(str, model.steps))
    print(f"{output}: {values.format}, checkpoint {steps} of {values.workdir}")
    return _compare(model, output, texts) if values.verify else 0


@flags.command(
    flags.enum("format", None, IMPORTED, "format to read", required=True),
    flags.string("input", None, "folder or file to read", required=True),
    flags.string("workdir", None, "folder of the new run", required=True),
    *(flags.string(name, None, "language of M2M-100 and NLLB (huggingface)") for name in LANGUAGES),
    flags.overrides,
)
def import_model(values: flags.Values) -> int:
    """Make a run directory from a model that export or another toolkit wrote.

    Example:
        transformer-jax import --format=safetensors --input=m30k-archive --workdir=runs/again
        transformer-jax import --format=huggingface --input=nllb --source_language=eng_Latn --target_language=deu_Latn runs/a

    Formats: huggingface (the folder of a Marian model such as OPUS-MT, of M2M-100 or of NLLB);
    safetensors (written by export). No code in the input is run: a pickle with more than tensors is
    refused. Data, decoding and training are set as for train, for example --config.data.source=text
    --config.data.directory=data/wmt; model, its parts and tokenizers are fixed by the input. The
    run directory is written completely or not at all. Fine-tune with train --config=RUN
    --config.init.run=RUN. Libraries: pip install safetensors torch transformers.
    """
    source, workdir = Path(values.input).expanduser(), _new_folder(values.workdir, "--workdir")
    if not source.exists():
        raise ConfigError("--input", f"{source} does not exist")
    languages = {name: getattr(values, name) for name in LANGUAGES if name in values.present}
    if languages and values.format != "huggingface":
        raise ConfigError(f"--{next(iter(languages))}", f"not an option of --format={values.format}", "leave it out")
    require_plain_files(source)
    require_writable(workdir.parent, "--workdir")
    found = format_module(values.format).read(source, **languages)
    config = flags.resolve_config(values, base=found.config)
    fixed = *FIXED, *(f"parts.{name}." for name in default_parts(found.config.model))
    for key, before, _ in difference(found.config, config):
        if key.startswith(fixed):
            raise ConfigError(f"--config.{key}", f"the imported model has {before!r}")
    with appearing_folder(workdir) as folder:
        replace(found, config=config).write(folder, format=values.format, path=str(source.absolute()))
    print(f"run directory {workdir}: {sum(leaf.size for leaf in found.named.values()):,} parameters")
    return 0


@flags.command(
    run_flags, flags.string("against", None, "folder of the exported or imported model", required=True), *TEXT_FLAGS
)
def verify(values: flags.Values) -> int:
    """Compare a run with the same model in another format: outputs for given tokens, and greedy translations.

    Example:
        transformer-jax verify --workdir=runs/m30k --against=m30k-ct2 --source=test.en --sentences=1000

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
    """Sentences of --source, or of the validation split of the run; with --no_verify none where the split cannot be read."""
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

    found = compare(model, open_counterpart(folder, model), texts)
    print(text_table(found.rows()))
    return 0 if found.holds else 1

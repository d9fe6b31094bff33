"""A model to export from a run, or to write as a run."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import (
    ConfigError,
    DataError,
    ExperimentConfig,
    MeshConfig,
    TransformerLayersConfig,
    load_run_config,
    to_json,
)
from transformer_jax.config.conversion import flatten
from transformer_jax.config.data import padded_width
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.models.interface import Module
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.runs.starting import write_run_directory
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.task import task_class
from transformer_jax.tasks.trained_run import open_trained, with_exact_products
from transformer_jax.tasks.translation.translator import Translator
from transformer_jax.training.parameters import named_leaves, some_of
from transformer_jax.training.sharding import make_mesh, path_of
from transformer_jax.training.state import param_shapes

ROWS_AT_ONCE = 16
# A model of this many layers and this width is built in seconds, to name its missing tensors.
BUILT_LAYERS = 1_000
BUILT_WIDTH = 65_536
# Step of the only checkpoint of an imported run. Step 0 would mean untrained.
STEP = 1


class Example(NamedTuple):
    """Token ids of source and target, with EOS. The source of a language model is empty."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class OpenedModel:
    """Settings, tokenizers, model (with float32 compute) and parameters of a run.

    ``saved_config``: the settings of the run, except for decoding. ``steps``: its checkpoints.
    """

    config: ExperimentConfig
    saved_config: ExperimentConfig
    tokenizers: TokenizerPair
    model: Module
    params: Any
    mesh: Mesh
    steps: tuple[int, ...]

    @property
    def translates(self) -> bool:
        """Whether this is a translation model."""
        return self.config.task == "translation"

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The parameters by path, such as ``encoder_layers_0/self_attention/query``."""
        return {name: np.asarray(leaf, np.float32) for name, leaf in named_leaves(self.params).items()}

    def validation_texts(self, count: int) -> list[str]:
        """Return the first ``count`` validation sources or documents that are not blank."""
        config = self.config
        split = config.data.split_name("validation")
        texts: Iterator[str]
        if self.translates:
            corpus = open_corpus(config.data, config.data_seed, config.parts)
            texts = (pair.source for pair in corpus.pairs(split))
        else:
            documents = open_documents(config.data, config.data_seed)
            texts = (document.text for document in documents.documents(split))
        return list(itertools.islice((text for text in texts if text.strip()), count))

    def short_enough(self, texts: Sequence[str], longest: int | None) -> list[str]:
        """Return the texts with at most ``longest`` source tokens, all for a language model."""
        if not self.translates or longest is None:
            return list(texts)
        encoded = self.tokenizers.source.encode_batch(texts)
        return [text for text, ids in zip(texts, encoded, strict=True) if len(ids) < longest]

    def examples(self, texts: Sequence[str]) -> list[Example]:
        """Return texts with greedy translations.

        A language model has the texts as targets, truncated to its context length.
        """
        if not self.translates:
            longest = self.config.batching.context_length
            encoded = self.tokenizers.target.encode_batch(texts)
            return [Example([], [*ids, EOS_ID][:longest]) for ids in encoded]
        sources = [[*ids, EOS_ID] for ids in self.tokenizers.source.encode_batch(texts)]
        return [Example(source, target) for source, target in zip(sources, self.greedy(sources), strict=True)]

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        """Translate sources greedily, all with EOS."""
        decoding = replace(self.config.decoding, search="beam", beam_width=1)
        longest = self.config.model.longest_sequence
        translator = Translator(lambda: self.model, self.tokenizers, decoding, self.mesh, longest)
        return [best[0].token_ids for best in translator.translate_ids(self.params, sources)]

    def logits(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Return teacher-forced logits [T, V] for each target."""
        results: list[np.ndarray] = []
        for rows in itertools.batched(examples, ROWS_AT_ONCE):
            sides = zip(*rows, strict=True) if self.translates else [[row.target for row in rows]]
            inputs = [self._padded(side) for side in sides]
            logits = np.asarray(self._compiled(self.params, *inputs))
            results += [logits[index, : len(row.target)] for index, row in enumerate(rows)]
        return results

    @cached_property
    def _compiled(self) -> Any:
        return jax.jit(lambda params, *sides: self.model.apply({"params": params}, *sides, train=False))

    def _padded(self, rows: Sequence[list[int]]) -> Tokens:
        """Pad to ``ROWS_AT_ONCE`` rows of one of few widths."""
        width = padded_width(max(map(len, rows)), self.config.model.longest_sequence)
        ids = np.zeros((ROWS_AT_ONCE, width), np.int32)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
        return Tokens.from_ids(ids)


def open_model(workdir: str | Path, config: ExperimentConfig, *, checkpoint: str, average: int) -> OpenedModel:
    """Restore ``checkpoint``, or the mean of the last ``average`` ones up to it.

    Raises ConfigError if ``workdir`` is not a run of a translation or language model,
    CheckpointError if it has no such checkpoint.
    """
    run = RunDirectory(workdir)
    run.require_run()
    if config.task not in ("translation", "language_model"):
        is_table = config.task == "word_vectors"
        remedy = "for its vectors use vectors convert" if is_table else "give one of translation or language_model"
        raise ConfigError("--workdir", f"{run.path} is a run of task={config.task}", remedy)
    trained = open_trained(ChosenRun(str(workdir), with_exact_products(config), checkpoint), average=average)
    params, saved = jax.device_get(trained.params), replace(load_run_config(run.path), decoding=config.decoding)
    return OpenedModel(config, saved, trained.tokenizers, trained.model, params, trained.mesh, trained.steps)


@dataclass(frozen=True)
class ImportedModel:
    """Settings, tokenizers, and parameters by path in float32, in the layout of this package."""

    config: ExperimentConfig
    tokenizers: TokenizerPair
    arrays: dict[str, np.ndarray]

    def write(self, folder: Path, **origin: Any) -> None:
        """Write a run directory. Raise DataError as ``params`` does."""
        params = self.params()
        names = ["tokenizer"] if self.config.task == "language_model" else ["source tokenizer", "target tokenizer"]
        progress = {
            "config": to_json(self.config),
            "data": {name: tokenizer.fingerprint() for name, tokenizer in zip(names, self.tokenizers, strict=False)},
            "tokenizer": tokenizers_to_json(self.tokenizers),
            "counters": {},
        }
        write_run_directory(folder, self.config, self.tokenizers, STEP, params, progress, imported_from=origin)

    def opened(self, mesh: Mesh | None = None) -> OpenedModel:
        """Open the model without a run, by default on one device. Raise DataError as ``params``."""
        params, mesh = self.params(), mesh or _one_device()
        model = replace(self, config=with_exact_products(self.config)).objective(mesh).model
        return OpenedModel(self.config, self.config, self.tokenizers, model, params, mesh, (STEP,))

    def objective(self, mesh: Mesh) -> Any:
        """Return model and loss on the devices of ``mesh``."""
        source, target = (tokenizer.vocabulary_size for tokenizer in self.tokenizers)
        return task_class(self.config.task).new_objective(self.config, (source, target), mesh)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters by path, according to the settings."""
        return {name: leaf.shape for name, leaf in named_leaves(self._abstract()).items()}

    def params(self) -> Any:
        """Return the parameters as a tree.

        Raises DataError for a tensor that does not fit the settings or is not finite.
        """
        # A model that is too large would take all time and memory.
        require_sizes(self.config, {name: leaf.shape for name, leaf in self.arrays.items()})
        require_same_shapes(self.arrays, self.shapes(), "the model")
        for name, leaf in self.arrays.items():
            if not np.all(np.isfinite(leaf)):
                problem = "has values that are not finite; the model is damaged, or diverged in training"
                raise DataError(f"{name}: {problem}")
        return jax.tree_util.tree_map_with_path(lambda path, _: self.arrays[path_of(path)], self._abstract())

    def _abstract(self) -> Any:
        return param_shapes(self.objective(_one_device()).init_params)


def _one_device() -> Mesh:
    return make_mesh(MeshConfig(), jax.devices()[:1])


def require_sizes(config: ExperimentConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise DataError for a width or a number of layers, heads ... that no tensor has."""
    widest = max((size for shape in shapes.values() for size in shape), default=0)
    is_scanned = getattr(config.model, "scan_layers", False)
    for key, value in flatten(config).items():
        block, _, name = key.rpartition(".")
        if type(value) is not int or block.partition(".")[0] not in ("model", "parts"):
            continue
        is_depth = name.startswith("num_") and name.endswith("layers") and not is_scanned
        largest = max(len(shapes), BUILT_LAYERS) if is_depth else max(widest, len(shapes), BUILT_WIDTH)
        if name.startswith(("d_", "num_")) and value > largest:
            problem = f"{len(shapes)} tensors with at most {widest} values along an axis"
            raise DataError(f"{key}: {value:,} does not fit the parameters, {problem}")


def require_same_shapes(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]], where: object
) -> None:
    """Raise DataError for tensors that are missing, unexpected or of another shape."""
    for problem, names in (
        ("tensors are missing", expected.keys() - arrays.keys()),
        ("unexpected tensors", arrays.keys() - expected.keys()),
    ):
        if names:
            raise DataError(f"{where}: {problem}: {some_of(sorted(names))}")
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise DataError(f"{where}: {name} has shape {arrays[name].shape}, expected {shape}")


def require_plain_transformer(
    model: OpenedModel, format_name: str, problem: str, choices: Mapping[str, Collection[str]]
) -> None:
    """Raise ConfigError unless the format supports the model, a Transformer for translation.

    ``choices``: supported values of settings. ``problem``: the message for any other value.
    """
    config = model.config.model
    if not model.translates or config.kind != "transformer":
        kind = f"task={model.config.task}, model.kind={config.kind}"
        raise ConfigError(
            "--format", f"{format_name} takes Transformers for translation, not {kind}", "use safetensors"
        )
    require_settings(config, problem, choices)


def require_settings(config: TransformerLayersConfig, problem: str, choices: Mapping[str, Collection[str]]) -> None:
    """Raise ConfigError for a setting that is not among ``choices``, or that no format supports."""
    width = config.d_model // config.num_heads
    both = {
        "attention": ("multi_head", "biased"),
        "embedding": ("scaled", "unscaled"),
        "norm": ("layer_norm",),
        "normalization": ("post", "pre"),
        "projection": ("linear",),
    }
    fitting = {name: getattr(config, name) in values for name, values in {**both, **choices}.items()}
    fitting |= {"mixers": {*config.layer_mixers} == {"attention"}}
    fitting |= {"d_key": config.head_key_size == width, "d_value": config.head_value_size == width}
    for name, fits in fitting.items():
        if not fits:
            raise ConfigError(
                f"model.{name}", f"{getattr(config, name)!r} {problem}", "export with --format=safetensors"
            )

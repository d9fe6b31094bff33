"""A trained run for export: settings, tokenizers, parameters by path, teacher-forced logits, greedy decoding."""

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
    DecodingConfig,
    ExperimentConfig,
    TransformerLayersConfig,
    load_run_config,
)
from transformer_jax.config.data import padded_width
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.models.interface import Module
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tasks.translation.translator import Translator
from transformer_jax.training.parameters import named_leaves

ROWS_AT_ONCE = 16


class Example(NamedTuple):
    """Token ids of a source and its target, each with EOS; the source of a language model is empty."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class OpenedModel:
    """Settings (with float32 compute), tokenizers, model and parameters of a run, restored from the checkpoints ``steps``.

    ``saved_config``: the settings saved in the run, except for decoding.
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
    def named(self) -> dict[str, np.ndarray]:
        """The parameters by path, such as ``encoder_layers_0/self_attention/query``."""
        return {name: np.asarray(leaf, np.float32) for name, leaf in named_leaves(self.params).items()}

    def translator(self, decoding: DecodingConfig) -> Translator:
        return Translator(self.model, self.tokenizers, decoding, self.mesh, parts=self.config.parts)

    def validation_texts(self, count: int) -> list[str]:
        """The first ``count`` sources or documents of the validation split that are not blank."""
        config = self.config
        split = config.data.split_name("validation")
        if self.translates:
            texts: Iterator[str] = (
                pair.source for pair in open_corpus(config.data, config.data_seed, config.parts).pairs(split)
            )
        else:
            documents = open_documents(config.data, config.data_seed).documents(split)
            texts = (document.text for document in documents)
        return list(itertools.islice((text for text in texts if text.strip()), count))

    def examples(self, texts: Sequence[str]) -> list[Example]:
        """Texts with their greedy translations; for a language model, texts as targets, truncated to its context length."""
        if not self.translates:
            longest = self.config.batching.context_length
            encoded = self.tokenizers.target.encode_batch(texts)
            return [Example([], [*ids, EOS_ID][:longest]) for ids in encoded]
        sources = [[*ids, EOS_ID] for ids in self.tokenizers.source.encode_batch(texts)]
        return [Example(source, target) for source, target in zip(sources, self.greedy(sources), strict=True)]

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        """The greedy translation of each source, both with EOS."""
        greedy = self.config.decoding.with_beams(1)
        return [best[0].token_ids for best in self.translator(greedy).translate_ids(self.params, sources)]

    def logits(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Teacher-forced logits [T, V] for each target."""
        results: list[np.ndarray] = []
        for start in range(0, len(examples), ROWS_AT_ONCE):
            rows = examples[start : start + ROWS_AT_ONCE]
            longest = self.config.model.longest_sequence
            sides = [padded([row.target for row in rows], longest)]
            if self.translates:
                sides.insert(0, padded([row.source for row in rows], longest))
            found = np.asarray(self._compiled(self.params, *map(Tokens.from_ids, sides)))
            results += [found[index, : len(row.target)] for index, row in enumerate(rows)]
        return results

    @cached_property
    def _compiled(self) -> Any:
        return jax.jit(lambda params, *sides: self.model.apply({"params": params}, *sides, train=False))


def until_eos(ids: list[int]) -> list[int]:
    """The tokens before the first EOS."""
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids


def padded(rows: Sequence[Sequence[int]], longest: int | None) -> np.ndarray:
    """Ids [R, L] int32 of rows padded with PAD to one of few widths, at most ``longest``."""
    ids = np.zeros((ROWS_AT_ONCE, padded_width(max(map(len, rows)), longest)), np.int32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return ids


def open_model(workdir: str | Path, config: ExperimentConfig, *, checkpoint: str, average: int) -> OpenedModel:
    """Restores ``checkpoint``, or the mean of the last ``average`` checkpoints up to it, with float32 compute.

    Raises ConfigError if ``workdir`` is not a run of a sequence model, CheckpointError if it has no such checkpoint.
    """
    run = RunDirectory(workdir)
    run.require_run()
    if config.task not in ("translation", "language_model"):
        is_table = config.task == "word_vectors"
        remedy = "for its vectors use vectors convert" if is_table else "give one of translation or language_model"
        raise ConfigError(f"--workdir: {run.path} is a run of task={config.task}; {remedy}")
    saved = replace(load_run_config(run.path), decoding=config.decoding)
    config = in_float32(config)
    trained = open_trained(ChosenRun(str(workdir), config, checkpoint), average=average)
    params = jax.device_get(trained.params)
    return OpenedModel(config, saved, trained.tokenizers, trained.model, params, trained.mesh, trained.steps)


def in_float32(config: ExperimentConfig) -> ExperimentConfig:
    """The settings with float32 compute."""
    return replace(config, model=replace(config.model, compute_dtype="float32"))


def require_plain_transformer(
    model: OpenedModel, format_name: str, problem: str, choices: Mapping[str, Collection[str]]
) -> None:
    """Raises ConfigError naming task or setting unless the model is a Transformer for translation that the format supports.

    ``choices``: supported values of settings; ``problem``: the message for any other value.
    """
    config = model.config.model
    if not model.translates or config.kind != "transformer":
        kind = f"task={model.config.task}, model.kind={config.kind}"
        raise ConfigError(f"--format: {format_name} takes Transformers for translation, not {kind}; use safetensors")
    require_settings(config, problem, choices)


def require_settings(config: TransformerLayersConfig, problem: str, choices: Mapping[str, Collection[str]]) -> None:
    """Raises ConfigError naming a setting that is not among ``choices``, or that no format supports."""
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
            raise ConfigError(f"model.{name}: {getattr(config, name)!r} {problem}; export with --format=safetensors")

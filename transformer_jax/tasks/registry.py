"""Registry of the tasks: how each is built from the settings of a run, and how its tokenizers are trained."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.data import padded_width
from transformer_jax.config.plugins import WithRegistered
from transformer_jax.config.tasks import TaskBlocks
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.data.tokenizers import TokenizerPair, train_tokenizers
from transformer_jax.evaluation.token_scores import TokenScores
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.sequence_types import batch_shape
from transformer_jax.tasks.attention_weights import TextAttention
from transformer_jax.tasks.decoding_program import DecodingProgram
from transformer_jax.tasks.language_model import reading
from transformer_jax.tasks.language_model.generator import decoding_program as decode_prompts
from transformer_jax.tasks.language_model.objective import LanguageModelObjective
from transformer_jax.tasks.language_model.task import LanguageModelTask, new_text_tokenizer
from transformer_jax.tasks.language_model.trained import open_single_language_model
from transformer_jax.tasks.protocol import Evaluation, Task, Trained
from transformer_jax.tasks.translation import text_evaluation
from transformer_jax.tasks.translation.alignment import attention_of_pair
from transformer_jax.tasks.translation.decoding_program import decoding_program as decode_sentences
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.score_settings import with_evaluation
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tasks.translation.trained_ensemble import open_ensemble
from transformer_jax.tools.word_vectors.task.objective import WordVectorObjective, block_shape
from transformer_jax.tools.word_vectors.task.task import WordVectorTask, new_word_tokenizer
from transformer_jax.tools.word_vectors.task.trained import open_word_vectors
from transformer_jax.training.step import UpdateRule


class TextUse(NamedTuple):
    """Uses of a trained run for texts that are not in its data; ``has_targets``: each comes with its translation.

    ``open`` reads --source and --references, or refuses them, before JAX starts, ``evaluate`` scores what it returns under a
    name; ``score`` is the log-probability of each text, or of its target; ``attend`` is of one text, and of its translation.
    """

    has_targets: bool
    open: Callable[[ExperimentConfig, str, Sequence[str]], Any]
    evaluate: Callable[[Any, Any, str], Evaluation]
    score: Callable[[Any, Sequence[str], Sequence[str] | None], list[TokenScores]]
    attend: Callable[[Any, str, str | None], TextAttention]

    def require_targets(self, flag: str, *, is_given: bool, is_optional: bool = False) -> None:
        """Raises ConfigError where ``flag`` gives targets that the task does not have, or none that it needs."""
        if is_given and not self.has_targets:
            raise ConfigError(f"{flag}: a language model reads one text, without a translation; leave it out")
        if self.has_targets and not is_given and not is_optional:
            raise ConfigError(f"{flag}: is required; give a translation of each text")


class TaskBuilder(NamedTuple):
    """Constructors and facts of a task.

    ``open_source`` reads no data yet; ``objective`` is model and loss for vocabularies of this size; ``open_trained`` restores
    the runs that a command names, each the mean of so many checkpoints, for evaluation; ``require_split`` raises
    DataError when the data has no such split; ``batch_shape`` is of so many rows of so many positions; ``longest_row`` are the
    most positions of a row; ``next_commands`` are what to try after a run, ``commands_of_trained`` after its evaluation;
    ``decoding`` is the search with the model of an objective, for inputs of so many positions, on a mesh;
    ``update_rule`` is that of an objective, or a task, whose updates are not those of a dense gradient; ``texts`` is for
    commands that give a trained run texts of their own
    """

    build: Callable[[ExperimentConfig, TokenizerPair, Mesh], Task]
    open_source: Callable[[Any, int], Any]
    new_tokenizers: Callable[[ExperimentConfig], TokenizerPair]
    objective: Callable[[ExperimentConfig, int, Mesh], Any]
    open_trained: Callable[[Sequence[ChosenRun], int], Trained]
    require_split: Callable[[ExperimentConfig, str], None]
    batch_shape: Callable[[ExperimentConfig, int, int], PyTree]
    longest_row: Callable[[ExperimentConfig], int]
    next_commands: tuple[str, ...]
    commands_of_trained: tuple[str, ...]
    decoding: Callable[[ExperimentConfig, Any, int, Mesh], DecodingProgram]
    update_rule: Callable[[Any], UpdateRule | None] = lambda objective: None
    texts: TextUse | None = None
    begin: Callable[[ExperimentConfig, RunDirectory], ExperimentConfig] = lambda config, directory: config


class NewTask(NamedTuple):
    """A task of a plugin: settings and constructors; the function that is registered returns it."""

    blocks: TaskBlocks
    builder: TaskBuilder


def _new_translation_tokenizers(config: ExperimentConfig) -> TokenizerPair:
    corpus = open_corpus(config.data, config.data_seed)
    return train_tokenizers(config.tokenizer, corpus, config.data.train_split, config.data_seed)


def _require_pairs(config: ExperimentConfig, split: str) -> None:
    # Reading one pair is enough to find out.
    next(open_corpus(config.data, config.data_seed).pairs(config.data.split_name(split)), None)


def _longest_pair(config: ExperimentConfig) -> int:
    batching = config.batching
    longest = max(config.data.max_source_tokens, config.data.max_target_tokens) + 1
    if batching.kind == "packed":
        longest = max(longest, batching.packed_length)
    return math.ceil(longest / batching.width_multiple) * batching.width_multiple


def _require_documents(config: ExperimentConfig, split: str) -> None:
    next(open_documents(config.data, config.data_seed).documents(config.data.split_name(split)), None)


def _decode_prompts(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
    longest = max(config.batching.context_length - config.decoding.max_new_tokens, 1)
    return decode_prompts(objective.model, config.decoding, length or longest, mesh)


def _decode_sentences(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
    width = length or padded_width(config.data.max_source_tokens + 1)
    return decode_sentences(objective.model, config.decoding, width, mesh)


def refuse_decoding(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
    """The ``decoding`` of a task that generates nothing; raises ConfigError."""
    raise ConfigError(f"--program: {config.task} decodes nothing; leave it out")


OWN_TASKS: dict[str, TaskBuilder] = {
    "translation": TaskBuilder(
        build=TranslationTask,
        open_source=open_corpus,
        new_tokenizers=_new_translation_tokenizers,
        objective=lambda config, size, mesh: TranslationObjective(config, size, size, mesh),
        open_trained=open_ensemble,
        require_split=_require_pairs,
        batch_shape=lambda config, rows, width: batch_shape(rows, width, width),
        longest_row=_longest_pair,
        decoding=_decode_sentences,
        begin=with_evaluation,
        next_commands=("evaluate --workdir={workdir} --split=test", "translate --workdir={workdir} < input.txt"),
        commands_of_trained=("translate --workdir={workdir}",),
        texts=TextUse(
            True,
            text_evaluation.open_text,
            text_evaluation.evaluate_text,
            text_evaluation.score_texts,
            attention_of_pair,
        ),
    ),
    "language_model": TaskBuilder(
        build=lambda config, tokenizers, mesh: LanguageModelTask(config, tokenizers.source, mesh),
        open_source=open_documents,
        new_tokenizers=new_text_tokenizer,
        objective=LanguageModelObjective,
        open_trained=open_single_language_model,
        require_split=_require_documents,
        batch_shape=lambda config, rows, width: batch_shape(rows, width, width).target,
        longest_row=lambda config: config.batching.context_length,
        decoding=_decode_prompts,
        next_commands=(
            "evaluate --workdir={workdir} --split=validation",
            "generate --workdir={workdir} --prompt='The '",
        ),
        commands_of_trained=("generate --workdir={workdir} --prompt='The '",),
        texts=TextUse(False, reading.open_text, reading.evaluate_text, reading.score_texts, reading.attention_of_text),
    ),
    "word_vectors": TaskBuilder(
        build=lambda config, tokenizers, mesh: WordVectorTask(config, tokenizers.source, mesh),
        open_source=open_documents,
        new_tokenizers=new_word_tokenizer,
        objective=WordVectorObjective,
        open_trained=open_word_vectors,
        require_split=_require_documents,
        batch_shape=block_shape,
        longest_row=lambda config: config.batching.row_length,
        decoding=refuse_decoding,
        next_commands=(
            "evaluate --workdir={workdir} --split=validation",
            "vectors neighbors WORD --workdir={workdir}",
        ),
        commands_of_trained=("vectors neighbors WORD --workdir={workdir}",),
        update_rule=lambda objective: objective.rule(),
    ),
}

TASKS: Mapping[str, TaskBuilder] = WithRegistered(OWN_TASKS, "task", lambda new: new().builder)


def texts_of(config: ExperimentConfig, where: str) -> TextUse:
    """The use of texts by the task of a run; raises ConfigError, which begins with ``where``, when it has none."""
    texts = TASKS[config.task].texts
    if texts is None:
        takes = " or ".join(f"task={name}" for name in TASKS if TASKS[name].texts)
        raise ConfigError(f"{where} is a run of task={config.task}; this takes {takes}")
    return texts


def build_task(config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh) -> Task:
    """Builds the task of a run; data is read on first use."""
    return TASKS[config.task].build(config, tokenizers, mesh)


def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
    """Trained on the training split, and not saved yet."""
    return TASKS[config.task].new_tokenizers(config)


def tokenizer_inputs(config: ExperimentConfig) -> tuple[Hashable, ...]:
    """Equal for settings with which ``new_tokenizers`` trains the same: tokenizer settings, the text, what is drawn from it."""
    source = TASKS[config.task].open_source(config.data, config.data_seed)
    return config.tokenizer, source.fingerprint(config.data.train_split), config.data_seed


def objective_of(config: ExperimentConfig, mesh: Mesh) -> Any:
    """Model and loss with a vocabulary as large as the settings allow: before there are tokenizers."""
    return TASKS[config.task].objective(config, config.tokenizer.vocabulary_size, mesh)

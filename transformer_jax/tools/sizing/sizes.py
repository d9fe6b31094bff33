"""Settings of a run that follow from its corpus and a time budget.

Does not import JAX, so that mistakes are found early.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    TokenizerConfig,
    apply_overrides,
    flatten,
    from_dict,
    load_run_config,
)
from transformer_jax.config.conversion import leaves
from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.config.run_settings import budget_of, stated_settings
from transformer_jax.config.tasks import DEFAULT_TASK
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import (
    CorpusSample,
    SideText,
    VocabularyChoice,
    sample_of,
    vocabulary_of,
)
from transformer_jax.data.documents import no_text, open_documents
from transformer_jax.data.scripts import writes_without_spaces
from transformer_jax.errors import DataError
from transformer_jax.files.checked_json import read_checked
from transformer_jax.registry.index import behind
from transformer_jax.run_directory.layout import RunDirectory, require_run_to_start_from
from transformer_jax.runs.train_run import RATE, Overrides, ResolvedSettings
from transformer_jax.runtime.startup import available_cores
from transformer_jax.tools.sizing.plans import (
    CHARACTERS_OF_A_TOKEN,
    LANGUAGE_MODEL_KEYS,
    TOKENS_PER_WORD,
    TRANSLATION_KEYS,
    CorpusStatistics,
    Plan,
    TextStatistics,
    plan_language_model,
    plan_translation,
    rows_of_batch,
    seconds_of,
)

# Matrix products small enough for one core: on several, each would wait for cores that other
# programs use.
PRODUCT_WIDTH = 64
# Products in a round, measured rounds (the fastest counts), and rounds before them.
PRODUCTS = 20
ROUNDS = 300
WARM_UP = 30
# Bytes of the text that are read, and share of its characters that ``alphabet`` covers.
MEASURED_BYTES = 4_000_000
COVERED_CHARACTERS = 0.999
# With this share of characters of scripts without spaces, a text has no words.
SHARE_UNSPACED = 0.3
OF_VOCABULARY = "tokenizer.joint", "tokenizer.character_coverage", "model.tying"
SIZED_TRANSLATION = (*TRANSLATION_KEYS, *OF_VOCABULARY, "evaluation.selection")
SIZE = "tokenizer.vocabulary_size"
# A text with spaces supports a vocabulary of a quarter of the estimate.
ESTIMATE_FACTOR = 4
# BLEU is the geometric mean over runs of 1 to 4 tokens: it is 0 for shorter targets.
WORDS_OF_BLEU = 4
LIMITS = "data.max_source_tokens", "data.max_target_tokens"
# The peak rate of a run that begins with the parameters of another, as a share of the peak from
# random parameters.
SHARE_OF_PEAK = 0.2
# Share of pairs above the limits that is reported, and left out of the plan.
MANY_TOO_LONG = 0.1


class Sizing(NamedTuple):
    """How ``--budget`` sizes the runs of a task.

    ``recipe``: a recipe that states no sizes. ``keys``: the settings of a plan. ``models``: the
    kinds of models. ``plan`` takes settings, seconds, floating-point operations per second of this
    machine, and the fixed settings, which stay. ``placeholders`` takes the fixed settings and
    returns values for some of the ``keys``, valid beside them, until the plan has others.
    """

    recipe: str
    keys: tuple[str, ...]
    models: tuple[str, ...]
    plan: Callable[[ExperimentConfig, float, float, Mapping[str, Any]], Plan]
    placeholders: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda fixed: {}


def sized(
    source: str | Mapping[str, Any],
    overrides: Overrides,
    workdir: str,
    budget: str | None = None,
    *,
    is_distributed: bool = False,
) -> ResolvedSettings:
    """Return the settings of a recipe with overrides, and with sizes for a time budget.

    ``source``: a name, or nested settings. ``budget``: by default the ``BUDGET`` of the recipe.

    Settings that the recipe or overrides state stay. A run that has begun keeps its size. Raises
    ConfigError if the task cannot be sized, or the run ``is_distributed``: each process would
    measure another speed.
    """
    values = stated_settings(source, overrides) if isinstance(source, str) else source
    stated = apply_overrides(values, overrides)
    fixed = dict(leaves(stated))
    time_budget = _requested_budget(source, overrides, budget, fixed)
    if time_budget is None:
        return ResolvedSettings(from_dict(stated))
    seconds = seconds_of(time_budget)
    config = _with(values, _open_settings(fixed), overrides)
    sizing = _sizing_of(config, fixed, has_flag=budget is not None)
    directory = RunDirectory(workdir)
    if directory.has_checkpoints() and directory.config.is_file():
        saved = flatten(load_run_config(directory.path))
        kept = {key: saved[key] for key in sizing.keys if key in saved and key not in fixed}
        if budget is not None and (before := kept.get("training.budget_seconds")):
            kept["training.budget_seconds"] = seconds
            if seconds < before:
                _require_unfinished(directory, before)
        return ResolvedSettings(_with(values, kept, overrides), "the run keeps its size and its number of updates")
    if is_distributed:
        raise ConfigError(
            "--budget",
            "a budget, also of the recipe, sizes a run of one process",
            "with --distributed take a recipe with sizes",
        )
    flops = flops_here()
    restored = _restored_sizes(config, sizing, fixed)
    plan = sizing.plan(config, seconds, flops, restored | fixed)
    record = {"budget": time_budget, "flops": flops, "estimated_seconds": round(plan.seconds, 1)}
    record["max_updates"] = 0 if "training.num_updates" in fixed else plan.max_updates
    settings = {**plan.settings, "training.budget_seconds": 0.0 if "training.num_updates" in fixed else seconds}
    sentence = f"budget {time_budget}: {plan.sentence}"
    if config.init.run and RATE in settings and RATE not in fixed:
        settings[RATE] = round(settings[RATE] * SHARE_OF_PEAK, 6)
        sentence += (
            f"\n{RATE}={settings[RATE]:g}, {SHARE_OF_PEAK:g} of the peak from random parameters, for {config.init.run}"
        )
    planned = {key: value for key, value in (settings | restored).items() if key not in fixed}
    return ResolvedSettings(_with(values, planned, overrides), sentence, {"sizing": record})


def _requested_budget(
    source: str | Mapping[str, Any], overrides: Overrides, budget: str | None, fixed: Mapping[str, Any]
) -> str | None:
    """Return the ``budget``, or that of the recipe, if any; fixed seconds replace the latter.

    Raises ConfigError if both a ``budget`` and seconds are fixed.
    """
    requested = budget if budget is not None or not isinstance(source, str) else budget_of(source, overrides)
    seconds = fixed.get("training.budget_seconds")
    if requested is None or not seconds:
        return requested
    if budget is not None:
        raise ConfigError("--budget", f"training.budget_seconds={seconds} is stated already", "leave one of them out")
    return f"{seconds}s"


def _require_unfinished(directory: RunDirectory, budget_seconds: float) -> None:
    """Raise ConfigError if a run has finished: its next updates would have its peak rate again."""
    if (read_checked(directory.outcome) or {}).get("reason") == "finished":
        problem = f"{directory.path} has finished, with a budget of {budget_seconds:g} s"
        raise ConfigError("--budget", problem, "give a longer one, or train into another --workdir")


def _restored_sizes(config: ExperimentConfig, sizing: Sizing, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes of the run whose parameters are restored, if any.

    They are the ones that ``sizing`` would choose, except dropout.
    """
    if not config.init.run:
        return {}
    require_run_to_start_from(config.init.run)
    saved = flatten(load_run_config(config.init.run))
    sized = [key for key in sizing.keys if key.startswith(("model.", "tokenizer.")) and "dropout" not in key]
    return {key: saved[key] for key in sized if key in saved and key not in fixed}


def require_stated_tokens(source: str, overrides: Overrides, budget: str | None, key: str) -> None:
    """Raise ConfigError (``key``) if ``train`` would choose settings of tokenizer or lengths."""
    values = stated_settings(source, overrides)
    fixed = dict(leaves(apply_overrides(values, overrides)))
    if _requested_budget(source, overrides, budget, fixed) is None:
        return
    keys = _sizing_of(_with(values, _open_settings(fixed), overrides), fixed, has_flag=False).keys
    missing = [name for name in keys if name.startswith(("tokenizer.", "data.")) and name not in fixed]
    if missing:
        problem = f"with a budget, --config={source} chooses {', '.join(missing)} when training begins"
        remedy = f"state them (--config.{missing[0]}=...), or train on the text, without a store"
        raise ConfigError(key, problem, remedy)


def sizing_budget(source: str, overrides: Overrides, budget: str | None) -> str | None:
    """Return the ``budget``, or the recipe's, by which ``train`` chooses sizes, if any.

    Raises ConfigError if ``train`` would refuse it.
    """
    values = stated_settings(source, overrides)
    fixed = dict(leaves(apply_overrides(values, overrides)))
    limit = _requested_budget(source, overrides, budget, fixed)
    if limit is not None:
        seconds_of(limit)
        _sizing_of(_with(values, _open_settings(fixed), overrides), fixed, has_flag=budget is not None)
    return limit


def require_sizes(source: str, overrides: Overrides, key: str) -> None:
    """Raise ConfigError (``key``) if ``train`` would choose the sizes of a recipe by a budget."""
    if budget_of(source, overrides) and "model.d_model" not in dict(overrides):
        remedy = "name a run that it trained (--config=RUN), or another recipe, or state model.d_model and all that a plan sets"
        raise ConfigError(key, f"--config={source} gets its sizes from a budget in train only", remedy)


def _open_settings(fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return the placeholders of the task that are not fixed, and of the warm-up."""
    sizing: Sizing | None = behind("sizes").get(fixed.get("task", DEFAULT_TASK))
    settings = {"optimizer.warmup_updates": 1, **(sizing.placeholders(fixed) if sizing else {})}
    return {key: value for key, value in settings.items() if key not in fixed}


def _sizing_of(config: ExperimentConfig, fixed: Mapping[str, Any], *, has_flag: bool) -> Sizing:
    """Return the sizing of the task.

    Raises ConfigError if it has none for this data and model, or the length is fixed too.
    """
    sizings: Mapping[str, Sizing] = behind("sizes")
    sizing = sizings.get(config.task)
    if sizing is None or config.data.source != "text":
        recipes = ", ".join(f"--config={sizing.recipe}" for sizing in sizings.values())
        if sizing and not has_flag:
            others = "such as --config=multi30k:tiny_hour or --config=language_model:quick, and set its sizes"
            raise ConfigError(
                "data.source",
                f"{recipes} choose sizes for text, not for {config.data.source}",
                f"name another recipe, {others}",
            )
        raise ConfigError(
            "--budget",
            f"sizes a run on text files (data.source=text; {recipes})",
            "for others set the sizes yourself",
        )
    if config.model.kind not in sizing.models:
        raise ConfigError(
            "--budget",
            f"sizes model.kind={', '.join(sizing.models)}",
            f"set the sizes of model.kind={config.model.kind} yourself",
        )
    if has_flag and "training.num_updates" in fixed:
        raise ConfigError(
            "--budget",
            f"training.num_updates={fixed['training.num_updates']} is stated already",
            f"leave one of them out, or take --config={sizing.recipe}, which states no length",
        )
    return sizing


def _with(values: Mapping[str, Any], settings: Mapping[str, Any], overrides: Overrides) -> ExperimentConfig:
    added = [(key, str(value)) for key, value in settings.items()]
    return from_dict(apply_overrides(values, [*added, *overrides]))


@cache
def flops_here() -> float:
    """Measure the FLOP/s of small float32 matrix products on the cores of this process."""
    matrix = np.ones((PRODUCT_WIDTH, PRODUCT_WIDTH), np.float32)
    product, times = np.empty_like(matrix), []
    for _ in range(WARM_UP + ROUNDS):
        started = time.perf_counter()
        for _ in range(PRODUCTS):
            np.matmul(matrix, matrix, out=product)
        times.append(time.perf_counter() - started)
    return available_cores() * PRODUCTS * 2 * PRODUCT_WIDTH**3 / min(times[WARM_UP:])


def plan_with_vocabulary(config: ExperimentConfig, seconds: float, flops: float, fixed: Mapping[str, Any]) -> Plan:
    """Return the plan of ``plan_translation`` for the corpus of a run, with its vocabulary."""
    source, split = open_corpus(config.data, config.data_seed, config.parts), config.data.train_split
    count = source.count(split)
    if config.data.held_out:
        # They are in the count of the training split, by which shards are cut.
        count -= source.count(config.data.validation_split)
    if not count:
        raise DataError(f"data: the split {split!r} has no pairs; its files are empty")
    sample = sample_of(source.pairs(split), count)
    kind = config.tokenizer.kind
    sides = [
        (_words(pair.source, sample.source, kind), _words(pair.target, sample.target, kind)) for pair in sample.pairs
    ]
    kept, too_long = sides, 0.0
    # Shorter pairs may have smaller batches, which have lower limits.
    for _ in range(3):
        corpus = CorpusStatistics(max(round(count * (1 - too_long)), 1), sum(map(max, kept)) / max(len(kept), 1))
        plan = plan_translation(corpus, seconds, flops, fixed)
        limits = [fixed.get(key, plan.settings[key]) for key in LIMITS]
        short = [pair for pair in sides if all(np.array(pair) * TOKENS_PER_WORD <= limits)]
        too_long = 1 - len(short) / max(len(sides), 1)
        if not short or len(short) == len(kept) or too_long <= MANY_TOO_LONG or any(key in fixed for key in LIMITS):
            break
        kept = short
    wanted = plan.settings[SIZE]
    vocabulary = _supported_vocabulary(sample, config.tokenizer, wanted, fixed)
    plan = plan_translation(corpus, seconds, flops, {**vocabulary.settings, **fixed})
    settings = {**plan.settings, **vocabulary.settings}
    if fixed.get("batching.kind", "packed") != "packed":
        del settings["batching.count"], settings["batching.packed_length"]
    sentence = f"{plan.sentence}\n{vocabulary.sentence}"
    if too_long > MANY_TOO_LONG:
        sentence += (
            f"\nWARNING: about {too_long:.0%} of the pairs have over {max(limits)} tokens on a side, and are left out: "
            f"split them, or raise {', '.join(LIMITS)} and batching.tokens_per_update"
        )
    target = sample.target
    if (target.words if target.is_spaced else target.characters.total()) < WORDS_OF_BLEU * target.sentences:
        settings["evaluation.selection"] = "chrf"
        if "evaluation.selection" not in fixed:
            units = "words" if target.is_spaced else "characters"
            sentence += (
                f"\ntargets have fewer than 4 {units} on average, too few for BLEU: checkpoints are selected by chrF"
            )
    return plan._replace(settings=settings, sentence=sentence)


def _supported_vocabulary(
    sample: CorpusSample, tokenizer: TokenizerConfig, wanted: int, fixed: Mapping[str, Any]
) -> VocabularyChoice:
    """Return the vocabulary for a sample.

    Unless it is fixed, its size is one that the sample supports.
    """
    sides = sample.source, sample.target
    vocabulary = vocabulary_of(*sides, tokenizer.kind, wanted, fixed)
    settings = {"tokenizer.character_coverage": tokenizer.character_coverage, "tokenizer.joint": tokenizer.joint}
    settings |= vocabulary.settings
    size, is_joint = vocabulary.settings.get(SIZE, 0), settings["tokenizer.joint"]
    is_far = all(side.is_spaced and side.supported_pieces > ESTIMATE_FACTOR * size for side in sides)
    if tokenizer.kind not in SUBWORD_KINDS or not size or is_far:
        return vocabulary
    # This imports JAX.
    from transformer_jax.data.tokenizers.tokenizer_training import train_supported

    tokenizer = replace(tokenizer, vocabulary_size=size, character_coverage=settings["tokenizer.character_coverage"])
    texts = [[pair.source for pair in sample.pairs], [pair.target for pair in sample.pairs]]
    texts = [[*texts[0], *texts[1]]] if is_joint else texts
    supported = min(train_supported(tokenizer, text).vocabulary_size for text in texts)
    if supported == size:
        return vocabulary
    smaller = vocabulary_of(*sides, tokenizer.kind, wanted, {**fixed, SIZE: supported})
    return smaller._replace(settings={**smaller.settings, SIZE: supported})


def _words(text: str, side: SideText, kind: str) -> float:
    """Return the number of words between spaces.

    Without spaces, and for bytes and characters, the number that would give as many tokens.
    """
    if kind in ("byte", "character"):
        return (len(text.encode()) if kind == "byte" else len(text)) / TOKENS_PER_WORD
    parts = text.split()
    return len(parts) if side.is_spaced else sum(map(len, parts)) / (CHARACTERS_OF_A_TOKEN * TOKENS_PER_WORD)


def measure_text(data: TextDataConfig, seed: int) -> TextStatistics:
    """Return counts of the training text, extrapolated from its first 4 MB."""
    source = open_documents(replace(data, documents="lines"), seed)
    characters: Counter[str] = Counter()
    lines = blank = paragraphs = words = num_bytes = 0
    is_open = False
    for document in source.documents(data.split_name("train")):
        text = document.text.rstrip("\r")
        lines, words, num_bytes = lines + 1, words + len(text.split()), num_bytes + document.num_bytes
        blank, paragraphs = blank + (not text), paragraphs + (bool(text) and not is_open)
        is_open = bool(text)
        characters.update(text)
        if num_bytes >= MEASURED_BYTES:
            break
    total, number = source.count_bytes(data.split_name("train")), characters.total()
    if not number:
        raise no_text(source, data.split_name("train"))
    cumulative = itertools.accumulate(count for _, count in characters.most_common())
    alphabet = 1 + sum(count < COVERED_CHARACTERS * number for count in cumulative)
    unspaced = sum(count for character, count in characters.items() if writes_without_spaces(character))
    whole = total / max(num_bytes, 1)
    return TextStatistics(
        num_bytes=total,
        characters=number * whole,
        words=words * whole,
        lines=lines * whole,
        blank_lines=blank * whole,
        paragraphs=paragraphs * whole,
        alphabet=alphabet,
        has_words=unspaced < SHARE_UNSPACED * number,
    )


def plans_text(plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """Return the ``plan`` of a ``Sizing`` for text, from a plan that takes the measured text."""

    def planned(config: ExperimentConfig, seconds: float, flops: float, fixed: Mapping[str, Any]) -> Plan:
        text = measure_text(config.data, config.data_seed)
        planned, supported_size = plan(text, seconds, flops, fixed), dict[str, int]()
        # The size follows from the number of tokens, and that from the vocabulary of the size.
        for _ in range(3):
            size = planned.settings[SIZE]
            if planned.settings["tokenizer.kind"] not in SUBWORD_KINDS:
                break
            tokens, supported = _count_tokens(config, planned.settings)
            if supported < size:
                supported_size = {SIZE: supported}
            text = text._replace(num_tokens=tokens)
            planned = plan(text, seconds, flops, {**supported_size, **fixed})
            if planned.settings[SIZE] in (size, supported):
                break
        return planned

    return planned


def _count_tokens(config: ExperimentConfig, settings: Mapping[str, Any]) -> tuple[float, int]:
    """Return the number of tokens of the training text, with EOS, and the size of its vocabulary.

    Extrapolates from the first 4 MB and a vocabulary learned from them.
    """
    # This imports JAX.
    from transformer_jax.data.tokenizers.tokenizer_training import train_supported

    data = replace(config.data, documents=settings["data.documents"])
    source, split = open_documents(data, config.data_seed), data.split_name("train")
    texts, num_bytes = [], 0
    for document in source.documents(split):
        texts.append(document.text)
        num_bytes += document.num_bytes
        if num_bytes >= MEASURED_BYTES:
            break
    kind, size = settings["tokenizer.kind"], settings[SIZE]
    tokenizer = train_supported(replace(config.tokenizer, kind=kind, vocabulary_size=size), texts)
    tokens = sum(map(len, tokenizer.encode_batch(texts))) + len(texts)
    return tokens * source.count_bytes(split) / max(num_bytes, 1), tokenizer.vocabulary_size


def _fitting_heads(fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return a width and a number of heads that fit the fixed one of the two."""
    if "model.num_heads" in fixed:
        return {"model.d_model": 64 * fixed["model.num_heads"]}
    return {"model.num_heads": 1} if "model.d_model" in fixed else {}


def _translation_placeholders(fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(LIMITS, 8), "model.tying": "none", **_fitting_heads(fixed)}


def _language_model_placeholders(fixed: Mapping[str, Any]) -> dict[str, Any]:
    least = max(2, fixed.get("data.evaluation_stride", 0), fixed.get("decoding.max_new_tokens", 0) + 1)
    context = fixed.get("batching.context_length", least)
    sizes = {"batching.tokens_per_update": rows_of_batch(fixed) * context, "decoding.max_new_tokens": 1}
    return {"batching.context_length": context, "model.max_positions": context, **sizes, **_fitting_heads(fixed)}


TRANSLATION = Sizing("text", SIZED_TRANSLATION, ("transformer",), plan_with_vocabulary, _translation_placeholders)
LANGUAGE_MODEL = Sizing(
    "language_model:text",
    LANGUAGE_MODEL_KEYS,
    ("decoder_only",),
    plans_text(plan_language_model),
    _language_model_placeholders,
)

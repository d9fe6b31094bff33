"""Sizes, batches and vocabulary of a Transformer for a parallel corpus and a time budget."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.config import ExperimentConfig, TokenizerConfig
from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import CorpusSample, SideText, VocabularyChoice, sample_of, vocabulary_of
from transformer_jax.errors import DataError
from transformer_jax.tools.sizing.plan import (
    CHARACTERS_OF_A_TOKEN,
    MIN_UPDATES,
    SCHEDULE,
    TOKENS_PER_WORD,
    VOCABULARY_SIZE,
    Plan,
    fitting_heads,
    left_over,
    minutes_of_this_cpu,
    of_width,
    rate_of_peak,
    require_enough,
    update_intervals,
    without_model,
)
from transformer_jax.tools.sizing.sizes import Sizing

# Measured with the recipes text and multi30k on two cores of an AMD EPYC (Zen 4).
# The speed of updates relative to small matrix products.
EFFICIENCY = 0.55
# Costs in floating-point operations at that speed: of start-up and compilation.
START_UP = 6e12
# Of validating ``VALIDATED`` sentences, for a parameter.
VALIDATION = 1e5
# Of compiling the first validation.
FIRST_VALIDATION = 1.3e12
SHARE_OF_VALIDATIONS = 0.05
SHARE_OF_TIME_IN_UPDATES = 0.9
MIN_VALIDATIONS = 2
MAX_VALIDATIONS = 8
# Updates between validations.
MIN_BETWEEN = 50
# Full batches on a CPU. BLEU of so few sentences differs between checkpoints by 1.6 at random: a
# run of 30 minutes chose a checkpoint 2.2 BLEU below its last, one of 10 minutes 1.8
# (experiments/own_text). So longer runs validate more sentences, and shorter ones so rarely that
# only the last checkpoint is in the decay of the learning rate, the last fifth of the updates.
VALIDATED = 96
MAX_BATCHES_VALIDATED = 20
ENOUGH_BATCHES_VALIDATED = 4
VALIDATIONS_OF_FEW = 5
# With 1,000 pairs 120 epochs were 0.9 BLEU better than 40 (experiments/own_text): a corpus of fewer
# tokens than FEW_TOKENS gets as many updates as one of that size, up to MAX_EPOCHS_OF_FEW.
MAX_EPOCHS = 40
MAX_EPOCHS_OF_FEW = 120
FEW_TOKENS = 57_600
# With fewer updates, batches are halved, and the learning rate is divided by the square root of 2.
ENOUGH_UPDATES = 4000
# Dropout increases with the number of epochs, up to the dropout of the size.
MIN_DROPOUT = 0.05
DROPOUT_PER_EPOCH = 0.01
# Positions of packed rows for short pairs, and for pairs of more than LONG_PAIR tokens on average.
SHORT_ROWS = 64
LONG_ROWS = 128
LONG_PAIR = 24
ROWS_OF_SMALLEST_BATCH = 12
LIMITS = "data.max_source_tokens", "data.max_target_tokens"
# Share of pairs above the limits that is reported, and left out of the plan.
MANY_TOO_LONG = 0.1
# A text with spaces supports a vocabulary of a quarter of the estimate.
ESTIMATE_FACTOR = 4
# BLEU is the geometric mean over runs of 1 to 4 tokens: it is 0 for shorter targets.
WORDS_OF_BLEU = 4


class CorpusStatistics(NamedTuple):
    """The number of pairs of a corpus, and the mean number of words of the longer side."""

    pairs: int
    words_per_pair: float

    @property
    def tokens(self) -> float:
        """Estimated tokens of one side, with EOS."""
        return self.pairs * (self.words_per_pair * TOKENS_PER_WORD + 1)

    @property
    def max_epochs(self) -> float:
        """Epochs after which more training seldom helps."""
        return min(max(MAX_EPOCHS * FEW_TOKENS / max(self.tokens, 1), MAX_EPOCHS), MAX_EPOCHS_OF_FEW)

    @property
    def row_length(self) -> int:
        """Positions of a packed row."""
        return LONG_ROWS if self.tokens > LONG_PAIR * self.pairs else SHORT_ROWS


class Size(NamedTuple):
    """A Transformer and its largest batches, for a size of corpus and budget.

    The corpus has at least ``pairs`` of ``WORDS_OF_A_PAIR``, and the budget trains each parameter
    on ``min_tokens`` or more. The decoder has as many layers as the encoder if ``decoder_layers``
    is 0.
    """

    pairs: int
    min_tokens: int
    layers: int
    d_model: int
    d_ff: int
    num_heads: int
    vocabulary: int
    dropout: float
    learning_rate: float
    tokens_per_update: int
    decoder_layers: int = 0

    @property
    def parameters(self) -> int:
        attention, feed_forward = 4 * self.d_model**2, 2 * self.d_model * self.d_ff
        encoder = self.layers * (attention + feed_forward)
        decoder = (self.decoder_layers or self.layers) * (2 * attention + feed_forward)
        return encoder + decoder + self.vocabulary * self.d_model

    def seconds(self, updates: int, speed: float) -> float:
        """Return the seconds of start-up and of updates with validations, at ``speed`` FLOP/s."""
        return (START_UP + updates * 6 * self.parameters * self.tokens_per_update / SHARE_OF_TIME_IN_UPDATES) / speed

    def affordable_tokens(self, seconds: float, speed: float) -> float:
        """Return the tokens of the updates for which ``seconds`` suffice."""
        return max(seconds * speed - START_UP, 0) * SHARE_OF_TIME_IN_UPDATES / (6 * self.parameters)


KEYS_OF_SIZE = {
    "layers": "model.num_encoder_layers",
    "d_model": "model.d_model",
    "d_ff": "model.d_ff",
    "num_heads": "model.num_heads",
    "vocabulary": "tokenizer.vocabulary_size",
    "dropout": "model.dropout",
    "learning_rate": "optimizer.learning_rate",
    "tokens_per_update": "batching.tokens_per_update",
    "decoder_layers": "model.num_decoder_layers",
}
# Parameters grow as the tokens of the corpus to the power of about 2/3. The fourth row was better
# than the third for 29,000 pairs with an hour (experiments/multi30k). Those below the fifth
# were not run.
SIZES = (
    Size(0, 0, 2, 128, 256, 4, 2000, 0.3, 2.5e-3, 768),
    Size(10_000, 0, 2, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(10_000, 4, 4, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(28_000, 3, 4, 192, 384, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(70_000, 4, 4, 256, 512, 4, 8000, 0.3, 2.5e-3, 2048),
    Size(140_000, 4, 4, 256, 1024, 4, 12_000, 0.2, 1.5e-3, 3072),
    Size(360_000, 4, 6, 320, 1280, 4, 16_000, 0.2, 1.2e-3, 6144),
    Size(600_000, 4, 6, 384, 1536, 6, 24_000, 0.1, 1e-3, 8192),
    Size(1_600_000, 4, 6, 512, 2048, 8, 32_000, 0.1, 7e-4, 12_288),
)
WORDS_OF_A_PAIR = 12


def plan_translation(
    corpus: CorpusStatistics,
    budget_seconds: float,
    flops: float,
    fixed: Mapping[str, Any] | None = None,
    vocabulary: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of the largest size that suits the corpus and is trained on enough tokens.

    If there is none, of the smallest size. ``vocabulary``: settings of the vocabulary that the
    corpus supports, instead of the size's.

    A larger corpus or budget never gives a smaller size; see ``Plan``. A fixed size of the model
    does not change vocabulary and batches.
    """
    fixed, speed = fixed or {}, EFFICIENCY * flops
    text, others = CorpusStatistics(1, WORDS_OF_A_PAIR).tokens, without_model(fixed)
    suitable = [SIZES[0]]
    for listed in SIZES:
        size, _ = _with_batches(listed, others, corpus, budget_seconds, speed)
        is_affordable = size.affordable_tokens(budget_seconds, speed) >= size.min_tokens * size.parameters
        if is_affordable and corpus.tokens >= listed.pairs * text:
            suitable.append(listed)
    row = of_width(suitable[-1], SIZES, fixed)
    fixed = {**(vocabulary or {}), **fixed}
    size, updates = _with_batches(row, fixed, corpus, budget_seconds, speed)
    updates = fixed.get("training.num_updates") or updates
    if not fixed.get("training.num_updates"):
        require_enough(budget_seconds, updates, size.seconds(MIN_UPDATES, speed))
    seconds, epochs = size.seconds(updates, speed), updates * size.tokens_per_update / corpus.tokens
    warmup = max(updates // 10, 1)
    affordable_validations = (SHARE_OF_VALIDATIONS * seconds * speed - FIRST_VALIDATION) / (
        VALIDATION * size.parameters
    )
    has_enough = affordable_validations >= ENOUGH_BATCHES_VALIDATED * MAX_VALIDATIONS
    most = MAX_VALIDATIONS if has_enough else VALIDATIONS_OF_FEW
    validations = min(max(int(affordable_validations), MIN_VALIDATIONS), most)
    intervals = update_intervals(updates, validations, MIN_BETWEEN)
    batches_validated = min(max(int(affordable_validations / validations), 1), MAX_BATCHES_VALIDATED)
    # About one minute: a run re-estimates its end at each checkpoint.
    checkpoint_every = max(min(intervals["training.evaluate_every"], int(60 * updates / max(seconds, 1))), 1)
    settings = {key: getattr(size, name) for name, key in KEYS_OF_SIZE.items()} | {
        "batching.kind": "packed",
        "batching.count": "tokens",
        "batching.packed_length": corpus.row_length,
        "batching.width_multiple": 8,
        "data.max_source_tokens": min(191, size.tokens_per_update // 8 - 1),
        "data.max_target_tokens": min(191, size.tokens_per_update // 8 - 1),
        "model.num_decoder_layers": size.decoder_layers or size.layers,
        # Post-norm training collapses at these learning rates: experiments/own_text.
        "model.normalization": "pre",
        "model.dropout": round(min(size.dropout, MIN_DROPOUT + DROPOUT_PER_EPOCH * epochs), 2),
        "model.embedding_dropout": 0.1,
        "optimizer.schedule": SCHEDULE,
        "optimizer.warmup_updates": warmup,
        "optimizer.learning_rate": rate_of_peak(fixed, size.learning_rate, size.d_model, warmup),
        **intervals,
        "training.checkpoint_every": checkpoint_every,
        "training.validation_sentences": VALIDATED * batches_validated,
    }
    further_tables = {"embeddings": 1, "output": 1, "none": 2}.get(fixed.get("model.tying", ""), 0)
    separate = further_tables * size.vocabulary * size.d_model
    sentence = (
        f"{corpus.pairs:,} pairs of about {corpus.words_per_pair:.0f} words: {(size.parameters + separate) / 1e6:.1f} million "
        f"parameters, {updates:,} updates (about {epochs:.{1 if epochs < 10 else 0}f} epochs), {minutes_of_this_cpu(seconds)}"
        f"{left_over(fixed, budget_seconds, seconds, epochs, round(corpus.max_epochs))}"
    )
    max_updates = max(int(corpus.max_epochs * corpus.tokens / size.tokens_per_update), MIN_UPDATES)
    return Plan(settings, seconds, sentence, max_updates)


def _with_batches(
    listed: Size, fixed: Mapping[str, Any], corpus: CorpusStatistics, budget_seconds: float, speed: float
) -> tuple[Size, int]:
    """Return the size with fixed settings, and its number of updates.

    Batches are the largest that allow ``ENOUGH_UPDATES``.
    """
    smallest = ROWS_OF_SMALLEST_BATCH * corpus.row_length
    tokens = max(listed.tokens_per_update, smallest)
    if "batching.tokens_per_update" in fixed:
        # At most the learning rate of the size, which is not known to scale to larger batches.
        smallest = tokens = min(fixed["batching.tokens_per_update"], listed.tokens_per_update)
    while True:
        rate = round(listed.learning_rate * (tokens / listed.tokens_per_update) ** 0.5, 5)
        size = listed._replace(tokens_per_update=tokens, learning_rate=rate)
        size = size._replace(**{name: fixed[key] for name, key in KEYS_OF_SIZE.items() if key in fixed})
        affordable = size.affordable_tokens(budget_seconds, speed) / size.tokens_per_update
        max_updates = max(corpus.max_epochs * corpus.tokens / size.tokens_per_update, MIN_UPDATES)
        updates = max(int(min(affordable, max_updates)), 0)
        if updates >= ENOUGH_UPDATES or tokens <= smallest:
            return size, updates
        tokens = max(tokens // 2, smallest)


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
    wanted = plan.settings[VOCABULARY_SIZE]
    vocabulary = _supported_vocabulary(sample, config.tokenizer, wanted, fixed)
    plan = plan_translation(corpus, seconds, flops, fixed, vocabulary.settings)
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
    size, is_joint = vocabulary.settings.get(VOCABULARY_SIZE, 0), settings["tokenizer.joint"]
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
    smaller = vocabulary_of(*sides, tokenizer.kind, wanted, {**fixed, VOCABULARY_SIZE: supported})
    return smaller._replace(settings={**smaller.settings, VOCABULARY_SIZE: supported})


def _words(text: str, side: SideText, kind: str) -> float:
    """Return the number of words between spaces.

    Without spaces, and for bytes and characters, the number that would give as many tokens.
    """
    if kind in ("byte", "character"):
        return (len(text.encode()) if kind == "byte" else len(text)) / TOKENS_PER_WORD
    parts = text.split()
    return len(parts) if side.is_spaced else sum(map(len, parts)) / (CHARACTERS_OF_A_TOKEN * TOKENS_PER_WORD)


def _placeholders(fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(LIMITS, 8), "model.tying": "none", **fitting_heads(fixed)}


KEYS = (
    *plan_translation(CorpusStatistics(10, 10), 1e9, 1e12).settings,
    *("tokenizer.joint", "tokenizer.character_coverage", "model.tying", "evaluation.selection"),
)
TRANSLATION = Sizing("text", KEYS, ("transformer",), plan_with_vocabulary, _placeholders)

"""The settings of one run, whole, and the checks that involve more than one block of them."""

import math
from dataclasses import dataclass, field

from transformer_jax.config.checks import require
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.decoding import DecodingConfig
from transformer_jax.config.initialization import InitConfig
from transformer_jax.config.model import TransformerConfig
from transformer_jax.config.optimization import MeshConfig, OptimizerConfig, TrainingConfig
from transformer_jax.config.rnn import RnnConfig

MODELS: dict[str, type[TransformerConfig] | type[RnnConfig]] = {"transformer": TransformerConfig, "rnn": RnnConfig}
"""Settings of the models, by ``model.kind``."""


@dataclass(frozen=True)
class ExperimentConfig:
    """One run, whole."""

    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    model: TransformerConfig | RnnConfig = field(default_factory=TransformerConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, "seed", f"{self.seed} must be at least 0 and below 2^32")
        self._check_tying()
        self._check_batches()
        self._check_schedule()
        self._check_positions()
        self._check_attended_positions()

    @property
    def data_seed(self) -> int:
        """What the data are drawn with. With a seed of their own, that of the run draws parameters and dropout alone."""
        return self.seed if self.data.seed < 0 else self.data.seed

    def _check_tying(self) -> None:
        can_tie = self.tokenizer.joint or self.model.tying in ("output", "none")
        remedy = (
            f"{self.model.tying!r} shares the source and target embeddings, which needs tokenizer.joint=True; "
            "or use output or none"
        )
        require(can_tie, "model.tying", remedy)

    def _check_batches(self) -> None:
        widest = max(self.data.max_source_tokens, self.data.max_target_tokens) + 1
        if self.batching.kind == "packed":
            problem = (
                f"packed rows hold several sentences, which model.kind={self.model.kind} cannot tell apart; use buckets"
            )
            require(self.model.can_pack, "batching.kind", problem)
            require(
                self.batching.packed_length >= widest,
                "batching.packed_length",
                f"{self.batching.packed_length} positions do not hold a pair of {widest}; raise it or lower data.max_*_tokens",
            )
            widest = self.batching.packed_length
        fits = self.batching.tokens_per_update >= widest * self.batching.row_multiple
        problem = (
            f"{self.batching.tokens_per_update} is less than batching.row_multiple={self.batching.row_multiple} rows of "
            f"{widest} positions; raise it to {widest * self.batching.row_multiple} or lower data.max_*_tokens"
        )
        require(fits, "batching.tokens_per_update", problem)
        shards = self.batching.accumulation_steps * max(self.mesh.data, 1) * max(self.mesh.fsdp, 1)
        divides = self.batching.row_multiple % shards == 0
        problem = (
            f"{self.batching.row_multiple} rows do not divide into {shards} parts "
            f"(mesh.data x mesh.fsdp x batching.accumulation_steps); use a multiple of {shards}"
        )
        require(divides, "batching.row_multiple", problem)

    def _check_schedule(self) -> None:
        warmup, updates = self.optimizer.warmup_updates, self.training.num_updates
        ends = self.optimizer.schedule != "cosine" or warmup < updates
        problem = f"{warmup} leaves a cosine schedule nothing of training.num_updates={updates}; it must be less"
        require(ends, "optimizer.warmup_updates", problem)

    def _check_attended_positions(self) -> None:
        if isinstance(self.model, RnnConfig) and self.model.attention == "location":
            positions, longest = self.model.max_attended_positions, self.data.max_source_tokens + 1
            remedy = "raise it, or lower data.max_source_tokens"
            problem = f"{positions} leaves the end of sources of up to {longest} tokens unseen; {remedy}"
            require(positions >= longest, "model.max_attended_positions", problem)

    def _check_positions(self) -> None:
        # Search pads sources by up to a quarter, and its caches are as long as the longest output.
        padded = math.ceil(1.25 * (self.data.max_source_tokens + 1)) + 8
        needed = max(padded + self.decoding.max_extra_tokens, self.data.max_target_tokens + 1)
        longest = self.model.longest_sequence
        fits = longest is None or longest >= needed
        problem = f"{longest} learned positions are too few to translate the longest sources; use {needed}"
        require(fits, "model.max_positions", problem)

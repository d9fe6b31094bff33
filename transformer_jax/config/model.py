"""Settings of the models."""

from dataclasses import dataclass

from transformer_jax.config.checks import require, require_choice, require_fraction, require_positive

NORMALIZATIONS = ("post", "pre")
POSITIONS = ("sinusoidal", "fairseq", "learned", "none")
FEED_FORWARDS = ("relu", "gelu", "exact_gelu", "silu", "gated_gelu", "gated_silu")
TYINGS = ("all", "embeddings", "output", "none")
ATTENTIONS = ("multi_head", "biased", "rectified", "unscaled", "acausal")
EMBEDDINGS = ("scaled", "unscaled", "zero_padding")
DTYPES = ("auto", "float32", "float32_exact", "tf32", "bfloat16")
ATTENTION_BACKENDS = ("auto", "einsum", "blockwise", "cudnn", "tpu_flash")
REMATERIALIZATIONS = ("none", "keep_products", "keep_projections", "full")


@dataclass(frozen=True)
class TransformerLayersConfig:
    """Settings common to all Transformers; defaults are the base model (Vaswani et al. 2017, table 3).

    ``attention`` and ``embedding`` are the paper's (``multi_head``, ``scaled``) or those of an early re-implementation
    (``rectified``, ``zero_padding``), or what public checkpoints have: ``biased`` projections, an ``unscaled`` embedding, a
    ``logits_bias``, the sinusoids of ``fairseq`` as ``positions``, another ``norm_epsilon``. Some choices take a part out, to
    measure what it is for: attention ``unscaled``, without 1 / sqrt(d_k), attention ``acausal``, without the causal mask, and
    positions ``none``. ``d_key`` and ``d_value`` of 0 mean ``d_model / num_heads``.

    ``compute_dtype`` names the precision of the arithmetic: ``bfloat16`` (operands of products, hidden states between them,
    logits of the training loss; sums, norms, softmax and loss stay float32), ``float32`` as fast as the device takes it,
    ``float32_exact`` and ``tf32``, which mean the same on every device, or ``auto``, bfloat16 where the devices have units for
    it, else float32; a run keeps what it was resolved to.

    Three settings change how it is computed, not what: ``attention_backend`` (``auto``: by device and length), ``scan_layers``
    (one layer is compiled, not all) and ``rematerialize`` (what a layer computes again instead of keeping it).
    """

    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_key: int = 0
    d_value: int = 0
    normalization: str = "post"
    positions: str = "sinusoidal"
    max_positions: int = 1024
    feed_forward: str = "relu"
    attention: str = "multi_head"
    embedding: str = "scaled"
    norm_epsilon: float = 1e-6
    logits_bias: bool = False
    dropout: float = 0.1
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    compute_dtype: str = "float32"
    attention_backend: str = "auto"
    scan_layers: bool = False
    rematerialize: str = "none"

    def __post_init__(self) -> None:
        require_positive("model", self, "d_model", "d_ff", "num_heads", "max_positions", "norm_epsilon")
        require_choice("model.normalization", self.normalization, NORMALIZATIONS)
        require_choice("model.positions", self.positions, POSITIONS, "positions")
        require_choice("model.feed_forward", self.feed_forward, FEED_FORWARDS)
        require_choice("model.attention", self.attention, ATTENTIONS, "attention")
        require_choice("model.embedding", self.embedding, EMBEDDINGS)
        require_choice("model.compute_dtype", self.compute_dtype, DTYPES)
        require_choice("model.attention_backend", self.attention_backend, ATTENTION_BACKENDS)
        require_choice("model.rematerialize", self.rematerialize, REMATERIALIZATIONS)
        require_fraction("model", self, "dropout", "embedding_dropout", "attention_dropout", "activation_dropout")
        is_even = self.d_model % 2 == 0 or self.positions == "learned"
        require(is_even, "model.d_model", f"{self.d_model} must be even: sinusoids come in pairs")
        for name in ("d_key", "d_value"):
            value = getattr(self, name)
            require(value >= 0, f"model.{name}", f"{value} must not be negative")
            divides = value > 0 or self.d_model % self.num_heads == 0
            remedy = (
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; change one or set model.{name}"
            )
            require(divides, "model.num_heads", remedy)
        width = self.num_heads * self.head_value_size
        remedy = f"rectified has no output projection, so heads of {width} together must be as wide as d_model={self.d_model}"
        require(self.attention != "rectified" or width == self.d_model, "model.attention", remedy)

    @property
    def is_recurrent(self) -> bool:
        """Whether a step of time needs the one before it."""
        return False

    @property
    def has_attention_backend(self) -> bool:
        """Whether there is an attention to choose a backend for, and layers that can be rematerialized."""
        return True

    @property
    def attended_positions(self) -> int | None:
        """The most source positions that attention can reach, None where there is no limit."""
        return None

    @property
    def longest_sequence(self) -> int | None:
        """The most tokens a sequence may have, None where there is no limit."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def can_pack(self) -> bool:
        """Whether a row may hold several sentences."""
        return True

    @property
    def head_key_size(self) -> int:
        """d_k of the paper."""
        return self.d_key or self.d_model // self.num_heads

    @property
    def head_value_size(self) -> int:
        """d_v of the paper."""
        return self.d_value or self.d_model // self.num_heads


@dataclass(frozen=True)
class TransformerConfig(TransformerLayersConfig):
    """The encoder-decoder Transformer (Vaswani et al. 2017, table 3); defaults are the base model.

    ``tying``: ``all`` one matrix for both embeddings and the output projection (section 3.4), ``embeddings`` the two
    embeddings, ``output`` target embedding and projection, ``none``.
    """

    kind: str = "transformer"
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    tying: str = "all"

    @property
    def attention_counts(self) -> dict[str, tuple[int, int]]:
        """Layers, and heads of each, by kind of attention."""
        decoder = self.num_decoder_layers, self.num_heads
        return {"encoder": (self.num_encoder_layers, self.num_heads), "decoder": decoder, "cross": decoder}

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.kind == "transformer", "model.kind", f"{self.kind!r} is not transformer")
        require_positive("model", self, "num_encoder_layers", "num_decoder_layers")
        require_choice("model.tying", self.tying, TYINGS)

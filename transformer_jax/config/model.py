"""Settings of Transformers, recurrent encoder-decoders, and the initial parameters of a run."""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from transformer_jax.config.checks import check_settings, declared, rate, setting
from transformer_jax.errors import ConfigError
from transformer_jax.files.paths import absolute_path, is_address, unasked
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import registered

KIND = "Kind of model."
ComputeDtype = Literal["auto", "float32", "float32_exact", "tf32", "bfloat16"]
COMPUTE_DTYPE = (
    "Precision of matrix products and hidden states: float32 (the fastest float32 of the device), float32_exact or tf32 "
    "(the same on every device), bfloat16 (sums, norms, softmax and loss stay float32), auto (bfloat16 if the devices "
    "have units for it, else float32)."
)
Tying = Literal["all", "embeddings", "output", "none"]
TYING = (
    "Shared matrices: both embeddings and output projection (all, section 3.4), both embeddings, target embedding and "
    "output projection (output), or none."
)
EMBEDDING_DROPOUT = "Dropout rate of embeddings."


def check_attention(whole: list[str], changes: list[str]) -> None:
    """Raise ConfigError for several whole attentions, and for changes of others than multi_head."""
    if len(whole) >= 2:
        raise ConfigError("model.attention", f"choose one of {', '.join(whole)}")
    if changes and whole not in ([], ["multi_head"]):
        problem = f"{', '.join(whole)} takes no changes, only multi_head does; leave out {', '.join(changes)}"
        raise ConfigError("model.attention", problem)


@dataclass(frozen=True)
class TransformerLayersConfig:
    """Settings common to all Transformers; defaults are the base model (paper, table 3).

    - Paper: attention ``multi_head``, embedding ``scaled``.
    - An early re-implementation: attention ``rectified``, embedding ``zero_padding``.
    - Public checkpoints: attention ``biased`` (projections), embedding ``unscaled``,
      ``logits_bias``, positions ``fairseq``.
    - Ablations: attention ``unscaled`` (without 1 / sqrt(d_k)) or ``acausal`` (without the causal
      mask), positions ``none``.

    A run keeps the ``compute_dtype`` to which ``auto`` resolved when it began.
    """

    d_model: int = setting(512, "Width of the hidden states.")
    d_ff: int = setting(2048, "Width of the feed-forward layers.")
    num_heads: int = setting(8, "Attention heads of a layer.")
    d_key: int = setting(0, "Width of a head's queries and keys; 0: d_model / num_heads.", at_least=0)
    d_value: int = setting(0, "Width of a head's values; 0: d_model / num_heads.", at_least=0)
    normalization: str = setting(
        "post", "Residual connection: norm after the sum (post, published) or at its input (pre).", plugin="residual"
    )
    norm: str = setting("layer_norm", "Norm of hidden states.", plugin="norm")
    positions: str = setting(
        "sinusoidal", "Positions: embeddings, or a change of attention (rope, alibi, t5, shaw).", plugin="positions"
    )
    max_positions: int = setting(1024, "learned: number of positions, the maximum length of a sequence.")
    feed_forward: str = setting(
        "relu", "Activation of the feed-forward layers; gated ones have a third matrix.", plugin="feed_forward"
    )
    initialization: str = setting(
        "xavier",
        "Initial values of the parameters: Xavier uniform for kernels and normal for embeddings, or a change of these by a "
        "part.",
        plugin="initialization",
    )
    attention: str = setting(
        "multi_head",
        "Attention, or changes of it in order: grouped_query,qk_norm.",
        plugin="attention",
        several=True,
        ordered=True,
    )
    mixers: str = setting(
        "",
        "Self-attention of the decoder or its replacement: one name for all layers, or one for each, separated by spaces: "
        "attention attention ssru; empty: attention.",
        choices=("attention",),
        plugin="mixer",
        several=True,
        ordered=True,
        separator=" ",
    )
    embedding: Literal["scaled", "unscaled", "zero_padding"] = setting(
        "scaled", "Embeddings: scaled by sqrt(d_model) (published), unscaled, or scaled with zeros for padding."
    )
    norm_epsilon: float = setting(1e-6, "Added to the variance, or mean square, in norms.")
    logits_bias: bool = setting(False, "The output projection has a bias, as in many public checkpoints.")
    projection: str = setting(
        "linear", "Output layer: product with the matrix of tying (linear), or a part around it.", plugin="projection"
    )
    dropout: float = rate(0.1, "Dropout rate of residual connections.")
    embedding_dropout: float = rate(0.1, EMBEDDING_DROPOUT)
    attention_dropout: float = rate(0.0, "Dropout rate of attention weights.")
    activation_dropout: float = rate(0.0, "Dropout rate inside the feed-forward layers.")
    compute_dtype: ComputeDtype = setting("float32", COMPUTE_DTYPE)
    attention_backend: Literal["auto", "einsum", "blockwise", "cudnn", "tpu_flash"] = setting(
        "auto", "Implementation of attention, with the same result; auto chooses by device and length.", changeable=True
    )
    scan_layers: bool = setting(
        False,
        "Compile one layer and scan it over all; the checkpoints are alike, dropout masks differ.",
        changeable=True,
    )
    rematerialize: Literal["none", "keep_products", "keep_projections", "full"] = setting(
        "none",
        "Activations of a layer that the backward pass recomputes instead of storing; dropout masks differ from none.",
        changeable=True,
    )

    is_recurrent: ClassVar[bool] = False
    """Whether a time step needs the previous one."""
    has_attention_backend: ClassVar[bool] = True
    """Whether ``attention_backend`` and ``rematerialize`` have an effect."""
    can_pack: ClassVar[bool] = True
    """Whether a row may hold several sentences."""
    attended_positions: ClassVar[int | None] = None
    """Maximum number of source positions that attention can attend to, or None."""

    def __post_init__(self) -> None:
        check_settings("model", self)
        if self.d_model % 2 and self.positions in ("sinusoidal", "fairseq"):
            raise ConfigError("model.d_model", f"{self.d_model} must be even: sinusoids come in pairs")
        if self.positions == "fairseq" and self.d_model <= 2:
            raise ConfigError("model.d_model", "fairseq positions need at least 4")
        for name in ("d_key", "d_value"):
            if not getattr(self, name) and self.d_model % self.num_heads:
                problem = f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}"
                raise ConfigError("model.num_heads", problem, f"change one, or set model.{name}")
        width = self.num_heads * self.head_value_size
        if self.attention == "rectified" and width != self.d_model:
            problem = f"rectified has no output projection, so the heads' width {width} must be d_model={self.d_model}"
            raise ConfigError("model.attention", problem)
        if not (names := declared(type(self))["attention"].choices_in(self.attention)):
            raise ConfigError("model.attention", "'' must name multi_head, another kind, or changes of multi_head")
        listed = own_parts()
        core = [name for name in names if ("attention", name) in listed and listed["attention", name].owner.is_core]
        check_attention(core, [name for name in names if name not in core])
        mixers, depth = self.layer_mixers, self.decoder_depth
        if len(mixers) != depth:
            problem = f"{len(mixers)} names for the {depth} layers of the decoder"
            raise ConfigError("model.mixers", problem, "give one for each layer, or one for all")
        if len(set(mixers)) != 1 and self.scan_layers:
            problem = f"model.mixers={self.mixers!r} has different layers, but only one is compiled"
            raise ConfigError("model.scan_layers", problem, "use False")

    def check_new_run(self, config: object) -> None:
        """Raise ConfigError for a norm without effect, and for one half of DeepNorm."""
        has_norm = registered("residual")[self.normalization].has_norm
        if not has_norm and self.norm != declared(type(self))["norm"].default:
            problem = f"{self.norm} has no effect here: model.normalization={self.normalization} has no norms"
            raise ConfigError("model.norm", problem)
        if (self.normalization == "deepnorm", self.initialization) in ((True, "xavier"), (False, "deepnorm")):
            problem = "DeepNorm is model.normalization=deepnorm and model.initialization=deepnorm"
            raise ConfigError("model.initialization", problem, "set both, or neither")

    @property
    def longest_sequence(self) -> int | None:
        """Maximum length of a sequence in tokens, or None."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def decoder_depth(self) -> int:
        """The number of layers with causal self-attention."""
        raise NotImplementedError

    @property
    def layer_mixers(self) -> tuple[str, ...]:
        """The mixer of each decoder layer."""
        names = declared(type(self))["mixers"].choices_in(self.mixers or "attention")
        return tuple(names * self.decoder_depth if len(names) == 1 else names)

    @property
    def attention_layers(self) -> dict[str, tuple[list[int], int]]:
        """The layers that have attention, from 1, and the number of their heads, by kind."""
        layers = [number for number, mixer in enumerate(self.layer_mixers, start=1) if mixer == "attention"]
        return {"decoder": (layers, self.num_heads)}

    @property
    def head_key_size(self) -> int:
        return self.d_key or self.d_model // self.num_heads

    @property
    def head_value_size(self) -> int:
        return self.d_value or self.d_model // self.num_heads


@dataclass(frozen=True)
class TransformerConfig(TransformerLayersConfig):
    """The encoder-decoder Transformer; defaults are the base model (paper, table 3)."""

    kind: Literal["transformer"] = setting("transformer", KIND)
    num_encoder_layers: int = setting(6, "Layers of the encoder.", at_most=10_000)
    num_decoder_layers: int = setting(6, "Layers of the decoder.", at_most=10_000)
    tying: Tying = setting("all", TYING)

    @property
    def decoder_depth(self) -> int:
        return self.num_decoder_layers

    @property
    def attention_layers(self) -> dict[str, tuple[list[int], int]]:
        encoder, cross = ([*range(1, depth + 1)] for depth in (self.num_encoder_layers, self.num_decoder_layers))
        return {"encoder": (encoder, self.num_heads), **super().attention_layers, "cross": (cross, self.num_heads)}


@dataclass(frozen=True)
class RnnConfig:
    """A recurrent encoder-decoder (Sutskever et al. 2014; Cho et al. 2014), also with attention."""

    kind: Literal["rnn"] = setting("rnn", KIND)
    cell: Literal["lstm", "gru"] = setting("lstm", "Recurrent cell.")
    num_encoder_layers: int = setting(1, "Layers of the encoder.", at_most=10_000)
    num_decoder_layers: int = setting(1, "Layers of the decoder.", at_most=10_000)
    d_embedding: int = setting(256, "Width of the embeddings.")
    d_hidden: int = setting(256, "Width of a cell; of each direction of a bidirectional encoder.")
    bidirectional_encoder: bool = setting(True, "The encoder reads in both directions.")
    reverse_source: bool = setting(False, "The encoder reads the reversed source (Sutskever et al. 2014).")
    decoder_start: Literal["last", "bridge", "zeros"] = setting(
        "bridge",
        "Initial decoder state: the encoder's last state, a learned function of it (bridge: tanh, Bahdanau et al. "
        "2015, appendix A.2.2), or zeros.",
    )
    attention: str = setting(
        "additive",
        "Score of the attention (Bahdanau et al. 2015; Luong et al. 2015; Chorowski et al. 2015).",
        choices=("none",),
        plugin="rnn_attention",
    )
    wiring: Literal["luong", "bahdanau"] = setting(
        "luong",
        "Attention with the new decoder state (luong), or with the previous one and a maxout layer before the output "
        "(bahdanau).",
    )
    input_feeding: bool = setting(True, "luong: the decoder also reads its last attentional vector.")
    scheduled_sampling: float = setting(
        0.0,
        "Probability that the decoder reads its own sampled token in training (Bengio et al. 2015).",
        at_least=0,
        at_most=1,
        program="optional",
    )
    attention_weights: Literal["softmax", "sharpened", "smoothed"] = setting(
        "softmax", "location_sensitive: normalization of the scores (Chorowski et al. 2015, section 2.3)."
    )
    attention_sharpness: float = setting(2.0, "sharpened: factor on the scores.")
    attention_window: int = setting(10, "local_m, local_p: D, source positions on each side of the center.")
    max_attended_positions: int = setting(128, "location: maximum number of source positions.")
    location_filters: int = setting(10, "location_sensitive: convolution filters over the previous attention weights.")
    location_taps: int = setting(21, "location_sensitive: width of a filter, in source positions.")
    d_attention: int = setting(
        256, "Width of additive, concat, local_p and location_sensitive attention and variants; others ignore it."
    )
    d_readout: int = setting(0, "bahdanau: width of the maxout layer; 0: the width of the embeddings.", at_least=0)
    tying: Tying = setting("none", TYING)
    dropout: float = rate(0.2, "Dropout rate between layers, and of the output of the decoder.")
    embedding_dropout: float = rate(0.2, EMBEDDING_DROPOUT)
    compute_dtype: ComputeDtype = setting("float32", COMPUTE_DTYPE)

    is_recurrent: ClassVar[bool] = True
    has_attention_backend: ClassVar[bool] = False
    can_pack: ClassVar[bool] = False
    initialization: ClassVar[str] = "xavier"
    longest_sequence: ClassVar[int | None] = None
    attention_backend: ClassVar[str] = "einsum"

    def __post_init__(self) -> None:
        check_settings("model", self)
        is_sensitive = self.attention.endswith("location_sensitive")
        if self.tying in ("all", "output") and self.d_output != self.d_embedding:
            problem = f"{self.tying!r} needs d_embedding={self.d_embedding} to equal the output width {self.d_output}"
            raise ConfigError("model.tying", problem)
        if self.attention in ("dot", "scaled_dot") and self.d_memory != self.d_hidden:
            problem = f"{self.attention} needs a memory ({self.d_memory}) as wide as d_hidden={self.d_hidden}"
            raise ConfigError("model.attention", problem, "use general")
        is_alike = self.num_encoder_layers == self.num_decoder_layers and not self.bidirectional_encoder
        if self.decoder_start == "last" and not is_alike:
            problem = "last needs equally many layers on both sides and a unidirectional encoder"
            raise ConfigError("model.decoder_start", problem, "use bridge")
        if self.wiring == "bahdanau" and self.attention == "none":
            problem = "bahdanau's decoder reads the context of an attention"
            raise ConfigError("model.attention", problem, "choose one, or model.wiring=luong")
        if self.wiring == "luong" and is_sensitive and not self.input_feeding:
            problem = f"{self.attention} needs the weights of the previous step"
            raise ConfigError("model.input_feeding", problem, "use True, or model.wiring=bahdanau")
        if self.attention == "none" and self.decoder_start == "zeros":
            problem = "zeros and no attention hide the source from the decoder"
            raise ConfigError("model.decoder_start", problem, "use last or bridge")
        # Settings without effect must have their defaults.
        is_plugin = self.attention != "none" and ("rnn_attention", self.attention) not in own_parts()
        readers = {
            "input_feeding": (self.wiring == "luong" and self.attention != "none", "luong's wiring and an attention"),
            "d_readout": (self.wiring == "bahdanau", "bahdanau's wiring"),
            "attention_weights": (is_sensitive, "location_sensitive"),
            "attention_sharpness": (self.attention_weights == "sharpened", "attention_weights=sharpened"),
            "attention_window": (self.attention in ("local_m", "local_p"), "local_m and local_p"),
            "max_attended_positions": (self.attention == "location", "location"),
            "location_filters": (is_sensitive, "location_sensitive"),
            "location_taps": (is_sensitive, "location_sensitive"),
        }
        for name, (is_read, reader) in readers.items():
            # A part of a plugin may read any setting of the attention.
            is_read |= is_plugin and name.startswith(("attention_", "location_", "max_attended_"))
            value = getattr(self, name)
            if not is_read and value != declared(RnnConfig)[name].default:
                raise ConfigError(f"model.{name}", f"{value} has no effect here: only {reader} reads it")

    def check_new_run(self, config: Any) -> None:
        """Raise ConfigError for statistics of activations, which only Transformers record."""
        for key, kind, name in config.selections:
            if getattr(registered(kind).get(name), "reads_activations", False):
                problem = f"{name} reads activations of Transformers"
                raise ConfigError(key, problem, f"leave it out for model.kind={self.kind}")

    @property
    def attention_layers(self) -> dict[str, tuple[list[int], int]]:
        return {} if self.attention == "none" else {"cross": ([1], 1)}

    @property
    def attended_positions(self) -> int | None:
        return self.max_attended_positions if self.attention == "location" else None

    @property
    def d_model(self) -> int:
        """The width of the model for schedules that scale with it."""
        return self.d_hidden

    @property
    def d_memory(self) -> int:
        return self.d_hidden * (2 if self.bidirectional_encoder else 1)

    @property
    def d_output(self) -> int:
        """The input width of the output projection."""
        return (self.d_readout or self.d_embedding) if self.wiring == "bahdanau" else self.d_hidden


ARROW, SEPARATOR = "=>", ";"


@dataclass(frozen=True)
class InitConfig:
    """Initial parameters of a new run: random, or from another run. A resumed run ignores them."""

    run: str = setting(
        "", "Folder or address of a run whose parameters initialize a new run; empty: random parameters."
    )
    checkpoint: str = setting("best", "Checkpoint of init.run: best, last or the number of an update.")
    rename: str = setting(
        "", "'old=>new; ...': rules of re.sub, in order, from names in the checkpoint to names of this model."
    )
    leave_out: str = setting(
        "", "Regular expression, searched in names of parameters, which stay randomly initialized.", pattern=True
    )
    tokenizer: Literal["adopt", "new"] = setting(
        "adopt", "Adopt the tokenizers of init.run, or train new ones, whose embeddings must be left out."
    )
    embeddings: str = setting(
        "", "File of word vectors that initialize the embeddings, instead of init.run; the other parameters are random."
    )

    @property
    def renamings(self) -> list[tuple[re.Pattern[str], str]]:
        r"""Patterns and replacements in ``rename``, ``"^encoder/=>; layer_(\d)=>layers_\1"``.

        Raises ConfigError when a rule is not ``old=>new``, or not a regular expression.
        """
        pairs = []
        for rule in filter(str.strip, self.rename.split(SEPARATOR)):
            old, arrow, new = (part.strip() for part in rule.partition(ARROW))
            if not arrow or not old:
                raise ConfigError("init.rename", f"{rule.strip()!r} is not of the form old{ARROW}new")
            try:
                pattern = re.compile(old)
            except re.error as error:
                raise ConfigError("init.rename", f"{old!r} is not a regular expression: {error}") from None
            try:
                pattern.sub(new, "")
            except (re.error, IndexError) as error:
                raise ConfigError("init.rename", f"{new!r} cannot replace {old!r}: {error}") from None
            pairs.append((pattern, new))
        return pairs

    def __post_init__(self) -> None:
        check_settings("init", self)
        for name in ("rename", "leave_out"):
            if not self.run and getattr(self, name):
                problem = "there are no parameters to take, since init.run is empty"
                raise ConfigError(f"init.{name}", problem, "set it, or --init_from")
        if self.run and self.embeddings:
            problem = "the parameters, with the embeddings, come from init.run"
            raise ConfigError("init.embeddings", problem, "give one of the two")
        if self.checkpoint not in ("best", "last") and re.fullmatch("[0-9]{1,18}", self.checkpoint) is None:
            raise ConfigError("init.checkpoint", f"{self.checkpoint!r} is not best, last or the number of an update")
        _ = self.renamings

    def of_a_run(self) -> "InitConfig":
        """Return the settings of a run directory, with an address marked as not to be opened."""
        return replace(self, run=unasked(self.run))

    def absolute(self) -> "InitConfig":
        """Return these settings with absolute paths."""
        run = self.run if is_address(self.run) else absolute_path(self.run, "init.run")
        return replace(self, run=run, embeddings=absolute_path(self.embeddings, "init.embeddings"))

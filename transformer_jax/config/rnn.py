"""Settings of the recurrent encoder-decoders."""

from dataclasses import dataclass, fields

from transformer_jax.config.checks import require, require_choice, require_fraction, require_positive
from transformer_jax.config.model import DTYPES, TYINGS

CELLS = ("lstm", "gru")
WEIGHTS = ("softmax", "sharpened", "smoothed")
STARTS = ("last", "bridge", "zeros")
WIRINGS = ("luong", "bahdanau")
ATTENTIONS = (
    "none",
    "dot",
    "scaled_dot",
    "general",
    "additive",
    "normalized_additive",
    "concat",
    "location",
    "local_m",
    "local_p",
    "location_sensitive",
    "cumulative_location_sensitive",
)


@dataclass(frozen=True)
class RnnConfig:
    """A recurrent encoder-decoder (Sutskever et al. 2014; Cho et al. 2014), with or without attention.

    ``d_hidden`` is the size of a cell; of each direction where the encoder is bidirectional. ``decoder_start``: the encoder's
    ``last`` state, a learned ``bridge`` from it (tanh, Bahdanau et al. 2015, appendix A.2.2), or ``zeros``. ``wiring``:
    ``luong`` attends with the new state, and with ``input_feeding`` reads its last attentional vector; ``bahdanau`` attends
    with the previous state and reads the context, and its maxout layer is ``d_readout`` wide, as wide as the embedding if that
    is 0. The weights of ``location_sensitive`` are a ``softmax``, one ``sharpened`` by ``attention_sharpness``, or ``smoothed``
    (Chorowski et al. 2015, section 2.3). ``attention_window`` is D of ``local_m`` and ``local_p``; ``d_attention`` the width of
    the additive scores; ``location`` knows ``max_attended_positions``; ``location_filters``, each ``location_taps`` wide, are
    those of ``location_sensitive``. In training the decoder reads, with probability
    ``scheduled_sampling``, a word that it drew itself (Bengio et al. 2015).
    """

    kind: str = "rnn"
    cell: str = "lstm"
    num_encoder_layers: int = 1
    num_decoder_layers: int = 1
    d_embedding: int = 256
    d_hidden: int = 256
    bidirectional_encoder: bool = True
    reverse_source: bool = False
    decoder_start: str = "bridge"
    attention: str = "additive"
    wiring: str = "luong"
    input_feeding: bool = True
    scheduled_sampling: float = 0.0
    attention_weights: str = "softmax"
    attention_sharpness: float = 2.0
    attention_window: int = 10
    max_attended_positions: int = 128
    location_filters: int = 10
    location_taps: int = 21
    d_attention: int = 256
    d_readout: int = 0
    tying: str = "none"
    dropout: float = 0.2
    embedding_dropout: float = 0.2
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        sizes = "num_encoder_layers", "num_decoder_layers", "d_embedding", "d_hidden", "attention_window", "d_attention"
        require_positive("model", self, *sizes, "max_attended_positions", "location_filters", "location_taps")
        require(self.kind == "rnn", "model.kind", f"{self.kind!r} is not rnn")
        require_choice("model.cell", self.cell, CELLS)
        require_choice("model.decoder_start", self.decoder_start, STARTS)
        require_choice("model.attention", self.attention, ATTENTIONS, "rnn_attention")
        require_choice("model.attention_weights", self.attention_weights, WEIGHTS)
        require_positive("model", self, "attention_sharpness")
        is_softmax = self.attention_weights == "softmax" or self.attention.endswith("location_sensitive")
        require(
            is_softmax, "model.attention_weights", f"{self.attention} has softmax; the others are location_sensitive's"
        )
        require_choice("model.wiring", self.wiring, WIRINGS)
        require_choice("model.tying", self.tying, TYINGS)
        require_choice("model.compute_dtype", self.compute_dtype, DTYPES)
        require(self.d_readout >= 0, "model.d_readout", f"{self.d_readout} must not be negative")
        require_fraction("model", self, "dropout", "embedding_dropout")
        probability = self.scheduled_sampling
        require(0 <= probability <= 1, "model.scheduled_sampling", f"{probability} must be from 0 to 1")
        self._check_sizes()
        self._check_wiring()
        self._check_effects()

    def _check_wiring(self) -> None:
        if self.wiring == "bahdanau":
            remedy = "bahdanau's decoder reads the context of an attention; choose one, or model.wiring=luong"
            require(self.attention != "none", "model.attention", remedy)
        if self.attention.endswith("location_sensitive") and self.wiring == "luong":
            remedy = f"{self.attention} needs the weights of the step before; use True, or model.wiring=bahdanau"
            require(self.input_feeding, "model.input_feeding", remedy)
        sees_source = self.attention != "none" or self.decoder_start != "zeros"
        remedy = "zeros and no attention hide the source from the decoder; use last or bridge"
        require(sees_source, "model.decoder_start", remedy)

    def _check_effects(self) -> None:
        """Raises ConfigError when a setting that this model does not read is not at its default."""
        is_sensitive = self.attention.endswith("location_sensitive")
        readers = {
            "input_feeding": (self.wiring == "luong" and self.attention != "none", "luong's wiring and an attention"),
            "d_readout": (self.wiring == "bahdanau", "bahdanau's wiring"),
            "attention_sharpness": (self.attention_weights == "sharpened", "attention_weights=sharpened"),
            "attention_window": (self.attention in ("local_m", "local_p"), "local_m and local_p"),
            "max_attended_positions": (self.attention == "location", "location"),
            "location_filters": (is_sensitive, "location_sensitive"),
            "location_taps": (is_sensitive, "location_sensitive"),
        }
        defaults = {field.name: field.default for field in fields(self)}
        for name, (is_read, reader) in readers.items():
            value = getattr(self, name)
            problem = f"{value} has no effect here: only {reader} reads it"
            require(is_read or value == defaults[name], f"model.{name}", problem)

    def _check_sizes(self) -> None:
        if self.tying in ("all", "output"):
            sizes = f"d_embedding={self.d_embedding} and an output of {self.d_output}"
            remedy = f"{self.tying!r} shares a matrix between {sizes}; use equal sizes"
            require(self.d_output == self.d_embedding, "model.tying", remedy)
        if self.attention in ("dot", "scaled_dot"):
            remedy = (
                f"{self.attention} needs a memory ({self.d_memory}) as wide as the state ({self.d_hidden}); use general"
            )
            require(self.d_memory == self.d_hidden, "model.attention", remedy)
        if self.decoder_start == "last":
            remedy = "last needs as many layers on both sides and an encoder in one direction; use bridge"
            same = self.num_encoder_layers == self.num_decoder_layers and not self.bidirectional_encoder
            require(same, "model.decoder_start", remedy)

    @property
    def is_recurrent(self) -> bool:
        """Whether a step of time needs the one before it."""
        return True

    @property
    def attention_counts(self) -> dict[str, tuple[int, int]]:
        """Layers, and heads of each, by kind of attention."""
        return {} if self.attention == "none" else {"cross": (1, 1)}

    @property
    def has_attention_backend(self) -> bool:
        """Whether there is an attention to choose a backend for: that of an RNN is computed in one way."""
        return False

    @property
    def attended_positions(self) -> int | None:
        """The most source positions that attention can reach, None where there is no limit."""
        return self.max_attended_positions if self.attention == "location" else None

    @property
    def attention_backend(self) -> str:
        """Empty: the attention of recurrent models has no backends."""
        return "einsum"

    @property
    def d_model(self) -> int:
        """Width of the model for schedules that scale with it."""
        return self.d_hidden

    @property
    def d_memory(self) -> int:
        """The width of the encoder's annotations."""
        return self.d_hidden * (2 if self.bidirectional_encoder else 1)

    @property
    def d_output(self) -> int:
        """The width of what is multiplied with the output matrix."""
        return (self.d_readout or self.d_embedding) if self.wiring == "bahdanau" else self.d_hidden

    @property
    def longest_sequence(self) -> int | None:
        """No limit: positions are not embedded."""
        return None

    @property
    def can_pack(self) -> bool:
        """A row is one sentence: the decoder starts from the state at its end."""
        return False

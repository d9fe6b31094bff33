"""The rows of table 3 of Vaswani et al. 2017 as lists of overrides, for a base model of any size,
and what the paper found.

Every row changes one thing by the paper's ratio: its row (C) with d_ff=1024 halves the 2048 of the
base model, so a base model of 512 has 256 there.
"""

from typing import NamedTuple

Value = str | int | float | bool


class Base(NamedTuple):
    """The sizes of a base model."""

    layers: int
    d_model: int
    d_ff: int
    heads: int
    dropout: float = 0.1


class Found(NamedTuple):
    """What the paper reports of a row: perplexity per wordpiece and BLEU on newstest2013, and
    millions of parameters."""

    perplexity: float
    bleu: float
    millions: float | None = None


PAPER = Base(6, 512, 2048, 8)
SMALL = Base(3, 128, 512, 8)
FOUND = {
    "base": Found(4.92, 25.8, 65),
    "A heads/8": Found(5.29, 24.9),
    "A heads/2": Found(5.00, 25.5),
    "A heads*2": Found(4.91, 25.8),
    "A heads*4": Found(5.01, 25.4),
    "B d_key/4": Found(5.16, 25.1, 58),
    "B d_key/2": Found(5.01, 25.4, 60),
    "C layers/3": Found(6.11, 23.7, 36),
    "C layers*2/3": Found(5.19, 25.3, 50),
    "C layers*4/3": Found(4.88, 25.5, 80),
    "C d_model/2": Found(5.75, 24.5, 28),
    "C d_model*2": Found(4.66, 26.0, 168),
    "C d_ff/2": Found(5.12, 25.4, 53),
    "C d_ff*2": Found(4.75, 26.2, 90),
    "D dropout 0": Found(5.77, 24.6),
    "D dropout 0.2": Found(4.95, 25.5),
    "D smoothing 0": Found(4.67, 25.3),
    "D smoothing 0.2": Found(5.47, 25.7),
    "E learned positions": Found(4.92, 25.7),
    "big": Found(4.33, 26.4, 213),
}


def rows(base: Base) -> dict[str, dict[str, Value]]:
    """The overrides of every row, by its name:
    ``{"base": {...}, "A heads/8": {"model.num_heads": 1, ...}, ...}``."""
    key = base.d_model // base.heads
    changes = {
        "base": {},
        "A heads/8": heads(base.heads // 8),
        "A heads/2": heads(base.heads // 2),
        "A heads*2": heads(base.heads * 2),
        "A heads*4": heads(base.heads * 4),
        "B d_key/4": {"model.d_key": key // 4},
        "B d_key/2": {"model.d_key": key // 2},
        "C layers/3": layers(base.layers // 3),
        "C layers*2/3": layers(base.layers * 2 // 3),
        "C layers*4/3": layers(base.layers * 4 // 3),
        "C d_model/2": {"model.d_model": base.d_model // 2},
        "C d_model*2": {"model.d_model": base.d_model * 2},
        "C d_ff/2": {"model.d_ff": base.d_ff // 2},
        "C d_ff*2": {"model.d_ff": base.d_ff * 2},
        "D dropout 0": dropout(0.0),
        "D dropout 0.2": dropout(0.2),
        "D smoothing 0": {"training.label_smoothing": 0.0},
        "D smoothing 0.2": {"training.label_smoothing": 0.2},
        "E learned positions": {"model.positions": "learned"},
        "big": {"model.d_model": base.d_model * 2, "model.d_ff": base.d_ff * 2} | heads(base.heads * 2) | dropout(0.3),
    }
    sizes = {"model.d_model": base.d_model, "model.d_ff": base.d_ff, "training.label_smoothing": 0.1}
    sizes |= layers(base.layers) | heads(base.heads) | dropout(base.dropout)
    return {name: sizes | change for name, change in changes.items()}


def heads(number: int) -> dict[str, Value]:
    """So many heads; their keys and values together stay as wide as the model."""
    return {"model.num_heads": number}


def layers(number: int) -> dict[str, Value]:
    """So many layers on each side."""
    return {"model.num_encoder_layers": number, "model.num_decoder_layers": number}


def dropout(rate: float) -> dict[str, Value]:
    """P_drop, on every sublayer and on the sums of embeddings and positions (section 5.4)."""
    return {"model.dropout": rate, "model.embedding_dropout": rate}

"""Positional encodings (Vaswani et al. 2017, section 3.5), and the claim there that a shift is a linear map."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.panels import LinePanel, MatrixPanel, Panel, draw_panels

LENGTH, SHIFTS = 256, 128
SHOWN_SHIFT, SHOWN_WIDTH, SHOWN_POSITIONS = 5, 32, 100
# Slow sinusoids are nearly constant over a few hundred positions, so singular values below this share of the largest are noise.
RANK_TOLERANCE = 1e-10


class PositionNumbers(NamedTuple):
    """Sinusoids ``table`` [length, D] in float64, and the largest errors of shifts by k = 1, ..., K.

    ``dots`` [length]: PE(p) · PE(p + k), equal for all p. ``closed_form`` [K]: errors of ``shift_matrix`` at all positions;
    ``fitted`` and ``held_out`` [K]: errors of the least-squares matrix at the positions of the fit, and at later ones.
    """

    table: np.ndarray
    dots: np.ndarray
    closed_form: np.ndarray
    fitted: np.ndarray
    held_out: np.ndarray


def shift_matrix(shift: int, d_model: int) -> np.ndarray:
    """The matrix M_k [D, D] with PE(p + k) = M_k PE(p) for all p: it rotates each pair (sin, cos) by the angle k w_i.

    It follows from sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b - sin a sin b.
    """
    sine, cosine = sinusoid_table(shift + 1, d_model, np.float64)[shift].reshape(-1, 2).T
    matrix = np.zeros((d_model, d_model))
    even, odd = np.arange(0, d_model, 2), np.arange(1, d_model, 2)
    matrix[even, even] = matrix[odd, odd] = cosine
    matrix[even, odd], matrix[odd, even] = sine, -sine
    return matrix


def position_numbers(d_model: int, length: int = LENGTH, shifts: int = SHIFTS) -> PositionNumbers:
    """Checks shifts by 1, ..., ``shifts`` at ``length`` positions; least squares is fitted to the first half of them."""
    table = sinusoid_table(length + shifts, d_model, np.float64)
    half = length // 2
    inverse = np.linalg.pinv(table[:half], rcond=RANK_TOLERANCE)
    errors = []
    for shift in range(1, shifts + 1):
        here, there = table[:length], table[shift : length + shift]
        fitted = np.abs(here @ (inverse @ there[:half]) - there)
        exact = np.abs(here @ shift_matrix(shift, d_model).T - there)
        errors.append((exact.max(), fitted[:half].max(), fitted[half:].max()))
    return PositionNumbers(table[:length], table[:length] @ table[0], *np.array(errors).T)


def learned_table(params: object) -> np.ndarray:
    """The table [P, D] of learned positions of a model, the target's if there are two."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    *_, table = (leaf for path, leaf in leaves if jax.tree_util.keystr(path).endswith("positions']['table']"))
    return np.asarray(table, np.float64)


def cosines(table: np.ndarray) -> np.ndarray:
    """Cosines between all pairs of positions [P, P]."""
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    return unit @ unit.T


def draw_positions(subject: Subject, path: Path) -> list[str]:
    """Draws the sinusoids for the width of the model of ``subject``, and the learned table of a run.

    Raises ConfigError if the model has neither.
    """
    config = subject.config.model
    positions = getattr(config, "positions", "none")
    if positions != "sinusoidal" and not (positions == "learned" and subject.restore):
        problem = f"model.positions={positions}; takes sinusoidal, or a run that has learned them"
        raise ConfigError(f"{subject.name}: {problem}")
    numbers = position_numbers(config.d_model)
    panels = _panels(numbers)
    lines = [
        f"sinusoids of width {config.d_model}: {len(numbers.table)} positions, shifts of 1 to {len(numbers.fitted)}, float64",
        f"  largest error of M_k in closed form   {numbers.closed_form.max():.1e}",
        f"  by least squares, positions fitted    {numbers.fitted.max():.1e}",
        f"  by least squares, later positions     {numbers.held_out.max():.1e}",
    ]
    if positions == "learned":
        table = learned_table(subject.trained.params)
        panels += _learned_panels(table)
        norms = np.linalg.norm(table, axis=1)
        lines.append(
            f"learned table {table.shape[0]} x {table.shape[1]}: norms from {norms.min():.2f} to {norms.max():.2f}"
        )
    draw_panels(panels, path, title="Positional encodings")
    return lines


def _panels(numbers: PositionNumbers) -> list[Panel]:
    table, d_model = numbers.table, numbers.table.shape[1]
    width, positions, shifts = (
        min(SHOWN_WIDTH, d_model),
        np.arange(SHOWN_POSITIONS),
        np.arange(1, len(numbers.fitted) + 1),
    )
    columns = [d_model * eighths // 16 * 2 for eighths in (1, 2, 3, 4)]
    curves = {f"column {column}": (positions, table[positions, column]) for column in columns}
    matrix, column = shift_matrix(SHOWN_SHIFT, d_model), columns[0]
    moved = {
        f"PE(p + {SHOWN_SHIFT})": (positions, table[positions + SHOWN_SHIFT, column]),
        f"M_{SHOWN_SHIFT} PE(p)": (positions, (table[positions] @ matrix.T)[:, column]),
        "PE(p)": (positions, table[positions, column]),
    }
    errors = {
        "closed form": (shifts, numbers.closed_form),
        "least squares, fitted": (shifts, numbers.fitted),
        "least squares, later": (shifts, numbers.held_out),
        "1e-5": (shifts[[0, -1]], np.array([1e-5, 1e-5])),
    }
    dots = {"dot product": (np.arange(len(table)), numbers.dots)}
    shifted = f"Column {column} shifted by M_{SHOWN_SHIFT}"
    return [
        MatrixPanel("PE(position, column)", table[positions], "column", "position", is_signed=True),
        LinePanel("Four of its columns", curves, "position", ""),
        LinePanel("PE(p) · PE(p + k), for every p", dots, "k", "", unlisted=tuple(dots)),
        MatrixPanel(f"M_{SHOWN_SHIFT}, first {width} rows and columns", matrix[:width, :width], is_signed=True),
        LinePanel(shifted, moved, "position p", "", dotted=(f"M_{SHOWN_SHIFT} PE(p)",)),
        LinePanel("Largest |PE(p + k) - M_k PE(p)|", errors, "k", "", dotted=("1e-5",), y_scale="log"),
    ]


def _learned_panels(table: np.ndarray) -> list[Panel]:
    positions, sinusoids = np.arange(len(table)), sinusoid_table(table.shape[0], table.shape[1], np.float64)
    norms = {
        "learned": (positions, np.linalg.norm(table, axis=1)),
        "sinusoids": (positions, np.linalg.norm(sinusoids, axis=1)),
    }
    return [
        MatrixPanel("Learned table", table, "column", "position", is_signed=True),
        MatrixPanel("Its cosines between positions", cosines(table), "position", "position", is_signed=True),
        LinePanel("Norm", norms, "position", "", dotted=("sinusoids",)),
    ]

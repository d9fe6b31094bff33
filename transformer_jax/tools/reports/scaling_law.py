"""Loss as a function of parameters and tokens, fitted to finished runs: Hoffmann et al. 2022, section 3.3."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from transformer_jax.config import DataError
from transformer_jax.tools.pictures.curves import read_series
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.reports.document import Picture, Section, Table
from transformer_jax.tools.reports.run_summary import RunSummary

LOSS = "validation/loss"
DELTA = 1e-3
"""Width of the Huber loss: section 3.3."""
RESAMPLES, INTERVAL = 200, (2.5, 97.5)
EXPONENTS = (0.2, 0.6)
BOUNDS = ((-12, -12, 0.01, -12, 0.01), (5, 5, 3, 5, 3))
"""Of log E, log A and log B (at the geometric means of N and D), and of the exponents."""
FEWEST, FEWEST_VALUES = 6, 3
FLOPS_PER_PARAMETER = 6
"""Of a token, forward and backward: Kaplan et al. 2020, section 2.1."""


class Point(NamedTuple):
    """A finished run: its name, number of parameters, target tokens in training, and last validation loss in nats a token."""

    name: str
    parameters: int
    tokens: int
    loss: float

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAMETER * self.parameters * self.tokens


class ScalingLaw(NamedTuple):
    """L(N, D) = irreducible + (N0 / N)^alpha + (D0 / D)^beta (Hoffmann et al. 2022, equation 10).

    There A / N^alpha; ``n0`` is A^(1 / alpha), the number of parameters at which the term is one nat, and ``d0`` the same of
    tokens.
    """

    irreducible: float
    n0: float
    alpha: float
    d0: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """In nats a token."""
        return float(self.irreducible + (self.n0 / parameters) ** self.alpha + (self.d0 / tokens) ** self.beta)

    @property
    def optimal_exponent(self) -> float:
        """The best number of parameters grows with FLOPs to this power (equation 4)."""
        return self.beta / (self.alpha + self.beta)


def points_of(runs: Sequence[RunSummary]) -> tuple[list[Point], list[str]]:
    """Points, and the names of runs that have none: unfinished, or without validation, parameters or tokens."""
    points, left_out = [], []
    for run in runs:
        losses = read_series(run.folder / "metrics.jsonl", [LOSS]).get(LOSS) if run.updates else None
        if losses and losses[0][-1] == run.updates and run.is_finished and run.parameters and run.target_tokens:
            points.append(Point(run.name, run.parameters, run.target_tokens, losses[1][-1]))
        else:
            left_out.append(run.name)
    return points, left_out


def fit(points: Sequence[Point], start: ScalingLaw | None = None) -> ScalingLaw:
    """The law of least Huber loss of log L, by least squares from a grid of starting points, or from ``start`` alone."""
    count, tokens, loss = np.log([each[1:] for each in points]).T
    at = np.array([count.mean(), tokens.mean()])

    def residuals(theta: np.ndarray) -> np.ndarray:
        log_e, log_a, alpha, log_b, beta = theta
        terms = np.logaddexp(log_a - alpha * (count - at[0]), log_b - beta * (tokens - at[1]))
        return np.asarray(np.logaddexp(log_e, terms)) - loss

    if start is None:
        lowest = loss.min()
        starts = [
            np.array([lowest + np.log(share), lowest + np.log(1 - share), alpha, lowest + np.log(1 - share), beta])
            for share, alpha, beta in itertools.product((0.3, 0.7), EXPONENTS, EXPONENTS)
        ]
    else:
        logs = start.alpha * (np.log(start.n0) - at[0]), start.beta * (np.log(start.d0) - at[1])
        starts = [np.array([np.log(start.irreducible), logs[0], start.alpha, logs[1], start.beta])]
    found = min(
        (least_squares(residuals, each, bounds=BOUNDS, loss="huber", f_scale=DELTA, max_nfev=200) for each in starts),
        key=lambda each: each.cost,
    )
    log_e, log_a, alpha, log_b, beta = found.x
    return ScalingLaw(
        float(np.exp(log_e)),
        float(np.exp(log_a / alpha + at[0])),
        float(alpha),
        float(np.exp(log_b / beta + at[1])),
        float(beta),
    )


def bootstrap(points: Sequence[Point], law: ScalingLaw, seed: int = 0) -> list[ScalingLaw]:
    """Laws fitted to resamples of the points, each with three or more sizes and durations."""
    rng, laws = np.random.default_rng(seed), list[ScalingLaw]()
    while len(laws) < RESAMPLES:
        sample = [points[index] for index in rng.integers(0, len(points), len(points))]
        if _is_determined(sample):
            laws.append(fit(sample, law))
    return laws


def scaling_section(runs: Sequence[RunSummary], picture: Path) -> Section:
    """Fits all finished runs but the one of most FLOPs, which tests the prediction; draws ``picture``.

    Raises DataError if too few runs finished, or their sizes or durations are too few.
    """
    points, left_out = points_of(runs)
    points.sort(key=lambda point: point.flops)
    fitted = points[:-1]
    if len(fitted) < FEWEST or not _is_determined(fitted):
        problem = (
            f"--fit needs {FEWEST + 1} finished runs, with {FEWEST_VALUES} or more numbers of parameters and of tokens"
        )
        raise DataError(f"{problem} beside the largest; found {len(points)} finished runs")
    law = fit(fitted)
    laws = bootstrap(fitted, law)
    rows = tuple(
        (name, f"{getattr(law, name):.3g}", _interval([getattr(each, name) for each in laws])) for name in law._fields
    )
    exponent = f"{law.optimal_exponent:.2f}", _interval([each.optimal_exponent for each in laws])
    table = Table(("parameter", "value", "95 % interval"), (*rows, ("beta / (alpha + beta)", *exponent)))
    residuals = [law.loss(point.parameters, point.tokens) - point.loss for point in fitted]
    largest = points[-1]
    predicted = law.loss(largest.parameters, largest.tokens)
    interval = _interval([each.loss(largest.parameters, largest.tokens) for each in laws])
    error = np.sqrt(np.mean(np.square(residuals)))
    words = [
        f"L(N, D) = irreducible + (n0 / N)^alpha + (d0 / D)^beta, in nats a token, of {len(fitted)} runs (Hoffmann et al. "
        f"2022, section 3.3). The root mean square of the residuals is {error:.3f}. Intervals are from {RESAMPLES} bootstrap "
        "resamples of the runs.",
        f"Held out: {largest.name}, {largest.parameters:,} parameters, {largest.tokens:,} tokens, "
        f"{largest.flops / max(point.flops for point in fitted):.1f} times the FLOPs (6 N D) of the largest fitted run. "
        f"Predicted loss {predicted:.3f} ({interval}), reached {largest.loss:.3f}.",
    ]
    if left_out:
        words.append(f"Left out, not finished or not validated at the end: {', '.join(left_out)}.")
    _draw(law, fitted, largest, picture)
    caption = "Loss of the runs against training FLOPs, and against the prediction"
    return Section("Scaling", (words[0], table, *words[1:], Picture(picture.name, picture.read_bytes(), caption)))


def _is_determined(points: Sequence[Point]) -> bool:
    values = ({point.parameters for point in points}, {point.tokens for point in points})
    return min(map(len, values)) >= FEWEST_VALUES


def _interval(values: Sequence[float]) -> str:
    low, high = np.percentile(values, INTERVAL)
    return f"{low:.3g} to {high:.3g}"


def _draw(law: ScalingLaw, fitted: Sequence[Point], largest: Point, path: Path) -> None:
    sizes: dict[str, Sequence[Sequence[float]]] = {
        f"{size:,} parameters": list(zip(*((each.flops, each.loss) for each in points), strict=True))
        for size, group in itertools.groupby(
            sorted(fitted, key=lambda each: each.parameters), lambda each: each.parameters
        )
        if (points := list(group))
    }
    predictions = [(law.loss(each.parameters, each.tokens), each.loss) for each in (*fitted, largest)]
    ends = [min(min(each) for each in predictions), max(max(each) for each in predictions)]
    compared: dict[str, Sequence[Sequence[float]]] = {
        "fitted": list(zip(*predictions[:-1], strict=True)),
        "held out": list(zip(*predictions[-1:], strict=True)),
        "equal": [ends, ends],
    }
    panels = [
        LinePanel(
            "Loss and compute",
            sizes | {"held out": [[largest.flops], [largest.loss]]},
            "FLOPs, 6 N D",
            "validation loss, nats a token",
            x_scale="log",
            marks="o",
        ),
        LinePanel("The fit", compared, "predicted loss", "loss of the run", dotted=("equal",), marks="o"),
    ]
    draw_panels(panels, path, title="Scaling")

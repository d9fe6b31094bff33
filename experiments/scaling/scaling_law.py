"""Loss as a function of parameters and tokens, fitted to finished runs: Hoffmann et al. 2022,
section 3.3.

    python experiments/scaling/scaling_law.py runs/scaling/trials scaling.png

Fits all finished runs but the one of most FLOPs, predicts its loss, and draws both.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.tasks import TASKS
from transformer_jax.tools.pictures.curves import read_series
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.study.comparability import differing_settings, settings_of_scored_text
from transformer_jax.tools.study.document import Section, Table, section_text
from transformer_jax.tools.study.run_summary import RunSummary, find_runs, summarize

LOSS = "validation/loss"
DELTA = 1e-3
"""Width of the Huber loss: section 3.3."""
RESAMPLES, INTERVAL = 200, (2.5, 97.5)
EXPONENTS, SHARES = (0.2, 0.6), (0.3, 0.7)
BOUNDS = ((-12, -12, 0.01, -12, 0.01), (5, 5, 3, 5, 3))
"""Of log E, log A and log B (at the geometric means of N and D), and of the exponents."""
FEWEST = 6
"""Pairs of size and duration: one more than the law has parameters."""
FLOPS_PER_PARAMETER = 6
"""Of a token, forward and backward: Kaplan et al. 2020, section 2.1."""


class Point(NamedTuple):
    """A finished run: its name, number of parameters, target tokens in training, and last
    validation loss in nats a token."""

    name: str
    parameters: int
    tokens: int
    loss: float

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAMETER * self.parameters * self.tokens


class ScalingLaw(NamedTuple):
    """L(N, D) = irreducible + size_term (N0 / N)^alpha + data_term (D0 / D)^beta (Hoffmann et al.
    2022, equation 2).

    N0 and D0 are geometric means of the fitted runs, so ``size_term`` and ``data_term`` are nats
    there.
    """

    irreducible: float
    size_term: float
    alpha: float
    data_term: float
    beta: float
    n0: float
    d0: float

    def loss(self, parameters: float, tokens: float) -> float:
        """In nats a token."""
        size = self.size_term * (self.n0 / parameters) ** self.alpha
        return float(self.irreducible + size + self.data_term * (self.d0 / tokens) ** self.beta)

    @property
    def optimal_exponent(self) -> float:
        """The best number of parameters grows with FLOPs to this power (equation 4)."""
        return self.beta / (self.alpha + self.beta)


def points_of(runs: Sequence[RunSummary]) -> tuple[list[Point], list[str]]:
    """Points by FLOPs, and the names of runs that have none: unfinished, or without validation,
    parameters or tokens."""
    points, left_out = [], []
    for run in runs:
        losses = read_series(run.folder / "metrics.jsonl", [LOSS]).get(LOSS) if run.updates else None
        is_last = losses and losses[0][-1] == run.updates and 0 < losses[1][-1] < math.inf
        if losses and is_last and run.is_finished and run.parameters and run.target_tokens:
            points.append(Point(run.name, run.parameters, run.target_tokens, losses[1][-1]))
        else:
            left_out.append(run.name)
    return sorted(points, key=lambda point: point.flops), left_out


def fit(points: Sequence[Point], start: ScalingLaw | None = None) -> ScalingLaw:
    """The law of least Huber loss of log L, by least squares from a grid of starting points, or
    from ``start`` alone."""
    sizes, tokens, loss = np.log([each[1:] for each in points]).T
    at = (sizes.mean(), tokens.mean()) if start is None else (np.log(start.n0), np.log(start.d0))

    def residuals(theta: np.ndarray) -> np.ndarray:
        irreducible, size, alpha, data, beta = theta
        terms = np.logaddexp(size - alpha * (sizes - at[0]), data - beta * (tokens - at[1]))
        return np.asarray(np.logaddexp(irreducible, terms)) - loss

    if start is None:
        grid = itertools.product(SHARES, EXPONENTS, EXPONENTS)
        shares = ((np.log(share), np.log((1 - share) / 2), alpha, beta) for share, alpha, beta in grid)
        starts = [loss.min() * np.array([1, 1, 0, 1, 0]) + [low, high, a, high, b] for low, high, a, b in shares]
    else:
        terms = np.log(np.maximum((start.irreducible, start.size_term, start.data_term), 1e-5))
        starts = [np.clip([terms[0], terms[1], start.alpha, terms[2], start.beta], *BOUNDS)]
    found = min(
        (least_squares(residuals, each, bounds=BOUNDS, loss="huber", f_scale=DELTA, max_nfev=200) for each in starts),
        key=lambda each: each.cost,
    )
    irreducible, size, alpha, data, beta = found.x
    terms = np.exp([irreducible, size, data]).tolist()
    return ScalingLaw(terms[0], terms[1], float(alpha), terms[2], float(beta), *np.exp(at).tolist())


def bootstrap(points: Sequence[Point], law: ScalingLaw, resamples: int = RESAMPLES, seed: int = 0) -> list[ScalingLaw]:
    """Laws fitted to resamples of the points that determine one."""
    rng, laws = np.random.default_rng(seed), list[ScalingLaw]()
    while len(laws) < resamples:
        sample = [points[index] for index in rng.integers(0, len(points), len(points))]
        if _is_determined(sample, FEWEST - 1):
            laws.append(fit(sample, law))
    return laws


def scaling_section(runs: Sequence[RunSummary], picture: Path) -> Section:
    """Fits all finished runs but the ones of most FLOPs, which test the prediction; draws
    ``picture``.

    Raises DataError if the runs have other tasks, tokenizers or validation texts, if too few
    finished, or if their sizes and durations do not determine a law.
    """
    _require_comparable(runs)
    points, left_out = points_of(runs)
    of_largest = [point for point in points if points[-1][1:3] == point[1:3]]
    fitted = [point for point in points if point not in of_largest]
    if not _is_determined(fitted, FEWEST):
        sizes, durations = (len({each[index] for each in fitted}) for index in (1, 2))
        problem = (
            f"a fit needs {FEWEST} finished runs beside the largest, whose sizes and durations do not grow together"
        )
        found = f"found {len(fitted)} with {sizes} numbers of parameters and {durations} of tokens"
        raise DataError(f"{problem}; {found}; left out, not finished: {', '.join(left_out) or 'none'}")
    law = fit(fitted)
    laws = bootstrap(fitted, law)
    rows = tuple(
        (name, f"{getattr(law, name):.3g}", _interval([getattr(each, name) for each in laws]))
        for name in law._fields[:5]
    )
    exponent = f"{law.optimal_exponent:.2f}", _interval([each.optimal_exponent for each in laws])
    table = Table(("parameter", "value", "95 % interval"), (*rows, ("beta / (alpha + beta)", *exponent)))
    residuals = [law.loss(point.parameters, point.tokens) - point.loss for point in fitted]
    largest = points[-1]._replace(loss=float(np.mean([point.loss for point in of_largest])))
    predicted = law.loss(largest.parameters, largest.tokens)
    interval = _interval([each.loss(largest.parameters, largest.tokens) for each in laws], ".3f")
    error = np.sqrt(np.mean(np.square(residuals)))
    words = [
        f"L(N, D) = irreducible + size_term (N0 / N)^alpha + data_term (D0 / D)^beta, in nats a token, of {len(fitted)} runs "
        f"(Hoffmann et al. 2022, section 3.3); N0 is {law.n0:,.0f} parameters, D0 {law.d0:,.0f} tokens, their geometric "
        f"means. The root mean square of the residuals is {error:.3f}. Intervals are from {RESAMPLES} bootstrap resamples of "
        "the runs.",
        f"Held out: {largest.name}, {largest.parameters:,} parameters, {largest.tokens:,} tokens, "
        f"{largest.flops / max(point.flops for point in fitted):.1f} times the FLOPs (6 N D) of the largest fitted run. "
        f"Predicted loss {predicted:.3f} ({interval}), reached {largest.loss:.3f}.",
    ]
    if left_out:
        words.append(f"Left out, not finished or not validated at the end: {', '.join(left_out)}.")
    _draw(law, fitted, largest, picture)
    return Section("Scaling", (words[0], table, *words[1:]))


def _require_comparable(runs: Sequence[RunSummary]) -> None:
    configs = [run.config for run in runs]
    differing = differing_settings(configs)
    losses = [each for each in TASKS[configs[0].task].metrics if each.key == LOSS]
    of_text = settings_of_scored_text(configs).union(*(each.changed_by(differing) for each in losses))
    for key, values in differing.items():
        if key == "task" or key.startswith("tokenizer.") or key in of_text:
            shown = ", ".join(dict.fromkeys(values))
            raise DataError(f"the runs differ in {key} ({shown}), so their losses are of other texts or tokens")


def _is_determined(points: Sequence[Point], fewest: int) -> bool:
    """Whether there are ``fewest`` pairs of size and duration, which vary independently."""
    pairs = {(point.parameters, point.tokens) for point in points}
    logs = np.log([*pairs] or [(1, 1)])
    return len(pairs) >= fewest and np.linalg.matrix_rank(logs - logs.mean(axis=0), tol=0.1) == 2


def _interval(values: Sequence[float], form: str = ".3g") -> str:
    low, high = np.percentile(values, INTERVAL)
    return f"{low:{form}} to {high:{form}}"


def _draw(law: ScalingLaw, fitted: Sequence[Point], largest: Point, path: Path) -> None:
    sizes: dict[str, Sequence[Sequence[float]]] = {}
    for size in sorted({point.parameters for point in fitted}):
        of_size = [point for point in fitted if point.parameters == size]
        sizes[f"{size:,} parameters"] = [[point.flops for point in of_size], [point.loss for point in of_size]]
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


def main(arguments: Sequence[str]) -> int:
    """Prints the law, and draws it; 2 where the runs do not determine one."""
    *folders, picture = arguments
    try:
        runs = [summarize(folder, folder.name) for folder in find_runs(folders)]
        print(section_text(scaling_section(runs, Path(picture))))
    except (ConfigError, DataError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

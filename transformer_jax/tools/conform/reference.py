"""Comparison of a part with its reference in NumPy, on the arrays of a small model."""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config import hyperparameters_of
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.site import Site
from transformer_jax.models.inspection import CapturedCall, captured_calls
from transformer_jax.models.interface import shift_right
from transformer_jax.precision import FLOAT32
from transformer_jax.registry.plugins import reference_of, registered
from transformer_jax.tools.conform.comparison import ROUNDING, require_near
from transformer_jax.tools.conform.equations import AttentionInputs, LayerInputs, LossInputs, Reference, UpdateInputs
from transformer_jax.tools.conform.ideas import Idea
from transformer_jax.tools.conform.trials import ROWS, Trial, sentences
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.schedules import make_schedule
from transformer_jax.training.sharding import path_of
from transformer_jax.training.state import LOSS_TERMS

# Factorizations of matrices are less accurate than sums.
TOLERANCE = 1e-3
OF_KIT = "transformer_jax.tools.conform.references"
ATTENTION = {
    "attention": ("multi_head",),
    "positions": ("sinusoidal", "fairseq", "learned", "none"),
    "mixer": ("attention",),
}
LAYER = {**ATTENTION, "norm": ("layer_norm",), "residual": ("pre", "post"), "feed_forward": ("relu", "gelu")}
BESIDE: dict[str, Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(ATTENTION, ATTENTION),
    "residual": {"norm": ("layer_norm",)},
    "multi_token": LAYER,
}
"""The parts, by kind, that a reference computes beside its part, by kind or name of the part."""
SITE = r"(encoder|decoder|)_?layers_(\d+)/(self|cross|feed_forward)"


class Compared(NamedTuple):
    """Results of a part and of its reference at a path, with a mask of entries that count."""

    path: str
    part: Any
    reference: Any
    counts: Any = True


def equals_reference(trial: Trial, length: int) -> str:
    """Check that the part and its reference compute the same."""
    reference = find_reference(trial.idea)
    if reference is None:
        return "not compared: the part has no reference"
    if trial.idea.kind not in COMPARISONS:
        return f"not compared: conform runs no reference of a part of kind {trial.idea.kind}"
    if others := other_parts(trial):
        return f"not compared: the reference does not compute {', '.join(others)}"
    worst = []
    for pair in COMPARISONS[trial.idea.kind](trial, reference, length):
        actual, expected = (np.where(pair.counts, array, 0.0) for array in (pair.part, pair.reference))
        tolerance = TOLERANCE if trial.idea.kind == "optimizer" else ROUNDING
        worst.append(require_near(actual, expected, pair.path, tolerance))
    return max(worst, key=float) if worst else "not compared: the part is at no site of this model"


def find_reference(idea: Idea) -> Reference | None:
    """Return the reference with which a part was registered, or the kit's, or None."""
    try:
        of_kind = importlib.import_module(f"{OF_KIT}.{idea.kind}")
    except ModuleNotFoundError:
        of_kind = None
    return reference_of(idea.kind, idea.name) or getattr(of_kind, idea.name, None)


def other_parts(trial: Trial) -> list[str]:
    """Return the parts beside the idea that its reference does not compute."""
    kinds = BESIDE.get(trial.idea.name) or BESIDE.get(trial.idea.kind, {})
    return [part.name for part in trial.base.selections if part.kind in kinds and part.name not in kinds[part.kind]]


def of_attention(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison, on tokens, for every attention in which the part acts."""
    config, idea = trial.config, trial.idea
    batch = sentences(ROWS, length).batch
    earlier: dict[tuple[str, str], tuple[tuple[PyTree, AttentionInputs], ...]] = {}
    for call in calls_of(trial, length, "__call__"):
        mask = next((argument for argument in call.arguments[2:] if isinstance(argument, SentenceMask)), None)
        site = site_of(call.path, config.model)
        if mask is None or site is None or not call.path.endswith("attention") or not acts_at(idea, site):
            continue
        stack = "source_positions" if site.stack == "encoder" else "target_positions"
        params = float64({**call.params, "positions": trial.params.get("positions", trial.params.get(stack, {}))})
        x, memory = float64([hidden_of(argument) for argument in call.arguments[:2]])
        reads_source = site.stack == "encoder" or site.kind == "cross"
        inputs = AttentionInputs(
            x,
            memory,
            np.asarray(mask.positions[0]),
            np.asarray(mask.positions[1]),
            config.parts.get(idea.name),
            config.model,
            site,
            np.asarray(batch.source.ids if reads_source else shift_right(batch.target)),
            earlier.get((site.stack, site.kind), ()),
        )
        earlier[site.stack, site.kind] = (*inputs.earlier, (params, inputs))
        visible = np.asarray(mask.array())
        returned, expected = hidden_of(call.returned), reference(params, inputs, visible)
        yield Compared(call.path, returned, expected, visible.any(-1)[..., None])


def hidden_of(states: Any) -> Any:
    """Return the hidden states of an input or output, which may carry other states."""
    return getattr(states, "hidden", states)


def acts_at(idea: Idea, site: Site) -> bool:
    """Return whether a part is in the attention at a site.

    Mixers are in decoders, and positions without ``is_at`` in self-attention.
    """
    is_at = getattr(registered(idea.kind)[idea.name], "is_at", None)
    if is_at:
        return bool(is_at(site))
    return idea.kind == "attention" or (site.kind == "self" and (idea.kind == "positions" or site.stack == "decoder"))


def of_layers(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison for every norm, feed-forward, residual or output layer of the part."""
    config, kind = trial.config, trial.idea.kind
    pattern, methods = LAYERS[kind]
    calls = [captured for captured in calls_of(trial, length, *methods) if re.fullmatch(pattern, captured.path)]
    tokens = sentences(ROWS, length).batch
    for call in calls:
        if call.method == "before":
            continue
        is_source = call.path.startswith("encoder")
        mask = np.asarray((tokens.source if is_source else tokens.target).segments) != 0
        x, y = (*float64(call.arguments[:2]), None)[:2]
        inputs = LayerInputs(x, y, config.parts.get(trial.idea.name), config.model, site_of(call.path, config.model))
        results, expected = [call.returned], reference(float64(call.params), inputs, mask)
        if kind == "projection":
            results = [call.returned.logits(FLOAT32)]
        if kind == "residual":
            before = next(other for other in calls if (other.path, other.method) == (call.path, "before"))
            results = [before.returned, call.returned]
        for pair in zip(results, expected if kind == "residual" else [expected], strict=True):
            counts = mask.reshape(*mask.shape, *[1] * (np.ndim(pair[0]) - 2))
            yield Compared(call.path, *pair, counts)


LAYERS = {
    "norm": (rf"{SITE}\w*_residual/\w*norm|\w+_norm|norm", ("__call__",)),
    "feed_forward": (rf"{SITE}", ("__call__",)),
    "residual": (rf"{SITE}\w*_residual", ("before", "after")),
    "projection": (r"projection", ("factors",)),
}
"""The paths of the modules of a kind, and their methods."""


def of_loss_term(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison of the term of a batch, with dropout if it needs several passes."""
    config, name, params = trial.config, trial.idea.name, trial.params
    for dropout in (0.0, 0.2):
        dropped = Trial(replace(config, model=replace(config.model, dropout=dropout)))
        rows = dropped.rows(length)
        with captured_calls("factors", "__call__") as calls:
            sums = dropped.loss_sums(params, rows)
        passes = [call for call in calls if call.path == "projection" and call.method == "factors"]
        if len(passes) == 1:
            break
    target = rows.target if dropped.has_source else rows
    end = next(index for index, call in enumerate(calls) if call is passes[0])
    layers = [call for call in calls[:end] if call.path.endswith("/feed_forward")]
    hidden, matrix = float64(passes[0].returned[:2])
    inputs = LossInputs(
        [np.asarray(call.returned.logits(FLOAT32), np.float64) for call in passes],
        np.asarray(target.ids),
        hidden,
        matrix,
        [float64((call.params, call.arguments[0])) for call in layers],
        config.training.label_smoothing,
        config.parts.get(name),
        config.model,
        config.parts,
    )
    of_term = float64(params.get(LOSS_TERMS, {}).get(name, {}))
    yield Compared(name, sums.extras[name], reference(of_term, inputs, np.asarray(target.segments) != 0))


def of_update(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison of the fourth update's direction, of the average, or of all rates."""
    config, (kind, name) = trial.config, trial.idea
    hyperparameters = hyperparameters_of(config)._replace(clip_norm=None, weight_decay=None)
    random, rate, params = np.random.default_rng(4), 0.1, trial.params
    gradients = [jax.tree.map(lambda leaf: np.float32(random.normal(size=leaf.shape)), params) for _ in range(4)]
    numbers, settings = np.arange(1, config.training.num_updates + 1), config.parts.get(name)
    inputs = UpdateInputs([by_path(tree) for tree in gradients], rate, numbers, hyperparameters, settings, config.model)
    expected = reference(by_path(params), inputs, None)
    if kind == "schedule":
        schedule = make_schedule(name, hyperparameters, config.model.d_model, config.parts)
        yield Compared(name, np.array([schedule(int(number)) for number in numbers]), expected)
        return
    is_average = kind == "averaging"
    names = ("sgd", name) if is_average else (name, "none")
    rule = make_optimizer(
        names[0], hyperparameters, lambda step: rate if is_average else 1.0, 0, config.parts, averaging=names[1]
    )
    state = rule.init(params)
    for gradient in gradients:
        updates, state = rule.update(gradient, state, params)
        if is_average:
            params = jax.tree.map(lambda leaf, update: leaf + update, params, updates)
    result = registered(kind)[name].evaluation_params(state, params) if is_average else updates
    for path, array in by_path(result).items():
        yield Compared(path, array if is_average else -array, expected[path])


def of_after_update(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison for every parameter after the change, by the statistics of a batch."""
    config, name = trial.config, trial.idea.name
    statistics, params = trial.loss_sums(trial.params, trial.rows(length)).statistics[name], by_path(trial.params)
    hyperparameters, settings = hyperparameters_of(config), config.parts.get(name)
    inputs = UpdateInputs([], 0.0, np.arange(0), hyperparameters, settings, config.model, float64(statistics))
    expected = reference(params, inputs, None)
    changed = registered("after_update")[name](settings).after_update(trial.params, statistics)
    for path, array in by_path(changed).items():
        yield Compared(path, array, expected[path])


def of_initialization(trial: Trial, reference: Reference, length: int) -> Iterator[Compared]:
    """Yield a comparison of factors on the initial value of every parameter."""
    config, name = trial.config, trial.idea.name
    plain = Trial(trial.base).initial_state.params
    inputs = LayerInputs(np.zeros(0), None, config.parts.get(name), config.model, None)
    factors = reference(by_path(plain), inputs, None)
    initial = by_path(trial.initial_state.params)
    for path, array in by_path(plain).items():
        yield Compared(path, initial[path], array * factors[path])


COMPARISONS = {
    **dict.fromkeys(("attention", "positions", "mixer"), of_attention),
    **dict.fromkeys(LAYERS, of_layers),
    **dict.fromkeys(("optimizer", "averaging", "schedule"), of_update),
    "after_update": of_after_update,
    "initialization": of_initialization,
    "loss_term": of_loss_term,
}
"""By the kind of the part."""


def calls_of(trial: Trial, length: int, *methods: str) -> list[CapturedCall]:
    """Return the calls of these methods in an eager pass.

    If a method calls its base class's method, only the outer call is there.
    """
    with captured_calls(*methods) as calls:
        trial.teacher_forced(trial.params, sentences(ROWS, length).batch)
    return list({(call.path, call.method): call for call in calls}.values())


def site_of(path: str, model: Any) -> Site | None:
    """Return the site of the module at ``path``, or None outside of layers."""
    match = re.match(SITE, path)
    if match is None:
        return None
    stack, index, kind = (cast("Any", group) for group in match.groups())
    depth = getattr(model, f"num_{stack}_layers", None) or model.num_layers
    is_causal = stack == "decoder" and kind != "cross"
    return Site(stack, kind, depth, is_causal=is_causal, index=int(index))


def by_path(tree: PyTree) -> dict[str, np.ndarray]:
    """Return the arrays of a tree in NumPy, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {path_of(path): np.asarray(leaf, np.float64) for path, leaf in leaves}


def float64(tree: PyTree) -> PyTree:
    """Return the arrays of a tree in NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)

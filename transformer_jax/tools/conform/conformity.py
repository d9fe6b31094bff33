"""The properties of an idea, checked one by one, with the smallest case of a failure."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.registry.plugins import registered
from transformer_jax.registry.python_files import is_loaded, line_of_plugin
from transformer_jax.tools.conform import idea_properties as ideas
from transformer_jax.tools.conform import model_properties as models
from transformer_jax.tools.conform import update_properties as updates
from transformer_jax.tools.conform.comparison import Broken
from transformer_jax.tools.conform.ideas import KINDS, Idea, with_values
from transformer_jax.tools.conform.reference import equals_reference
from transformer_jax.tools.conform.task_properties import OF_TASKS, TaskTrial, task_config
from transformer_jax.tools.conform.trials import BY_SGD, Trial, optimized, trial_config

Property = Callable[[Trial, int], str]
LENGTH = 6
SMALLER = (1, 2, 3, 4, 5)
"""The lengths of sentences at which a property that fails is tried again."""
AT_ONE_LENGTH = ("differs from the base", "every parameter gets a gradient", "float32 stays float32")
"""Properties that mean nothing in a sentence of one word."""

OF_IDEAS: dict[str, Property] = {
    "equals its reference": equals_reference,
    "differs from the base": ideas.differs_from_the_base,
    "every parameter gets a gradient": ideas.every_parameter_gets_a_gradient,
}
OF_MODELS: dict[str, Property] = {
    **OF_IDEAS,
    "float32 stays float32": ideas.float32_stays_float32,
    "a decoding step equals the full pass": models.step_equals_full_pass,
    "causal by gradient": models.causal_by_gradient,
    "beam search ignores the batch": models.search_ignores_the_batch,
    "bfloat16 near float32": models.bfloat16_near_float32,
    "jit equals eager": models.jit_equals_eager,
}
OF_TRANSFORMERS: dict[str, Property] = {
    "packed equals apart": models.packed_equals_apart,
    "scan, rematerialized = unrolled": models.scan_equals_unrolled,
    "all backends equal einsum": models.backends_agree,
}
OF_LANGUAGE_MODELS: dict[str, Property] = {"left padding changes nothing": models.left_padding_changes_nothing}
OF_UPDATES: dict[str, Property] = {
    "meshes equal one device": updates.meshes_agree,
    "two micro-batches equal a whole batch": updates.micro_batches_equal_whole,
    "resumes to the bit": updates.resumed_to_the_bit,
    "skips what is not finite": updates.skips_what_is_not_finite,
    "learns a batch": updates.learns_a_batch,
}
OF_TRAINING: dict[str, Property] = OF_IDEAS | {"jit equals eager": updates.update_equals_eager} | OF_UPDATES
PROPERTIES: dict[str, dict[str, Property]] = {
    "translation": OF_MODELS | OF_TRANSFORMERS | OF_UPDATES,
    "language_model": OF_MODELS | OF_TRANSFORMERS | OF_LANGUAGE_MODELS | OF_UPDATES,
    "rnn": OF_MODELS | OF_UPDATES,
}
"""By the models of ``trials.SIZES``."""


class Finding(NamedTuple):
    """A property of a model: whether it holds, and a few words."""

    model: str
    name: str
    holds: bool
    detail: str


def findings(
    model: str, idea: Idea, overrides: Mapping[str, Any] = MappingProxyType({}), *, begin: Callable[[str], object] = str
) -> Iterator[Finding]:
    """Check the properties of a small model with the idea and ``overrides``, nested by block.

    Calls ``begin`` with the name of a property before it is checked.
    """
    if model == "task":
        task_trial = TaskTrial(task_config(idea.settings(overrides)))
        for name, check_task in OF_TASKS.items():
            begin(name)
            yield checked(task_trial, model, name, check_task, smaller=())
        return
    trial = trial_of(model, idea, overrides)
    try:
        jax.eval_shape(trial.loss_sums, trial.update.state_shapes.params, trial.rows(LENGTH))
    except ConfigError:
        raise
    except Exception as error:
        yield Finding(model, "model and loss can be built", False, _words(error, trial))
        return
    for name, check in (OF_TRAINING if KINDS[idea.kind].is_of_training else PROPERTIES[model]).items():
        begin(name)
        yield checked(trial, model, name, check)


def trial_of(model: str, idea: Idea, overrides: Mapping[str, Any] = MappingProxyType({})) -> Trial:
    """Return the small model with the idea, with two layers if the idea depends on its layer."""
    config, base = (
        trial_config(model, settings if KINDS[idea.kind].is_of_training else with_values(BY_SGD, settings), small=True)
        for settings in (idea.settings(overrides), idea.settings_without(overrides))
    )
    if depends_on_layers(idea, config):
        config, base = (replace(settings, model=with_two_layers(settings.model)) for settings in (config, base))
    return Trial(config, idea=idea, base=base)


def depends_on_layers(idea: Idea, config: ExperimentConfig) -> bool:
    """Return whether a part reads the number of its layer, or a state from another layer."""
    if config.model.is_recurrent or KINDS[idea.kind].is_of_training:
        return False
    part = registered(idea.kind)[idea.name]
    if getattr(part, "carries", False) or "enter" in vars(part):
        return True
    try:
        # Raises if a module asks for the number of its layer.
        _ = Trial(replace(config, model=replace(config.model, scan_layers=True))).update.state_shapes
    except Exception as error:
        # The properties report others.
        return isinstance(error, ConfigError) and "scan_layers" in str(error)
    return False


def with_two_layers(model: Any) -> Any:
    """Return the settings of a model with at least two layers in a stack."""
    names = ("num_layers", "num_encoder_layers", "num_decoder_layers")
    return replace(model, **{name: max(getattr(model, name), 2) for name in names if hasattr(model, name)})


@optimized(False)
def checked(
    trial: Any, model: str, name: str, check: Callable[[Any, int], str], smaller: tuple[int, ...] = SMALLER
) -> Finding:
    """Check a property at ``LENGTH``, and look for the shortest length at which it fails."""
    smaller = () if name in AT_ONE_LENGTH else smaller
    try:
        return Finding(model, name, True, check(trial, LENGTH))
    except Exception as error:
        detail, failing = _words(error, trial), LENGTH
        for length in smaller:
            try:
                check(trial, length)
            except Exception as shorter:
                detail, failing = _words(shorter, trial), length
                break
        return Finding(model, name, False, f"sentences of length {failing}: {detail}" if smaller else detail)


def _words(error: Exception, trial: Any) -> str:
    """Return the first line of an error, after the line of the plugin that raised it.

    If none did, after the line that defines the idea.
    """
    first = next(iter(str(error).splitlines()), "")
    idea = getattr(trial, "idea", None)
    line = (error.line if isinstance(error, Broken) else "") or line_of_plugin(error)
    line = line or (_line_of_definition(registered(idea.kind)[idea.name]) if idea else "")
    kind = "" if isinstance(error, Broken) else f"{type(error).__name__}: "
    return f"{line}{': ' if line else ''}{kind}{first}"


def _line_of_definition(part: Any) -> str:
    """Return ``FILE, line N`` of the first function of a part that a plugin defines, else ""."""
    functions = vars(part).values() if inspect.isclass(part) else [part]
    codes = [getattr(inspect.unwrap(function), "__code__", None) for function in functions if callable(function)]
    lines = [(code.co_filename, code.co_firstlineno) for code in codes if code and is_loaded(code.co_filename)]
    return "{}, line {}".format(*min(lines)) if lines else ""

"""``conform`` checks whether an idea keeps the promises of the project."""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, apply_overrides

if TYPE_CHECKING:
    from transformer_jax.tools.conform.conformity import Finding
    from transformer_jax.tools.conform.costs import Costs

DEVICES = 8


@flags.command(
    flags.arguments("IDEA", "a part or task by name (rope, schedule:cosine, parsing), or a file that registers one"),
    flags.overrides,
    flags.boolean("costs", True, "count parameters, FLOPs of products and memory, beside the model without the idea"),
)
def conform(values: flags.Values) -> int:
    """Check in small models that an idea does as promised. Exit status 1 if a property fails.

    Examples:
        transformer-jax conform my_attention.py
        transformer-jax conform grouped_query --config.parts.grouped_query.key_value_heads=2
        transformer-jax conform my_task.py --config.tokenizer.kind=byte

    Parts of models are checked in an encoder-decoder with one layer a stack and in a language model
    with two, and parts of training in updates on a mesh of 8 devices (virtual ones on a CPU). A
    task is checked in a run of four updates. docs/extending.md lists the properties. A property
    that fails is tried again with shorter sentences, and the shortest is shown. --config.KEY=VALUE
    holds for all models, which have no dropout (both passes of r_drop are equal). A part takes
    about a minute of CPU time, a quarter less with --nocosts.
    """
    # Warnings of XLA, some of which it calls errors, would stand among the rows. Its aborts are
    # still printed.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    if len(values.arguments or []) != 1:
        raise ConfigError("conform", "give one idea, as in transformer-jax conform rope")
    # Before JAX looks for devices.
    jax.config.update("jax_num_cpu_devices", DEVICES)
    from transformer_jax.runtime.hardware import start_jax
    from transformer_jax.tools.conform.conformity import findings
    from transformer_jax.tools.conform.costs import costs_of
    from transformer_jax.tools.conform.ideas import KINDS, find_ideas
    from transformer_jax.tools.conform.trials import Trial, trial_config

    ideas = find_ideas(values.arguments[0])
    overrides = apply_overrides({}, flags.overrides_of(values))
    start_jax(trial_config("translation", {}).data.cache_directory)
    failed: list[Finding] = []
    for idea in ideas:
        kind = KINDS[idea.kind]
        print(f"{kind.setting}={idea.name}")
        for model in kind.models:
            num_holding = 0
            begin = partial(_print_row, model, "...") if sys.stdout.isatty() else str
            for finding in findings(model, idea, overrides, begin=begin):
                num_holding += finding.holds
                failed += [] if finding.holds else [finding]
                word = "ok" if finding.holds else "FAILS"
                _print_row(model, f"{word:<6} {finding.detail}", finding.name, end="\n")
            if values.costs and model != "task" and num_holding:
                both = idea.settings(overrides), idea.settings_without(overrides)
                _print_costs(model, *(costs_of(Trial(trial_config(model, settings))) for settings in both))
    if failed:
        first = failed[0]
        print(f"\n{len(failed)} properties fail; the first: {first.name} ({first.model}), {first.detail}")
        return 1
    print("\nAll properties hold.")
    return 0


def _print_row(model: str, text: str, name: str, end: str = "\r") -> None:
    print(f"  {model:<15} {name:<38} {text}", end=end, flush=True)


def _print_costs(model: str, with_idea: "Costs", without: "Costs") -> None:
    for name, value, base in zip(with_idea._fields, with_idea, without, strict=True):
        share = f"{value / base:.2f} x" if base else "beside"
        print(f"  {model:<15} {name.replace('_', ' '):<38} {value:,.0f}  {share} {base:,.0f} without the idea")

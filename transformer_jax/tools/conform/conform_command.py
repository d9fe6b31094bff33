"""``conform``: whether an idea keeps the promises of the project."""

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
    flags.arguments(
        "IDEA", "a part or task by its name (rope, schedule:cosine, parsing), or a file that registers one"
    ),
    flags.overrides,
    flags.boolean("costs", True, "count parameters, FLOPs of products and memory, beside the model without the idea"),
)
def conform(values: flags.Values) -> int:
    """Check that an idea does what the project promises, in small models; one table, exit status 1 if a property fails.

    Examples:
        transformer-jax conform my_attention.py
        transformer-jax conform grouped_query --config.parts.grouped_query.key_value_heads=2 --config.model.norm=rmsnorm
        transformer-jax conform my_task.py --config.tokenizer.kind=byte

    Parts of models are checked in an encoder-decoder of one layer each and in a language model of
    two, and parts of training in updates on a mesh of 8 devices (virtual ones on a CPU); a task in
    a run of four updates. docs/extending.md lists the properties. A property that fails is tried
    again with shorter sentences, and the shortest is shown. --config.KEY=VALUE holds for all
    models, which have no dropout (both passes of r_drop are equal). About a minute of CPU time for
    each part, a quarter less with --nocosts.
    """
    # Warnings of XLA, some of which it calls errors, would stand among the rows; its aborts are
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
    from transformer_jax.tools.conform.ideas import KINDS, ideas_named
    from transformer_jax.tools.conform.trials import Trial, trial_config

    ideas = ideas_named(values.arguments[0])
    stated = apply_overrides({}, flags.overrides_of(values))
    start_jax(trial_config("translation", {}).data.cache_directory)
    failed: list[Finding] = []
    for idea in ideas:
        kind = KINDS[idea.kind]
        print(f"{kind.setting}={idea.name}")
        for model in kind.models:
            found = []
            begin = partial(_print_row, model, "...") if sys.stdout.isatty() else str
            for finding in findings(model, idea, stated, begin=begin):
                found.append(finding)
                word = "ok" if finding.holds else "FAILS"
                _print_row(model, f"{word:<6} {finding.detail}", finding.name, end="\n")
            failed += [finding for finding in found if not finding.holds]
            if values.costs and model != "task" and any(finding.holds for finding in found):
                with_idea, without = (
                    costs_of(Trial(trial_config(model, settings)))
                    for settings in (idea.settings(stated), idea.settings_without(stated))
                )
                _print_costs(model, with_idea, without)
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

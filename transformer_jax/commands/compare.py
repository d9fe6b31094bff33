"""Test whether one run translates a split better than another, or whether chance explains the difference.

Example:
    transformer-jax compare runs/small runs/large --split=test
    transformer-jax compare runs/small/evaluation-test-900.txt runs/small/evaluation-test-1800.txt

A and B are run directories, or files that transformer-jax evaluate wrote into them. Translations that evaluate made before
are reused; a run without them is evaluated now. Both must have the same references. Prints BLEU (of one tokenizer: that of both
runs, or --config.evaluation.bleu_tokenizer) and chrF with
95 % confidence intervals, and p from paired bootstrap resampling (Koehn 2004): how likely so large a difference is between
systems that are equally good, whichever is ahead. (sacrebleu --paired-bs finds the same intervals, but a p of half of this
or less.) Then the sentences that differ most by sentence chrF, in favor of each. Writes compare.md, compare.html,
compare.csv (the scores) and compare-sentences.csv (every sentence) into the output folder.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.flag_parsing import define_arguments, define_override_flag, overrides_of
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, run_config
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.languages import require_tokenizer

if TYPE_CHECKING:
    from transformer_jax.tools.reports.translated_split import ChosenSplit, TranslatedSplit


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_arguments(values, "A B", "two run directories, or two evaluation-*.txt (or .json) in run directories")
    meaning = "of runs: train, validation, test, or a name that the data has; files know theirs"
    flags.DEFINE_string("split", "test", meaning, flag_values=values)
    flags.DEFINE_string("checkpoint", "best", f"of runs: {CHECKPOINT_MEANING}", flag_values=values)
    flags.DEFINE_integer(
        "examples", 10, "number of sentences to show in favor of each", flag_values=values, lower_bound=0
    )
    flags.DEFINE_integer("resamples", 1000, "number of bootstrap resamples", flag_values=values, lower_bound=100)
    flags.DEFINE_integer(
        "seed", 12345, "seed of the resampling; the default is sacreBLEU's", flag_values=values, lower_bound=0
    )
    flags.DEFINE_string("output", "compare", "folder for the report", flag_values=values)
    define_override_flag(values)


def run(values: flags.FlagValues) -> int:
    """Compares; 0."""
    first, second = _two_paths(values)
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.tools.reports.run_folders import run_of, short_names

    configs = [run_config(values, str(run_of(path))) for path in (first, second)]
    for path, config in zip((first, second), configs, strict=True):
        if config.task != "translation":
            raise ConfigError(f"A B: {path} is of a run of task={config.task}, which has no translations; see report")
    tokenizer = _one_tokenizer(configs)
    output = require_writable(values.output, "--output")
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tools.reports.comparison import (
        compare_sides,
        comparison_report,
        examples_sections,
        scores_csv,
        scores_section,
        sentences_csv,
    )
    from transformer_jax.tools.reports.document import section_text, write_report
    from transformer_jax.tools.reports.translated_split import choose_file, choose_run, require_same_references

    start_jax(configs[0].data.cache_directory)
    chosen = [
        choose_file(path, config) if path.is_file() else choose_run(path, config, values.split, values.checkpoint)
        for path, config in zip((first, second), configs, strict=True)
    ]
    require_same_references(*chosen)
    names = short_names([first, second])
    sides = (_translated(chosen[0]), _translated(chosen[1]))
    comparison = compare_sides((names[0], names[1]), sides, values.resamples, values.seed, tokenizer)
    tables = {"compare.csv": scores_csv(comparison), "compare-sentences.csv": sentences_csv(comparison)}
    written = write_report(output, "compare", comparison_report(comparison, values.examples), tables)
    for section in examples_sections(comparison, values.examples) if values.examples else ():
        print(section_text(section) + "\n")
    print(section_text(scores_section(comparison)))
    print("\n" + "\n".join(f"  {path}" for path in written))
    return 0


def _one_tokenizer(configs: Sequence[ExperimentConfig]) -> str:
    """The tokenizer of BLEU; raises ConfigError where the runs have two, or it is not installed."""
    found = [config.evaluation.tokenizer(config.data.target_language) for config in configs]
    if len(set(found)) > 1:
        problem = f"A is scored with {found[0]}, B with {found[1]}; state one, for example {found[0]}"
        raise ConfigError(f"--config.evaluation.bleu_tokenizer: {problem}")
    require_tokenizer(found[0], "evaluation.bleu_tokenizer")
    return found[0]


def _translated(chosen: "ChosenSplit") -> "TranslatedSplit":
    """Saved translations, or new ones where none were saved."""
    from transformer_jax.tools.reports.translated_split import saved_translations, translate_now

    saved = saved_translations(chosen)
    if saved is None:
        run = chosen.stem.parent
        print(f"{run}: translating {chosen.split} with checkpoint {chosen.step} ...", file=sys.stderr, flush=True)
        saved = translate_now(chosen)
    return saved


def _two_paths(values: flags.FlagValues) -> list[Path]:
    """Paths of A and B; raises ConfigError when there are not two, or when files are to be decoded with other settings."""
    paths = [Path(argument).expanduser().resolve() for argument in values.arguments]
    if len(paths) != 2:
        raise ConfigError(f"A B: give two runs to compare, not {len(paths)}; --help shows an example")
    if paths[0] == paths[1]:
        raise ConfigError(f"A B: both are {paths[0]}; give two different ones")
    searched = [key for key, _ in overrides_of(values) if key.startswith("decoding.")]
    files = [path for path in paths if path.is_file()]
    if searched and files:
        raise ConfigError(
            f"--config.{searched[0]}: {files[0]} was translated with other settings; give its run directory instead"
        )
    return paths

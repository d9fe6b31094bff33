"""Continue prompts with a trained language model.

Example:
    transformer-jax generate --workdir=runs/lm --prompt="The capital of France"
    transformer-jax generate --workdir=runs/lm --prompt="Once" --temperature=0.8 --top_k=50 --top_p=0.95 --seed=1
    transformer-jax generate --workdir=runs/lm --prompts=prompts.txt --max_new_tokens=50 > continued.txt

The text of a single prompt is printed as it is generated; with --beam_width above 1 at the end, since beam search knows its
best hypothesis only then. Of --prompts (a file, plain or .gz, a prompt a line) each line is printed with its continuation, in
their order; a line break that the model generates is printed as a space. Without a prompt the model begins a document.

--temperature=0 always takes the most probable token. The flags stand for --config.decoding.max_new_tokens and so on; the others
are those of the run. The same --seed, prompts and flags give the same text; the sample for a line does not depend on the
others. Of a prompt that does not fit into the context of the training before the new tokens the model sees the end, and a line
on stderr says how many tokens. TensorFlow is not needed.
"""

import sys
from pathlib import Path

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, require_task, run_config
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import LARGEST_SEED

SAMPLING_FLAGS = ("temperature", "top_k", "top_p")
DECODING_FLAGS = ("max_new_tokens", "beam_width", *SAMPLING_FLAGS)


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string("prompt", "", "text to continue", flag_values=values)
    flags.DEFINE_string("prompts", None, "file of prompts, one a line, plain or .gz", flag_values=values)
    flags.DEFINE_integer("max_new_tokens", None, "most tokens of a continuation", flag_values=values)
    flags.DEFINE_float("temperature", None, "divides the logits; 0 is greedy", flag_values=values)
    flags.DEFINE_integer("top_k", None, "sample from the k most probable tokens; 0: from all", flag_values=values)
    flags.DEFINE_float(
        "top_p", None, "sample from the fewest tokens with this total probability; 1: from all", flag_values=values
    )
    flags.DEFINE_integer("beam_width", None, "above 1: beam search instead of sampling", flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed of the sampling", flag_values=values, lower_bound=0, upper_bound=LARGEST_SEED)


def run(values: flags.FlagValues) -> int:
    """Generates; 0."""
    if values.prompts is not None and values["prompt"].present:
        raise ConfigError("--prompt: give one prompt, or a file of them with --prompts")
    stated = [name for name in DECODING_FLAGS if values[name].value is not None]
    for name in set(stated) & set(SAMPLING_FLAGS) if (values.beam_width or 1) > 1 else ():
        raise ConfigError(
            f"--{name}: --beam_width={values.beam_width} is beam search, which does not sample; give one of them"
        )
    require_task(values.workdir, "language_model")
    values.config_override += [f"decoding.{name}={values[name].value}" for name in stated]
    config = run_config(values)
    from transformer_jax.data.text_files import as_one_line, read_lines
    from transformer_jax.runs.run_directory import ChosenRun
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.trained_run import open_trained

    prompts = None if values.prompts is None else list(read_lines(Path(values.prompts)))
    if prompts == []:
        raise DataError(f"{values.prompts}: the file is empty; expected a prompt a line")
    start_jax(config.data.cache_directory)
    trained = open_trained(ChosenRun(values.workdir, config, values.checkpoint), average=values.average)
    generator, params, seed = trained.task.generator, trained.params, values.seed
    remark = generator.windows(prompts or [values.prompt], "prompt" if prompts else "--prompt").remark
    if remark:
        print(remark, file=sys.stderr, flush=True)
    if prompts is not None:
        for prompt, found in zip(prompts, generator.continuations(params, prompts, seed=seed), strict=True):
            print(prompt + as_one_line(found.text), flush=True)
        return 0
    print(values.prompt, end="", flush=True)
    if config.decoding.beam_width > 1:
        print(generator.continuations(params, [values.prompt], seed=seed)[0].text)
        return 0
    for piece in generator.stream(params, values.prompt, seed=seed):
        print(piece, end="", flush=True)
    print()
    return 0

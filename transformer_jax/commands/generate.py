import sys
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, open_runs, run_config, run_flags
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import LARGEST_SEED
from transformer_jax.data.text_files import as_one_line, read_lines

SAMPLING_FLAGS = ("temperature", "top_k", "top_p")
DECODING_FLAGS = ("max_new_tokens", "beam_width", *SAMPLING_FLAGS)


@flags.command(
    run_flags,
    flags.string("prompt", "", "text to continue"),
    flags.string("prompts", None, "file of prompts, one a line, plain, .gz or .xz"),
    flags.integer("max_new_tokens", None, "maximum number of tokens of a continuation"),
    flags.number("temperature", None, "divides the logits; 0 is greedy"),
    flags.integer("top_k", None, "sample from the k most probable tokens; 0: from all"),
    flags.number("top_p", None, "sample from the fewest tokens with this total probability; 1: from all"),
    flags.integer("beam_width", None, "above 1: beam search instead of sampling"),
    flags.integer("seed", 0, "seed of the sampling", lower_bound=0, upper_bound=LARGEST_SEED),
)
def generate(values: flags.Values) -> int:
    """Continue prompts with a trained language model.

    Example:
        transformer-jax generate --workdir=runs/lm --prompt="Once" --top_k=50 --seed=1
        transformer-jax generate --workdir=runs/lm --prompts=prompts.txt --max_new_tokens=50 >
            out.txt

    The continuation of a single prompt is printed while it is generated. --prompts is a file
    (plain, .gz, .xz) with a prompt a line. A prompt of it is printed with its continuation, and a
    generated line break as a space. Without a prompt the model begins a document. Without flags the
    run's settings apply. The same --seed, prompts and flags give the same text. If a prompt and the
    new tokens exceed the training context, the model sees only the end of the prompt, and a line on
    stderr says so.
    """
    if values.prompts is not None and "prompt" in values.present:
        raise ConfigError("--prompt", "give one prompt, or a file of them with --prompts")
    names = [name for name in DECODING_FLAGS if name in values.present]
    values.config_override += [f"decoding.{name}={getattr(values, name)}" for name in names]
    config = run_config(values, "generate")
    width = config.decoding.beam_width
    if width > 1 and (names := [name for name in (*SAMPLING_FLAGS, "seed") if name in values.present]):
        problem = f"beam_width={width} is beam search, which does not sample"
        raise ConfigError(f"--{names[0]}", problem, "add --beam_width=1")
    prompts = None if values.prompts is None else list(read_lines(Path(values.prompts)))
    if prompts == []:
        raise DataError(f"{values.prompts}: the file is empty; expected a prompt a line")
    trained = open_runs(chosen_runs(values, config), values.average)
    generator, params, seed = trained.task.generator, trained.params, values.seed
    remarks = trained.remarks(values.prompts or "--prompt")
    remarks.read(prompts or [values.prompt])
    remarks.tell()
    if remark := generator.windows(prompts or [values.prompt], "prompt" if prompts else "--prompt").remark:
        print(remark, file=sys.stderr, flush=True)
    if prompts is not None:
        for prompt, continuation in zip(prompts, generator.continuations(params, prompts, seed=seed), strict=True):
            print(prompt + as_one_line(continuation.text), flush=True)
        return 0
    print(values.prompt, end="", flush=True)
    if width > 1:
        print(generator.continuations(params, [values.prompt], seed=seed)[0].text)
        return 0
    for piece in generator.stream(params, values.prompt, seed=seed):
        print(piece, end="", flush=True)
    print()
    return 0

import shlex
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.registry import load_command
from transformer_jax.index import commands
from transformer_jax.runtime.startup import program_name

SENTENCE = "Before my duck goes through the hotels this week, he repairs my quiet table slowly."
PLAN = """\
A Transformer (Vaswani et al. 2017) learns to translate 20,000 generated English sentences to German; on two CPU cores:

  1. train      2 + 2 layers of width 128; loss, validation BLEU, checkpoints     about 3 minutes
  2. evaluate   500 held-out sentences: translations, BLEU, perplexity            about 20 seconds
  3. attention  a picture of its attention weights for one sentence               about 10 seconds

All files are in {workdir}. Ctrl-C saves and stops; the same command resumes.
"""
NEXT = """
Next, for example:
  echo {sentence} | {program} translate --workdir={workdir}
  {program} attention --workdir={workdir} --kind=encoder --text={sentence}
  {program} train --config=seq2seq:bahdanau --workdir={rnn}
"""


@flags.command(
    flags.string("workdir", "runs/quickstart", "folder of the run"),
)
def quickstart(values: flags.Values) -> int:
    """Train a small Transformer, score it on held-out sentences, and draw its attention.

    Example:
        transformer-jax quickstart --workdir=runs/first

    Runs three commands and prints each before it begins: train, evaluate, attention. Needs no data: the corpus is
    generated. After Ctrl-C the same command resumes.
    """
    workdir = f"--workdir={values.workdir}"
    print(PLAN.format(workdir=values.workdir), flush=True)
    for command in (
        ["train", "--config=quickstart", workdir],
        ["evaluate", workdir, "--split=test", "--examples=3"],
        ["attention", workdir, f"--text={SENTENCE}"],
    ):
        if command[0] not in commands():
            continue
        print(f"$ {program_name()} {shlex.join(command)}", flush=True)
        name, *arguments = command
        found = load_command(name)
        status = found.run(flags.parse(found.flags, arguments))
        if status:
            return status
        print()
    words = {
        "workdir": shlex.quote(values.workdir),
        "rnn": shlex.quote(str(Path(values.workdir).parent / "bahdanau")),
    }
    print(NEXT.format(program=program_name(), sentence=shlex.quote(SENTENCE), **words))
    return 0

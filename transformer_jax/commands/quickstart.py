import shlex
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.registry import load_command
from transformer_jax.registry.index import commands
from transformer_jax.runtime.startup import program_name

SENTENCE = "Before my duck goes through the hotels this week, he repairs my quiet table slowly."
PLAN = """\
A Transformer (Vaswani et al. 2017) learns to translate 20,000 generated English sentences to German; on two CPU cores:

{steps}

All files are in {workdir}. Ctrl-C saves and stops; the same command resumes.
"""
STEPS = (
    ("train --config=quickstart", "2 + 2 layers of width 128; loss, validation BLEU, checkpoints     about 3 minutes"),
    (
        "evaluate --split=test --examples=3",
        "500 held-out sentences: translations, BLEU, perplexity            about 20 seconds",
    ),
    (
        f"attention --text='{SENTENCE}'",
        "a picture of its attention weights for one sentence               about 10 seconds",
    ),
)
"""The commands and their descriptions; a command of an absent tool is left out."""
NEXT = (
    "echo {sentence} | {program} translate --workdir={workdir}",
    "{program} attention --workdir={workdir} --kind=encoder --text={sentence}",
    "{program} train --config=seq2seq:bahdanau --workdir={rnn}",
)


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
    usable = {name for name, command in commands().items() if not command.missing}
    steps = [(shlex.split(step), meaning) for step, meaning in STEPS if step.split()[0] in usable]
    listed = [f"  {number}. {step[0]:<9}  {meaning}" for number, (step, meaning) in enumerate(steps, 1)]
    print(PLAN.format(steps="\n".join(listed), workdir=values.workdir), flush=True)
    for (name, *arguments), _ in steps:
        arguments = [f"--workdir={values.workdir}", *arguments]
        print(f"$ {program_name()} {shlex.join([name, *arguments])}", flush=True)
        command = load_command(name)
        if status := command.run(flags.parse(command.flags, arguments)):
            return status
        print()
    words = {
        "program": program_name(),
        "sentence": shlex.quote(SENTENCE),
        "workdir": shlex.quote(values.workdir),
        "rnn": shlex.quote(str(Path(values.workdir).parent / "bahdanau")),
    }
    lines = [line for line in NEXT if line.partition("{program} ")[2].split()[0] in usable]
    print("Next, for example:", *(f"  {line.format(**words)}" for line in lines), sep="\n")
    return 0

import shlex
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.registry import load_command
from transformer_jax.files.paths import as_path
from transformer_jax.registry.index import commands, single_behind
from transformer_jax.runtime.startup import program_name

SENTENCE = "Before my duck goes through the hotels this week, he repairs my quiet table slowly."
PLAN = """\
A Transformer (Vaswani et al. 2017) learns to translate 20,000 generated English sentences to German; on two CPU cores:

{steps}

All files are in {workdir}. Ctrl-C saves and stops. The same command resumes.
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
    (
        f"explore --live --text='{SENTENCE}'",
        "a page with the model in it: edit the sentence, switch heads off  about 20 seconds",
    ),
)
"""Commands and their descriptions. A command of an absent tool is left out."""
OWN_TEXT = (
    "train --config=text --config.data.train=FILE.en,FILE.de --config.data.held_out=500 --budget=20m --workdir={own}"
)


@flags.command(flags.string("workdir", "runs/quickstart", "folder of the run"))
def quickstart(values: flags.Values) -> int:
    """Train a small Transformer, score it, draw its attention, and write its live page.

    Example:
        transformer-jax quickstart --workdir=runs/first

    Runs four commands and prints them before they begin: train, evaluate, attention, explore. Needs
    no data: the corpus is generated. After Ctrl-C the same command resumes.
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
    if "explore" in usable:
        page = as_path(values.workdir) / "live.html"
        place = page.absolute().as_uri() if isinstance(page, Path) else page
        print(f"The model at work, in a browser, without a network:\n  {place}\n")
    run = f"--workdir={shlex.quote(values.workdir)}"
    print(f"Next, for example:\n  echo {shlex.quote(SENTENCE)} | {program_name()} translate {run}")
    if single_behind("settings"):
        own = shlex.quote(str(Path(values.workdir).parent / "mine"))
        print("Your own text, where line n of one file translates line n of the other, in 20 minutes:")
        print(f"  {program_name()} {OWN_TEXT.format(own=own)}")
    return 0

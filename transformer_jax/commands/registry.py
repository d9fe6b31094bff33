"""Commands by name, and the text of ``transformer-jax --help`` and ``transformer-jax COMMAND --help``."""

import importlib
import inspect
import textwrap
from typing import NamedTuple

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.config.errors import nearest

WIDTH = 100


class Listed(NamedTuple):
    """A command: ``MODULE.FUNCTION`` in this folder, imported when it is used, and a summary of a few words."""

    function: str
    summary: str


COMMANDS = {
    "quickstart": Listed("quickstart.quickstart", "train, evaluate and draw attention, in minutes, without data"),
    "train": Listed("train.train", "train a model, or resume a run that stopped"),
    "data": Listed("data.data", "check text before training: faults, shifted lines, lines that filters remove"),
    "tokenize": Listed("tokenize.tokenize", "tokenize a corpus before training, in shards on many machines"),
    "evaluate": Listed("evaluate.evaluate", "translate a whole split and score it"),
    "translate": Listed("translate.translate", "translate lines from standard input"),
    "parse": Listed("translate.parse", "parse sentences: print their constituency trees"),
    "score": Listed("score.score", "log-probabilities of given translations"),
    "generate": Listed("generate.generate", "continue prompts with a language model"),
    "attention": Listed("attention.attention", "draw the attention weights of a translation"),
    "explore": Listed("explore.explore", "write a page to explore the attention and the search of a model"),
    "figure": Listed("figure.figure", "draw the modules or the learning rate of a recipe"),
    "align": Listed("align.align", "align the words of given translations"),
    "vectors": Listed("vectors.vectors", "evaluate, search, convert and draw word vectors"),
    "report": Listed("report.report", "compare runs: scores, settings that differ, learning curves"),
    "compare": Listed("report.compare", "test whether one run translates better than another"),
    "checkpoint": Listed("checkpoint.checkpoint", "list, describe or average checkpoints"),
    "export": Listed("interop.export", "write a trained model for another toolkit, and compare them"),
    "import": Listed("interop.import_model", "make a run of a model from another toolkit"),
    "verify": Listed("interop.verify", "compare a run with the same model in another format"),
    "preflight": Listed("preflight.preflight", "compile a recipe for other devices: does it fit, how fast can it be"),
    "calibrate": Listed("preflight.calibrate", "measure the devices of this machine, for the estimates of preflight"),
    "doctor": Listed("preflight.doctor", "check that this installation and its devices compute correctly"),
    "conform": Listed("conform.conform", "check that an idea does what the project promises, in small models"),
    "sweep": Listed("sweep.sweep", "train a recipe in many variants, by any number of workers"),
    "duel": Listed("duel.duel", "test which ideas help, at equal budgets, with error bars"),
    "launch": Listed("launch.launch", "write a job that starts a run or a sweep on a cluster"),
    "recipes": Listed("settings.recipes", "list the recipes that come with the package"),
    "config": Listed("settings.config", "print the settings of a recipe or a run, or how two differ"),
}


def load_command(name: str) -> flags.Command:
    """Imports a command; raises ConfigError, which names the nearest one, when it does not exist."""
    if name not in COMMANDS:
        near = nearest(name, COMMANDS)
        hint = f"did you mean {near}?" if near else f"commands are {', '.join(COMMANDS)}"
        raise ConfigError(f"{name!r} is not a command; {hint}")
    module, _, function = COMMANDS[name].function.partition(".")
    found: flags.Command = getattr(importlib.import_module(f"transformer_jax.commands.{module}"), function)
    return found


def overview() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return f"""Sequence transduction with attention: train, evaluate, translate, inspect.

Usage: transformer-jax COMMAND [--flag=value ...]

{listed}

transformer-jax COMMAND --help describes a command, with examples.
Try: transformer-jax quickstart"""


def command_help(name: str) -> str:
    """The docstring of a command, then its arguments, then its flags with their defaults."""
    command, values = load_command(name), flags.Values()
    for define in (*command.flags, flags.common):
        define(values)
    arguments = [values[flags.ARGUMENTS_FLAG].described()] if flags.ARGUMENTS_FLAG in values else []
    if flags.takes_run(values):
        arguments = [("[RUN]", f"the same as --{flags.WORKDIR_FLAG}=RUN")]
    described = [values[flag].described() for flag in sorted(set(values) - {flags.ARGUMENTS_FLAG})]
    described.append(("--help", "show this and exit"))
    usage = " ".join(["Usage: transformer-jax", name, *(head for head, _ in arguments), "[--flag=value ...]"])
    parts = [usage, inspect.cleandoc(command.run.__doc__ or "")]
    parts += [
        f"{title}:\n" + "\n".join(_paragraph(*item) for item in items)
        for title, items in (("Arguments", arguments), ("Flags", described))
        if items
    ]
    return "\n\n".join(parts)


def _paragraph(head: str, text: str) -> str:
    """A flag, and its meaning, indented, in the lines below."""
    return f"  {head}\n" + textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)

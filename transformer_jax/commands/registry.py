"""Commands by name, with their summaries; a module is imported when its command is used."""

import importlib
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from absl import flags

from transformer_jax.config import ConfigError
from transformer_jax.config.errors import nearest


class Command(NamedTuple):
    """A command: its module, and a summary of a few words."""

    module: str
    summary: str


@runtime_checkable
class CommandModule(Protocol):
    """Interface of a command module; the form is documented in ``transformer_jax.commands``."""

    __doc__: str | None
    define_flags: Callable[[flags.FlagValues], None]
    run: Callable[[flags.FlagValues], int]


COMMANDS = {
    "quickstart": Command("transformer_jax.commands.quickstart", "train, evaluate and look, in minutes, without data"),
    "train": Command("transformer_jax.commands.train", "train a model, or resume a run that stopped"),
    "data": Command(
        "transformer_jax.commands.data", "check text before training: faults, shifted lines, what filters remove"
    ),
    "evaluate": Command("transformer_jax.commands.evaluate", "translate a whole split and score it"),
    "translate": Command("transformer_jax.commands.translate", "translate lines from standard input"),
    "score": Command("transformer_jax.commands.score", "log-probabilities of given translations"),
    "generate": Command("transformer_jax.commands.generate", "continue prompts with a language model"),
    "attention": Command("transformer_jax.commands.attention", "draw what a translation attends to"),
    "explore": Command(
        "transformer_jax.commands.explore", "one page to explore what a model attends to, and how it searches"
    ),
    "figure": Command(
        "transformer_jax.commands.figure", "draw a picture of the theory, with the numbers that check it"
    ),
    "align": Command("transformer_jax.commands.align", "align the words of given translations"),
    "vectorize": Command(
        "transformer_jax.commands.vectorize", "count the words of documents: one-hot, n-grams, TF-IDF"
    ),
    "vectors": Command("transformer_jax.commands.vectors", "evaluate, search, convert and draw word vectors"),
    "report": Command("transformer_jax.commands.report", "compare runs: scores, settings that differ, learning curves"),
    "compare": Command("transformer_jax.commands.compare", "test whether one run translates better than another"),
    "checkpoint": Command(
        "transformer_jax.commands.checkpoint", "look at checkpoints, compare, average or delete some"
    ),
    "export": Command("transformer_jax.commands.export", "write a trained model for another toolkit, and compare them"),
    "import": Command("transformer_jax.commands.import_model", "make a run of a model from another toolkit"),
    "verify": Command("transformer_jax.commands.verify", "compare a run with the same model in another format"),
    "preflight": Command(
        "transformer_jax.commands.preflight",
        "compile a recipe for devices that are not here: does it fit, how fast can it be",
    ),
    "calibrate": Command(
        "transformer_jax.commands.calibrate", "measure the devices here, for the estimates of preflight"
    ),
    "doctor": Command("transformer_jax.commands.doctor", "check that what is installed here computes right numbers"),
    "sweep": Command("transformer_jax.commands.sweep", "train a recipe in many variants, by any number of workers"),
    "launch": Command("transformer_jax.commands.launch", "write what starts a run or a sweep on a cluster"),
    "recipes": Command("transformer_jax.commands.recipes", "list the recipes that come with the package"),
    "config": Command("transformer_jax.commands.config", "print the settings of a recipe or a run, or how two differ"),
}

FORMER_NAMES = {"compile": "preflight"}
"""Former names of commands, accepted for one release."""


def current_name(name: str) -> str:
    """The name of a command; for a former one a warning goes to stderr."""
    if name not in FORMER_NAMES:
        return name
    new = FORMER_NAMES[name]
    print(f"transformer-jax: {name} is now {new}; the next release no longer accepts the old name", file=sys.stderr)
    return new


def load_command(name: str) -> CommandModule:
    """Imports the module of a command.

    Raises:
        ConfigError: there is no such command, with the nearest one.
    """
    if name not in COMMANDS:
        near = nearest(name, COMMANDS)
        hint = f"did you mean {near}?" if near else f"commands are {', '.join(COMMANDS)}"
        raise ConfigError(f"{name!r} is not a command; {hint}")
    return importlib.import_module(COMMANDS[name].module)

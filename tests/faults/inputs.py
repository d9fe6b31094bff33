"""Bad inputs: a table with the expected status and a pattern of the message, and texts by chance."""

import gzip
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from judges import LONGEST_REFUSAL, Verdict, judge_refusal
from processes import Hanging, run_command_here

from transformer_jax.commands.registry import COMMANDS
from transformer_jax.config.conversion import leaf_keys

USER_ERROR = 2
QUICK = "--config=configs/quickstart.py"


class BadInput(NamedTuple):
    """``make`` puts files into an empty folder, FOLDER in ``arguments``; ``says`` must be found in what is printed."""

    kind: str
    arguments: tuple[str, ...]
    says: str
    make: Callable[[Path], object] = lambda folder: None


def flags() -> Iterator[BadInput]:
    """Flags that no command has, and commands without what they need."""
    for command in COMMANDS:
        yield BadInput("flag", (command, "--nonsense=1"), "nonsense")
        yield BadInput("flag", (f"{command}x",), "is not a command")
    for command in ("train", "evaluate", "translate", "align", "sweep"):
        yield BadInput("flag", (command,), "--workdir|--sweep|--config|missing|required")


def settings() -> Iterator[BadInput]:
    """Values that do not read as the type of a setting, and numbers that none could mean."""
    wrong = {int: ("x", "", "1.5", "1e400", "0x10", "٣x"), float: ("x", "", "1,5", "nan", "inf"), bool: ("maybe", "2")}
    for key, kind in leaf_keys():
        for text in wrong.get(kind, ()):
            yield BadInput("setting", ("config", QUICK, f"--config.{key}={text}"), re.escape(key))
        yield BadInput("setting", ("config", QUICK, f"--config.{key}x=1"), f"{re.escape(key)}x: unknown key")
    for key in (
        "training.num_updates",
        "batching.tokens_per_update",
        "decoding.beam_width",
        "decoding.max_extra_tokens",
    ):
        for value in (0, -1, 10**20):
            yield BadInput("setting", ("config", QUICK, f"--config.{key}={value}"), re.escape(key))


def written(name: str, content: bytes | str) -> Callable[[Path], object]:
    """Makes one file."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


RECIPES = {
    "import sys; sys.exit(3)": "SystemExit",
    "def get_config(: pass": "line 1",
    "def get_config(): return 3": "must return",
    "raise SystemExit": "SystemExit",
    "": "no function get_config",
    "def get_config(): return {'model': {'d_modell': 4}}": "d_model",
    "def get_config(): return {'task': 'sing'}": "task",
    "def get_config(): raise KeyError('x')": "KeyError",
}
RUN_SETTINGS = (
    "",
    "{",
    "[1]",
    "null",
    "[" * 50_000,
    '{"schema_version": 99, "config": {}}',
    '{"config": {}}',
    "\0\0\0",
)
READERS = (
    ("evaluate", "--workdir="),
    ("translate", "--workdir="),
    ("attention", "--text=a", "--workdir="),
    ("checkpoint", "info", ""),
)


def run_directories() -> Iterator[BadInput]:
    """Folders that are no run, and runs whose settings are damaged."""
    makers: dict[str, Callable[[Path], object]] = {
        "is a file": written("run", "text"),
        "does not exist": lambda folder: None,
        "not a run directory|no config.json": lambda folder: (folder / "run").mkdir(),
    }
    for command, (says, make) in itertools.product(READERS, makers.items()):
        yield BadInput("run directory", (*command[:-1], f"{command[-1]}FOLDER/run"), says, make)
    for command, content in itertools.product(READERS, RUN_SETTINGS):
        yield BadInput(
            "run directory",
            (*command[:-1], f"{command[-1]}FOLDER"),
            "config.json|no checkpoint yet",
            written("config.json", content),
        )
    for content, says in RECIPES.items():
        make = written("recipe.py", content)
        yield BadInput("recipe", ("config", "--config=FOLDER/recipe.py"), says, make)
        yield BadInput("recipe", ("train", "--config=FOLDER/recipe.py", "--workdir=FOLDER/run"), says, make)


def data_folders() -> Iterator[BadInput]:
    """Text that cannot be trained on."""
    train = ("train", QUICK, "--config.data.source=text", "--config.data.directory=FOLDER", "--workdir=FOLDER/run")
    both = b"a b\n" * 50
    sides: dict[str, Callable[[Path], object]] = {
        "is a directory; give a text file": lambda folder: (folder / "train.en").mkdir(),
        "is a pipe; give a text file": lambda folder: os.mkfifo(folder / "train.en"),
        "is a link that leads nowhere": lambda folder: (folder / "train.en").symlink_to("nowhere"),
        "is a device": lambda folder: (folder / "train.en").symlink_to("/dev/zero"),
        "looks like gzip": written("train.en", gzip.compress(both)),
        "is UTF-16": written("train.en", "a\n".encode("utf-16")),
        "invalid UTF-8": written("train.en", b"a\n\xff\xfe\n"),
        "NUL byte": written("train.en", b"a\0\n" * 50),
        "lines but": written("train.en", both + b"one more\n"),
        "lines but .*": written("train.en", b""),
        "no file train.en": lambda folder: None,
    }

    def with_other_sides(make: Callable[[Path], object]) -> Callable[[Path], object]:
        def made(folder: Path) -> None:
            for name in ("train.de", "validation.en", "validation.de"):
                (folder / name).write_bytes(both)
            make(folder)

        return made

    for says, make in sides.items():
        yield BadInput("data", train, says, with_other_sides(make))
    yield BadInput("data", train, "no split 'validation'|no split 'train'", written("train.tsv", "a\tb\n" * 50))
    yield BadInput("data", train, "tabs, expected exactly one", table_of("a b c\n" * 50))


def table_of(content: str) -> Callable[[Path], object]:
    """Both splits as tables."""

    def made(folder: Path) -> None:
        for split in ("train", "validation"):
            (folder / f"{split}.tsv").write_text(content, encoding="utf-8")

    return made


def table() -> list[BadInput]:
    """All that have an expected message."""
    return [*flags(), *settings(), *run_directories(), *data_folders()]


def by_chance(rng: random.Random) -> Iterator[BadInput]:
    """Random bytes, and JSON that was right before a few bytes of it changed, where settings and tables are read."""
    sound = json.dumps({"schema_version": 2, "config": {"model": {"d_model": 16}, "seed": 3}}).encode()
    while True:
        content = bytearray(sound if rng.random() < 0.6 else rng.randbytes(rng.randrange(200)))
        for _ in range(rng.randrange(1, 4)):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        yield BadInput("by chance", ("config", "--config=FOLDER"), "", written("config.json", bytes(content)))


def verdict_of(given: BadInput, folder: Path) -> Verdict:
    """Runs one command on one bad input; by chance an input may also be right."""
    folder.mkdir(parents=True)
    given.make(folder)
    try:
        status, output = run_command_here([word.replace("FOLDER", str(folder)) for word in given.arguments])
    except Hanging:
        return Verdict("hang", str(given.arguments))
    if status == 0 and not given.says:
        return Verdict("refused")
    verdict = judge_refusal(status, output)
    if verdict.kind != "refused":
        return verdict
    if status != USER_ERROR or not re.search(given.says, output):
        return Verdict("wrong", f"{given.arguments}: status {status}: {output[-300:]}; expected {given.says!r}")
    problem = output[output.find("transformer-jax:") :]
    return verdict if len(problem.splitlines()) <= LONGEST_REFUSAL else Verdict("traceback", problem)


def input_verdicts(folder: Path, count: int, seed: int) -> Iterator[tuple[str, Verdict]]:
    """Verdicts of ``count`` inputs: of the table in random order, then by chance."""
    rng = random.Random(seed)
    listed = table()
    rng.shuffle(listed)
    for number, given in enumerate(itertools.islice(itertools.chain(listed, by_chance(rng)), count)):
        yield given.kind, verdict_of(given, folder / str(number))

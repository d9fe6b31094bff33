"""Bad inputs: a table with a pattern of the message, and texts by chance."""

import gzip
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from judges import Verdict, judge_refusal
from processes import Hanging, run_command_here

from transformer_jax.config.conversion import leaf_keys

USER_ERROR = 2
QUICK = "--config=configs/quickstart.py"


class BadInput(NamedTuple):
    """``files`` by name, and what ``make`` puts into an empty folder, FOLDER in ``arguments``;
    ``says``: printed pattern."""

    kind: str
    arguments: tuple[str, ...]
    says: str
    files: Mapping[str, bytes] = {}
    make: Callable[[Path], object] = lambda folder: None


def settings() -> Iterator[BadInput]:
    """Values that do not read as the type of a setting, and numbers that none could mean."""
    wrong = {int: ("x", "", "1.5", "1e400", "0x10", "٣x"), float: ("x", "", "1,5", "nan", "inf"), bool: ("maybe", "2")}
    values = [(key, text) for key, kind in leaf_keys() for text in wrong.get(kind, ())]
    counts = "training.num_updates", "batching.tokens_per_update", "decoding.beam_width", "decoding.max_extra_tokens"
    for key, value in [*values, *itertools.product(counts, (0, -1, 10**20))]:
        yield BadInput("setting", ("config", QUICK, f"--config.{key}={value}"), re.escape(key))
    for key, _ in leaf_keys():
        yield BadInput("setting", ("config", QUICK, f"--config.{key}x=1"), f"{re.escape(key)}x: unknown key")


RECIPES = {
    "import sys; sys.exit(3)": "SystemExit",
    "def get_config(: pass": "line 1",
    "def get_config(): return 3": "must return",
    "": "no function get_config",
    "def get_config(): return {'model': {'d_modell': 4}}": "d_model",
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
READERS = (("evaluate", "--workdir="), ("translate", "--workdir="), ("attention", "--text=a", "--workdir="))
READERS += (("checkpoint", "info", ""),)


def run_directories() -> Iterator[BadInput]:
    """Folders that are no run, runs whose settings are damaged, and recipes that are none."""
    runs: list[tuple[str, dict[str, bytes]]] = [
        ("is a file", {"run": b"text"}),
        ("does not exist", {}),
        ("not a run directory|no config.json", {"run/other": b""}),
        *(("config.json|no checkpoint yet", {"run/config.json": content.encode()}) for content in RUN_SETTINGS),
    ]
    for command, (says, files) in itertools.product(READERS, runs):
        yield BadInput("run directory", (*command[:-1], f"{command[-1]}FOLDER/run"), says, files)
    for content, says in RECIPES.items():
        for command in (("config",), ("train", "--workdir=FOLDER/run")):
            arguments = (*command, "--config=FOLDER/recipe.py")
            yield BadInput("recipe", arguments, says, {"recipe.py": content.encode()})


SIDE = b"a b\n" * 50
SIDES: list[tuple[str, bytes | Callable[[Path], object]]] = [
    ("is a folder; expected a file", Path.mkdir),
    ("no file train.en", os.mkfifo),
    ("no file train.en", lambda file: file.symlink_to("nowhere")),
    ("no file train.en", lambda file: file.symlink_to("/dev/zero")),
    ("no file train.en", lambda file: None),
    ("looks like gzip", gzip.compress(SIDE)),
    ("is UTF-16", "a\n".encode("utf-16")),
    ("invalid UTF-8", b"a\n\xff\xfe\n"),
    ("NUL byte", b"a\0\n" * 50),
    ("lines but", SIDE + b"one more\n"),
    ("lines but", b""),
]


def data_folders() -> Iterator[BadInput]:
    """Text that cannot be trained on."""
    train = ("train", QUICK, "--config.data.source=text", "--config.data.directory=FOLDER", "--workdir=FOLDER/run")
    sound = dict.fromkeys(("train.de", "validation.en", "validation.de"), SIDE)
    for says, side in SIDES:
        if isinstance(side, bytes):
            yield BadInput("data", train, says, sound | {"train.en": side})
        else:
            yield BadInput("data", train, says, sound, lambda folder, make=side: make(folder / "train.en"))
    files = {"train.tsv": b"a\tb\n" * 50}
    yield BadInput("data", train, "no split 'validation'|no split 'train'", files)


def table() -> list[BadInput]:
    """All that have an expected message."""
    return [*settings(), *run_directories(), *data_folders()]


def by_chance(rng: random.Random) -> Iterator[BadInput]:
    """Random bytes, and JSON that was right before a few bytes of it changed, where settings are
    read."""
    sound = json.dumps({"schema_version": 2, "config": {"model": {"d_model": 16}, "seed": 3}}).encode()
    while True:
        content = bytearray(sound if rng.random() < 0.6 else rng.randbytes(rng.randrange(1, 200)))
        for _ in range(rng.randrange(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        yield BadInput("by chance", ("config", "--config=FOLDER"), "", {"config.json": bytes(content)})


def verdict_of(bad: BadInput, folder: Path) -> Verdict:
    """Runs one command on one bad input; by chance an input may also be right."""
    folder.mkdir(parents=True)
    for name, content in bad.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    bad.make(folder)
    try:
        status, output = run_command_here([word.replace("FOLDER", str(folder)) for word in bad.arguments])
    except Hanging:
        return Verdict("hang", str(bad.arguments))
    if status == 0 and not bad.says:
        return Verdict("refused")
    verdict = judge_refusal(status, output)
    is_expected = status == USER_ERROR and re.search(bad.says, output)
    if verdict.kind != "refused" or is_expected:
        return verdict
    return Verdict("wrong", f"{bad.arguments}: status {status}: {output[-300:]}; expected {bad.says!r}")


def input_verdicts(folder: Path, count: int, seed: int) -> Iterator[tuple[str, Verdict]]:
    """Verdicts of ``count`` inputs: of the table in random order, then by chance."""
    rng = random.Random(seed)
    inputs = table()
    rng.shuffle(inputs)
    for number, bad in enumerate(itertools.islice(itertools.chain(inputs, by_chance(rng)), count)):
        yield bad.kind, verdict_of(bad, folder / str(number))

"""The runs that are disturbed, tiny ones of three models, and the undisturbed runs that they are
compared with."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from processes import SECONDS, Command, Hanging, as_one, ended, run_command_here

UPDATES = 24
TRAINING = {"num_updates": UPDATES, "evaluate_every": 12, "checkpoint_every": 4, "log_every": 1}
SHARED = {
    "optimizer": {"schedule": "constant", "learning_rate": 1e-2, "warmup_updates": 4},
    "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
    "training": TRAINING | {"validation_sentences": 8},
}
COPY = SHARED | {
    "data": {"source": "copy", "generated_pairs": 200, "max_source_tokens": 47, "max_target_tokens": 47},
    "tokenizer": {"kind": "word", "vocabulary_size": 64},
    "batching": {"tokens_per_update": 512, "num_buckets": 2},
    "decoding": {"beam_width": 2, "max_extra_tokens": 4},
}
LAYERS = {"d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.1, "compute_dtype": "float32"}
RECURRENT = {"kind": "rnn", "d_embedding": 16, "d_hidden": 16, "d_attention": 16, "compute_dtype": "float32"}
SUBJECTS: dict[str, dict] = {
    "transformer": COPY | {"model": {"num_encoder_layers": 1, "num_decoder_layers": 1, **LAYERS}},
    "rnn": COPY | {"model": RECURRENT},
    "language_model": SHARED
    | {
        "task": "language_model",
        "data": {"generated_sentences": 100},
        "tokenizer": {"kind": "byte"},
        "batching": {"tokens_per_update": 512, "context_length": 32},
        "model": {"num_layers": 1, "max_positions": 32, **LAYERS},
        "decoding": {"max_new_tokens": 8},
    },
}


def write_recipe(subject: str, folder: Path) -> Path:
    """The recipe of a subject, with a cache beside it."""
    settings = SUBJECTS[subject]
    settings = settings | {"data": settings["data"] | {"cache_directory": str(folder / "cache")}}
    recipe = folder / f"{subject}.py"
    recipe.write_text(f"def get_config():\n    return {settings!r}\n", encoding="utf-8")
    return recipe


def train(subject: str, folder: Path, *arguments: str, devices: int = 1, **environment: str) -> Command:
    """``train`` in a process of its own, in the folder of a case."""
    flags = f"--config={write_recipe(subject, folder)}", f"--workdir={folder / 'run'}"
    return Command("train", *flags, *arguments, devices=devices, **environment)


def resumed(subject: str, folder: Path, seconds: float = SECONDS) -> tuple[int, str]:
    """``train`` in this process, in the folder of a case; its status, and what it printed."""
    recipe = write_recipe(subject, folder)
    return run_command_here(["train", f"--config={recipe}", f"--workdir={folder / 'run'}"], seconds)


def fresh(folder: Path) -> Path:
    """An empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def copy_of(source: Path, target: Path) -> Path:
    """A run and its cache, to be damaged."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def case_beside(reference: Path) -> Path:
    """An empty folder for a run that is disturbed, but for the compiled programs of the run that it
    is compared with."""
    case = fresh(reference.parent / "case")
    if (reference / "cache" / "compiled").is_dir():
        shutil.copytree(reference / "cache" / "compiled", case / "cache" / "compiled")
    return case


def undisturbed(folder: Path, start: Callable[[Path], list[Command]], wait=lambda commands: True) -> Path:
    """``folder``, with the run of the commands that ``start`` gives, made once; its seconds begin
    after ``wait``."""
    if not (folder / "seconds.json").is_file():
        commands = start(fresh(folder))
        wait(commands)
        began = time.monotonic()
        try:
            status, output = as_one(ended(commands, 3 * SECONDS))
        except Hanging:
            raise SystemExit(f"{folder.name} did not end; this machine is too busy") from None
        if status:
            raise SystemExit(f"{folder.name}: an undisturbed run failed: {output}")
        (folder / "seconds.json").write_text(json.dumps(time.monotonic() - began), encoding="utf-8")
    return folder


def undisturbed_run(subject: str, root: Path) -> Path:
    """The folder of a run on one device, after another that compiled its programs."""

    def start(folder: Path) -> list[Command]:
        train(subject, folder).ended(3 * SECONDS)
        shutil.rmtree(folder / "run")
        return [train(subject, folder)]

    return undisturbed(root / subject, start)


def seconds_of(folder: Path) -> float:
    """Seconds that a run took; faults strike within them."""
    return json.loads((folder / "seconds.json").read_text(encoding="utf-8"))


def bound(folder: Path, seconds: float = SECONDS) -> float:
    """Seconds beyond which a command hangs: ``seconds``, and three times the undisturbed one, on
    the same busy machine."""
    return seconds + 3 * seconds_of(folder)


def cut_at(update: int, run: Path) -> None:
    """Removes the checkpoints after an update, as if the process had been killed before it wrote
    them."""
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name.isdigit() and int(checkpoint.name) > update:
            shutil.rmtree(checkpoint)

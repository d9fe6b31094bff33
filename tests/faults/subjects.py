"""The runs that are disturbed, tiny ones of three models, and the undisturbed runs that they are compared with."""

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from processes import SECONDS, Hanging, run_command_here, train

UPDATES = 24
LONGEST_UNDISTURBED = 3 * SECONDS
SHARED = {
    "optimizer": {"schedule": "constant", "learning_rate": 1e-2, "warmup_updates": 4},
    "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
}
TRAINING = {
    "num_updates": UPDATES,
    "evaluate_every": 12,
    "checkpoint_every": 4,
    "log_every": 1,
    "validation_sentences": 8,
}
COPY = {
    "data": {"source": "copy", "generated_pairs": 200, "max_source_tokens": 47, "max_target_tokens": 47},
    "tokenizer": {"kind": "word", "vocabulary_size": 64},
    "batching": {"tokens_per_update": 512, "num_buckets": 2},
    "decoding": {"beam_width": 2, "max_extra_tokens": 4},
    "training": TRAINING,
}
LAYERS = {"d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.1, "compute_dtype": "float32"}
SUBJECTS: dict[str, dict] = {
    "transformer": COPY | {"model": {"num_encoder_layers": 1, "num_decoder_layers": 1, **LAYERS}},
    "rnn": COPY
    | {"model": {"kind": "rnn", "d_embedding": 16, "d_hidden": 16, "d_attention": 16, "compute_dtype": "float32"}},
    "language_model": {
        "task": "language_model",
        "data": {"generated_sentences": 100},
        "tokenizer": {"kind": "byte"},
        "batching": {"tokens_per_update": 512, "context_length": 32},
        "model": {"num_layers": 1, "max_positions": 32, **LAYERS},
        "training": TRAINING,
        "decoding": {"max_new_tokens": 8},
    },
}


def write_recipe(subject: str, folder: Path) -> Path:
    """The recipe of a subject, with a cache beside it."""
    settings = SHARED | SUBJECTS[subject]
    settings = settings | {"data": settings["data"] | {"cache_directory": str(folder / "cache")}}
    recipe = folder / f"{subject}.py"
    recipe.write_text(f"def get_config():\n    return {settings!r}\n", encoding="utf-8")
    return recipe


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
    """An empty folder for a run that is disturbed, but for the compiled programs of the run that it is compared with."""
    case = fresh(reference.parent / "case")
    if (reference / "cache" / "compiled").is_dir():
        shutil.copytree(reference / "cache" / "compiled", case / "cache" / "compiled")
    return case


def undisturbed_run(subject: str, root: Path) -> Path:
    """In this process: it warms the cache of compiled programs for those that are disturbed."""
    folder = root / subject
    if not (folder / "seconds.json").is_file():
        fresh(folder)
        began = time.monotonic()
        require_success(f"{subject}: the undisturbed run", partial(resumed, subject, folder))
        note_seconds(folder, began)
    return folder / "run"


def resumed(subject: str, folder: Path, seconds: float = SECONDS) -> tuple[int, str]:
    """``train`` in this process, in the folder of a case; its status, and what it printed."""
    recipe = write_recipe(subject, folder)
    return run_command_here(["train", f"--config={recipe}", f"--workdir={folder / 'run'}"], seconds=seconds)


def require_success(name: str, end: Callable[[float], tuple[int, str]]) -> None:
    """Without what the others are compared with there is no campaign; ``end`` waits for ``seconds``."""
    try:
        status, output = end(LONGEST_UNDISTURBED)
    except Hanging:
        raise SystemExit(f"{name} did not end in {LONGEST_UNDISTURBED:.0f} s; this machine is too busy") from None
    if status:
        raise SystemExit(f"{name} failed: {output}")


def cut_at(update: int, run: Path) -> None:
    """Removes the checkpoints after an update, as if the process had been killed before it wrote them."""
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name.isdigit() and int(checkpoint.name) > update:
            shutil.rmtree(checkpoint)


def two_thirds_of(subject: str, root: Path, target: Path) -> Path:
    """A copy of the undisturbed run and its cache, as of two thirds of the updates."""
    undisturbed_run(subject, root)
    cut_at(UPDATES * 2 // 3, copy_of(root / subject, target) / "run")
    return target


def run_alone(subject: str, root: Path) -> Path:
    """The folder of a run in a process of its own, with compiled programs for others that are disturbed."""
    folder = root / f"{subject}-alone"
    if not (folder / "seconds.json").is_file():
        fresh(folder)
        for name in ("cold", "run"):
            command = train(write_recipe(subject, folder), folder / name)
            require_success(f"{subject}: the undisturbed run", command.ended)
        note_seconds(folder, command.began)
    return folder


def seconds_of(folder: Path) -> float:
    """Seconds that a run took; faults strike within them."""
    return json.loads((folder / "seconds.json").read_text(encoding="utf-8"))


def bound(folder: Path, seconds: float = SECONDS) -> float:
    """Seconds beyond which a command hangs: ``seconds``, and three times the undisturbed one, on the same busy machine."""
    return seconds + 3 * seconds_of(folder)


def note_seconds(folder: Path, began: float) -> None:
    """Writes the seconds since ``began``; from now on the run counts as made."""
    (folder / "seconds.json").write_text(json.dumps(time.monotonic() - began), encoding="utf-8")

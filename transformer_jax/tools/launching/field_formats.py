"""Formats of scheduler fields: names, times, amounts of memory. Each check raises ConfigError that names the flag."""

import re

from transformer_jax.config import ConfigError

LONGEST_NAME = 40


def require_name(name: str) -> str:
    """The name, when all launchers take it: a label of RFC 1035, since the JobSet's headless service has it too.

    At most 40 characters, as Kubernetes makes the name of a host, of at most 63, out of it.
    """
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise ConfigError(
            f"--name: {name!r} must be at most {LONGEST_NAME} lower-case letters, digits and hyphens, and begin with a letter; "
            "for example base-4x8"
        )
    return name


def name_of_workdir(workdir: str) -> str:
    """A name after the last part of a folder: ``runs/Base_v2`` is ``base-v2``; raises ConfigError where nothing is left."""
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    name = re.sub("[^a-z0-9]+", "-", last).lstrip("-0123456789").rstrip("-")
    if not name:
        raise ConfigError(f"--name: is needed, as --workdir={workdir} does not give one")
    return require_name(name[:LONGEST_NAME].rstrip("-"))


def require_word(flag: str, text: str) -> str:
    """The text, when it is one word that neither the shell nor a directive of sbatch reads as anything else."""
    if not re.fullmatch(r"[^\s\"'`\\$#]+", text):
        raise ConfigError(f"--{flag}: {text!r} must be one word without quotes, $, # and backslashes")
    return text


def require_memory(text: str, units: str) -> str:
    """The text, when it is a whole number and one of ``units``: ``["G", "M"]`` as ``G|M``."""
    if not re.fullmatch(rf"[1-9][0-9]*({units})", text):
        raise ConfigError(
            f"--memory: {text!r} is not a whole number with one of {units.replace('|', ', ')}; for example 64G"
        )
    return text


def slurm_seconds(text: str) -> int:
    """The seconds of a time limit as sbatch's ``--time`` takes it (sbatch manual).

    ``90`` are minutes; ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` and ``D-HH:MM:SS``. Raises ConfigError for anything else.
    """
    matched = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not matched:
        raise ConfigError(f"--time: {text!r} is not a time limit; write HH:MM:SS or D-HH:MM:SS, for example 24:00:00")
    days, *parts = matched.groups()
    numbers = [int(part) for part in parts if part is not None]
    # Without days one number is minutes, two are minutes and seconds.
    starts_with_hours = days is not None or len(numbers) == 3
    hours, minutes, seconds = [*numbers, 0, 0][:3] if starts_with_hours else [0, *numbers, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds

"""Values and barriers that the processes of one command share; ``process_group`` connects them.

Processes wait for each other in JAX's coordination service, with a limit, and never in a
collective, which fails after 30 s and cannot say whom it waits for.
"""

import itertools
import json
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import jax

from transformer_jax.config import ConfigError, DataError
from transformer_jax.private_modules import coordination_client


def seconds_in(name: str, default: int) -> int:
    """Return the number in a variable of the environment. Raises ConfigError unless above 0."""
    text = os.environ.get(name) or str(default)
    if not (text.isdecimal() and int(text)):
        raise ConfigError(name, f"{text!r} is not a number of seconds above 0, such as {default}")
    return int(text)


# Processes wait for each other this long while one compiles, reads or tokenizes.
SECONDS_TO_WAIT = seconds_in("TRANSFORMER_JAX_SECONDS_TO_WAIT", 1800)
SECONDS_UNTIL_REPORTED = 20.0
Json = TypeVar("Json")
Waited = TypeVar("Waited")
# Numbers of the exchanges of values, which all processes make in the same order.
_EXCHANGES = itertools.count()


def wait_for_all(name: str) -> None:
    """Wait until all processes have called it with this name, which can be used once.

    Reports that it waits. Raises ConfigError after ``TRANSFORMER_JAX_SECONDS_TO_WAIT`` seconds
    (default: 1800), and RuntimeError when another process died.
    """
    if jax.process_count() > 1 and (client := coordination_client()) is not None:
        _waited_for(name, lambda: client.wait_at_barrier(f"transformer_jax/{name}", 1000 * SECONDS_TO_WAIT))


def _waited_for(name: str, wait: Callable[[], Waited]) -> Waited:
    """Return the result of ``wait``, a call of the coordination service with a limit."""
    try:
        with reported_after(SECONDS_UNTIL_REPORTED, f"process {jax.process_index()} waits for the others: {name}"):
            return wait()
    except RuntimeError as error:
        if not str(error).startswith("DEADLINE_EXCEEDED"):
            raise
        raise ConfigError(
            "--distributed",
            f"not all processes came to {name!r} in {SECONDS_TO_WAIT} s",
            "raise TRANSFORMER_JAX_SECONDS_TO_WAIT if they are slow, and tokenize a large corpus "
            f"before ({str(error).splitlines()[0][:200]})",
        ) from None


@contextmanager
def reported_after(seconds: float, text: str) -> Iterator[None]:
    """Print ``text`` unless the block ends before."""
    timer = threading.Timer(seconds, partial(print, text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_first() -> bool:
    """Return whether this is process 0, which writes files and prints."""
    return jax.process_index() == 0


def from_first(make: Callable[[], Json], name: str) -> Json:
    """Call ``make`` on process 0 only and return its result, which must be JSON, on all processes.

    ``name``: of the result, for processes that wait. A ConfigError or DataError of ``make`` is
    raised on all of them. All processes call it, in the same order.
    """
    if jax.process_count() == 1:
        return make()
    key = str(next(_EXCHANGES))
    answer: dict[str, Any] = {}
    problem = None
    if is_first():
        try:
            answer = {"result": make()}
        except (ConfigError, DataError) as error:
            answer, problem = {"problem": str(error)}, error
        _set(key, answer)
    answer = _get(key, name)
    if "problem" in answer:
        raise problem or DataError(answer["problem"])
    return answer["result"]


def from_all(name: str, here: Json) -> list[Json]:
    """Return the values ``here``, JSON, of all processes, in order. A name can be used once."""
    if jax.process_count() == 1:
        return [here]
    _set(f"{name}/{jax.process_index()}", here)
    return [_get(f"{name}/{index}", f"{name} of process {index}") for index in range(jax.process_count())]


def all_agree(here: bool, name: str) -> bool:
    """Return whether ``here`` is true on every process. All call it, in the same order."""
    return all(from_all(f"{name} {next(_EXCHANGES)}", here))


def _set(key: str, value: Any) -> None:
    client = coordination_client()
    client.key_value_set(f"transformer_jax/{key}", json.dumps(value))


def _get(key: str, name: str) -> Any:
    client = coordination_client()
    address, milliseconds = f"transformer_jax/{key}", 1000 * SECONDS_TO_WAIT
    return json.loads(_waited_for(name, lambda: client.blocking_key_value_get(address, milliseconds)))


def say(text: str, file: TextIO | None = None) -> None:
    """Print on process 0 only, by default to standard output."""
    if is_first():
        print(text, file=file)


@contextmanager
def first_goes_first(name: str) -> Iterator[None]:
    """Run the block on process 0, then on the others, which read the files that it wrote.

    ``name``: of these files, for processes that wait. A ConfigError or DataError of process 0 is
    raised on all. The block may not wait for another process.
    """
    if not is_first():
        from_first(lambda: None, name)
        yield
        return
    problem: Exception | None = None
    try:
        yield
    except (ConfigError, DataError) as error:
        problem = error

    def outcome() -> None:
        if problem:
            raise problem

    from_first(outcome, name)


def require_same(content: str, key: str, problem: str, remedy: str) -> None:
    """Raise ConfigError in every process unless ``content`` is the same in all."""
    if not all_agree(from_first(lambda: content, "settings") == content, "settings"):
        raise ConfigError(key, problem, remedy)


def require_shared_folder(folder: Path) -> None:
    """Raise ConfigError in every process unless all see the same ``folder``."""
    if jax.process_count() == 1:
        return

    def leave_marker() -> str:
        name = f"processes.{uuid.uuid4().hex}.partial"
        os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        return name

    marker = folder / from_first(leave_marker, "shared folder")
    is_seen_by_all = all_agree(marker.is_file(), "shared folder")
    if is_first():
        marker.unlink()
    if not is_seen_by_all:
        raise ConfigError(
            "--workdir", f"not all processes see {folder} of process 0", "give a folder that all hosts share"
        )

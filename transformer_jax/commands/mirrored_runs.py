"""Runs in object stores: a command is given a local copy in place of each address among its flags."""

import re
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from absl import flags

from transformer_jax.commands.flag_parsing import ARGUMENTS_FLAG
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.addresses import is_address
from transformer_jax.config.secrets import masked

if TYPE_CHECKING:
    from transformer_jax.checkpoints.read_mirror import ReadMirror

# A run remembers where its parameters came from, so the address stays, and is opened by what reads it.
INIT_FLAG = "init_from"
# Flags that name runs; what others name is local.
RUN_FLAGS = ("workdir", "ensemble", INIT_FLAG, "others", "config", "against", ARGUMENTS_FLAG)
TRAINING = ("train", "quickstart")
# These write many runs, or what another machine executes, or a new run that is not trained.
LOCAL = ("sweep", "launch", "import")

# An address may name a port.
_RUN = re.compile(r"(?P<address>[a-z][a-z0-9+.-]*:/(?:[^:]|:(?=[0-9]+/))+?)/?(?P<rest>/[^/:]+\.(?:txt|json)|:[^:/]*)?")


def names_addresses(name: str, values: flags.FlagValues) -> bool:
    """Whether a run that a command is to use lies in an object store."""
    given = (_texts(values[flag].value) for flag in RUN_FLAGS if flag in values)
    return name not in LOCAL and any(is_address(text) for texts in given for text in texts)


def run_on_mirrors(name: str, run: Callable[[flags.FlagValues], int], values: flags.FlagValues) -> int:
    """Runs a command on local copies, and uploads what it wrote; its status, or 1 where not everything is uploaded."""
    from transformer_jax.runs.training_mirror import UploadFailed
    from transformer_jax.runtime.object_stores import with_addresses

    if "distributed" in values and values.distributed:
        raise ConfigError("--distributed: several processes need a folder that all of them see; mount the store")
    try:
        return _run(name, run, values)
    except UploadFailed as error:
        print(error, file=sys.stderr)
        return 1
    except ConfigError as error:
        raise ConfigError(with_addresses(str(error))) from None
    except DataError as error:
        raise DataError(with_addresses(str(error))) from None


def _run(name: str, run: Callable[[flags.FlagValues], int], values: flags.FlagValues) -> int:
    from transformer_jax.checkpoints.read_mirror import ReadMirror, open_read_mirror
    from transformer_jax.runs.training_mirror import UploadFailed, training_mirror

    read: list[ReadMirror] = []
    is_pruning = name == "checkpoint" and (values.arguments or [""])[0] == "prune" and not values.dry_run
    with ExitStack() as held:

        def local(flag: str, text: str) -> str:
            found = _RUN.fullmatch(text)
            if not is_address(text) or flag == INIT_FLAG:
                return text
            if found is None:
                raise ConfigError(f"{masked(text)}: not the address of a run; write s3://BUCKET/FOLDER[:CHECKPOINT]")
            if is_pruning or (flag == "workdir" and name in TRAINING):
                return str(held.enter_context(training_mirror(text)))
            mirror = open_read_mirror(found["address"])
            read.append(mirror)
            return f"{mirror.path}{found['rest'] or ''}"

        for flag in RUN_FLAGS:
            if flag in values:
                values[flag].value = _replaced(values[flag].value, partial(local, flag))
        try:
            status = run(values)
        except BaseException:
            try:
                _send_back(read)
            except UploadFailed as error:
                print(error, file=sys.stderr)
            raise
        _send_back(read)
        return status


def _send_back(mirrors: "Iterable[ReadMirror]") -> None:
    from transformer_jax.runs.training_mirror import UploadFailed
    from transformer_jax.runtime.object_stores import StoreError

    for mirror in mirrors:
        try:
            mirror.send_back()
        except StoreError as error:
            problem = f"{error}. The results are in {mirror.path}, and the next command on this run uploads them"
            raise UploadFailed(problem) from None


def _texts(value: Any) -> list[str]:
    return [] if value is None else [value] if type(value) is str else list(value)


def _replaced(value: Any, local: Callable[[str], str]) -> Any:
    if value is None:
        return None
    return local(value) if type(value) is str else [local(text) for text in value]

"""Commands on runs in object stores: each address among the flags is replaced by a local folder."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import is_address
from transformer_jax.runtime.open_copies import with_addresses

if TYPE_CHECKING:
    from transformer_jax.runtime.run_copies import StoredFolder

_RUN = re.compile(r"(?P<address>[a-z0-9]+://[^:]+?)/?(?P<rest>/[^/:]+\.(?:txt|json)|:[^:/]*)?")


def run_on_copies(name: str, run: Callable[[flags.Values], int], values: flags.Values) -> int:
    """Runs a command on local folders and uploads its files; its ConfigError and DataError name addresses."""
    try:
        return _run(name, run, values)
    except ConfigError as error:
        raise ConfigError(with_addresses(str(error))) from None
    except DataError as error:
        raise DataError(with_addresses(str(error))) from None


def _run(name: str, run: Callable[[flags.Values], int], values: flags.Values) -> int:
    # Loads the libraries of object stores: only commands with an address do.
    from transformer_jax.runtime.run_copies import copy_to_read, folder_to_train

    is_distributed = "distributed" in values and values.distributed
    copies: list[StoredFolder] = []
    with ExitStack() as held:

        def local(flag: str, text: str) -> str:
            if not is_address(text):
                return text
            found = _RUN.fullmatch(text)
            if found is None:
                raise ConfigError(f"{text}: not the address of a run; write s3://BUCKET/FOLDER[:CHECKPOINT]")
            if is_distributed and not text.startswith(("s3://", "gs://")):
                raise ConfigError(f"--distributed: {text}: Orbax reads and writes folders, s3:// and gs:// only")
            if name == "train" and flag == "workdir":
                return str(held.enter_context(folder_to_train(text, is_distributed=is_distributed)))
            copies.append(copy_to_read(found["address"], is_direct=is_distributed))
            return f"{copies[-1].path}{found['rest'] or ''}"

        for flag in flags.RUN_FLAGS:
            if flag in values:
                replaced = [local(flag, text) for text in flags.texts_of(values[flag].value)]
                values[flag].value = replaced[0] if type(values[flag].value) is str else replaced or values[flag].value
        try:
            return run(values)
        finally:
            for copy in copies:
                copy.upload_at_end()

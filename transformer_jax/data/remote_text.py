"""Text that lies in an object store, read from a local copy."""

from functools import cache
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.config.addresses import is_address, is_unasked, without_mark
from transformer_jax.config.secrets import masked
from transformer_jax.runtime.mirrored_files import MirroredFiles
from transformer_jax.runtime.object_stores import Store, mirror_folder, name_mirror, require_no_password


def local_folder(place: str, key: str) -> Path:
    """The folder that ``key`` names; of an address a copy, made once a process, of the files in it, not of those below.

    Raises DataError where nothing is there, or nobody but the run directory asked for it.
    """
    return _copied(_asked(place, key), key) if is_address(place) else Path(place).expanduser()


def local_file(place: str, key: str) -> Path:
    """The file that ``key`` names; of an address a copy, made once a process. Raises DataError as ``local_folder`` does."""
    if not is_address(place):
        return Path(place).expanduser()
    require_no_password(place)
    folder, _, name = _asked(place, key).rpartition("/")
    return _copied(folder, key, name) / name


@cache
def _copied(address: str, key: str, only: str = "") -> Path:
    store = Store(address)
    files = MirroredFiles(store, mirror_folder(store.address, "data"))
    with files.locked():
        if only:
            named = store.find(only)
            found = {} if named is None else {only: named}
        else:
            found = store.listing(is_deep=False)
        if not found:
            raise DataError(f"{key}: {address}: no {only or 'files'} there")
        files.forget(set(files.versions()) - set(found) if not only else ())
        files.update(found)
    name_mirror(files.path, store.address)
    return files.path


def _asked(place: str, key: str) -> str:
    if is_unasked(place):
        address = masked(without_mark(place))
        raise DataError(
            f"{key}: the run names {address}, and only what you name yourself is downloaded: --config.{key}={address}"
        )
    return place

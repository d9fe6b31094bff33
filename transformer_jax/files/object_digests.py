"""Digests of the objects of a checkpoint in a bucket, which the store computed."""

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transformer_jax.files.json_text import parse_json

if TYPE_CHECKING:
    from transformer_jax.files.store_path import StorePath

OBJECTS = "object_digests.json"
# The names that s3fs and gcsfs give these digests; S3's depends on upload and encryption too.
ETAG = "ETag"
Compared = dict[str, dict[str, bool]]
_DIGESTS = ("size", ETAG, "crc32c", "md5Hash")


def write_object_digests(checkpoint: "StorePath") -> None:
    """Write ``OBJECTS`` into a checkpoint: sizes and checksums of its objects, as listed."""
    content = {"address": str(checkpoint), "objects": _digests(checkpoint)}
    (checkpoint / OBJECTS).write_text(json.dumps(content))


def changed_objects(checkpoint: "StorePath", prefixes: Iterable[str]) -> list[str]:
    """Return objects of a checkpoint that were removed or changed since ``OBJECTS``, if any."""
    return changed(compared_objects(checkpoint, prefixes))


def changed(compared: Compared) -> list[str]:
    """Return the objects that differ."""
    return sorted(name for name, same in compared.items() if not all(same.values()))


def has_checksums(compared: Compared) -> bool:
    """Return whether a checksum of every object was compared."""
    return bool(compared) and all(same.keys() - {"size"} for same in compared.values())


def compared_objects(checkpoint: "StorePath", prefixes: Iterable[str]) -> Compared:
    """Return, by object, whether size and comparable checksums are as recorded."""
    current = _digests(checkpoint)
    if OBJECTS not in current:
        return {}
    try:
        content = (checkpoint / OBJECTS).read_bytes()
        described = parse_json(content)
        recorded = {name: dict(digests) for name, digests in described["objects"].items()}
        # ETags depend on encryption. Of a copy only ETags that are an MD5 in both buckets compare.
        is_here = described["address"] == str(checkpoint)
        # IN_PROGRESS is an empty object.
        empty = next((digests for digests in recorded.values() if digests.get("size") == 0), {})
        has_md5 = _is_md5(empty, b"") and _is_md5(current[OBJECTS], content)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {OBJECTS: {"size": False}}

    def compared(name: str) -> dict[str, bool]:
        before, now = recorded[name], current.get(name, {})
        keys = before.keys() & now.keys()
        # The ETag of an upload in parts has a hyphen.
        if ETAG in keys and not is_here and (not has_md5 or "-" in f"{before[ETAG]}{now[ETAG]}"):
            keys.remove(ETAG)
        return {"size": "size" in keys} | {key: before[key] == now[key] for key in keys}

    wanted = tuple(f"{prefix}/" for prefix in prefixes)
    return {name: compared(name) for name in recorded if f"{name}/".startswith(wanted)}


def _is_md5(digests: dict[str, Any], content: bytes) -> bool:
    return str(digests.get(ETAG)).strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()


def _digests(checkpoint: "StorePath") -> dict[str, dict[str, Any]]:
    objects = checkpoint.objects().items()
    return {name: {key: info[key] for key in _DIGESTS if key in info} for name, info in objects}

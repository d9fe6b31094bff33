"""The version of this package, and the commit and the wheel that it is from."""

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from transformer_jax.files.json_text import parse_json

PACKAGE_FOLDER = Path(__file__).parents[1]


@cache
def package_origin() -> dict[str, str]:
    """Return the version, the commit (``5f3c...-dirty``), and the digest of a wheel."""
    from transformer_jax import __version__

    if (PACKAGE_FOLDER.parent / "pyproject.toml").is_file():
        return {"version": __version__, "git_commit": _commit_of_checkout()}
    written, source = PACKAGE_FOLDER / "commit.txt", _source_of_installation()
    built = written.read_text(encoding="utf-8").strip() if written.is_file() else ""
    archive, repository = source.get("archive_info", {}), source.get("vcs_info", {})
    origin = {"version": __version__, "git_commit": built or repository.get("commit_id", "")}
    # Of several digests pip writes the same as ``hash``.
    digest = next((f"{name}={value}" for name, value in archive.get("hashes", {}).items()), archive.get("hash", ""))
    return origin | ({"wheel": digest} if digest else {})


def _source_of_installation() -> dict[str, dict]:
    """Read ``direct_url.json`` (PEP 610), which pip writes for a wheel or a repository."""
    try:
        installed = metadata.distribution("transformer_jax")
        if Path(str(installed.locate_file("transformer_jax"))).resolve() != PACKAGE_FOLDER.resolve():
            return {}
        return dict(parse_json(installed.read_text("direct_url.json") or "{}"))
    except (metadata.PackageNotFoundError, ValueError, TypeError):
        return {}


def _commit_of_checkout() -> str:
    """Return the commit of this source tree, with ``-dirty`` if changed, or "" without git."""
    command = ["git", "-C", str(PACKAGE_FOLDER), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

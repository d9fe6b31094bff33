"""The distribution: packages of ``transformer_jax``, ``configs/`` as ``transformer_jax.recipes``,
pages of ``docs/`` as ``transformer_jax/pages``, and the commit that was built in
``transformer_jax/commit.txt``.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
COMMIT = Path("transformer_jax") / "commit.txt"


def commit() -> str:
    """Return the commit of this checkout or source distribution, with ``-dirty`` where it has
    changes; empty if unknown.
    """
    if not (ROOT / ".git").exists():
        return (ROOT / COMMIT).read_text() if (ROOT / COMMIT).is_file() else ""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class Build(build_py):
    """Adds the pages and the commit."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib)
        for page in sorted((ROOT / "docs").glob("*.md")):
            (target / "transformer_jax" / "pages").mkdir(exist_ok=True)
            shutil.copy(page, target / "transformer_jax" / "pages")
        (target / COMMIT).write_text(commit())


class SourceDistribution(sdist):
    """Adds the commit; ``MANIFEST.in`` adds the pages."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / COMMIT).write_text(commit())


urls = {}
if repository := os.environ.get("GITHUB_REPOSITORY"):
    # Of the workflow that releases: the address of the repository, and of the site that it
    # publishes.
    owner, _, name = repository.partition("/")
    urls = {"Source": f"https://github.com/{repository}", "Documentation": f"https://{owner}.github.io/{name}/"}
setup(
    packages=[*find_packages(include=["transformer_jax", "transformer_jax.*"]), "transformer_jax.recipes"],
    package_dir={"transformer_jax.recipes": "configs"},
    cmdclass={"build_py": Build, "sdist": SourceDistribution},
    project_urls=urls,
)

"""How much a reader reads: files and lines of the two paths of docs/architecture.md.

python tests/reading_path.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"


def reading_paths() -> dict[str, list[Path]]:
    """The files of each path, by the heading above its table."""
    paths: dict[str, list[Path]] = {}
    heading = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif link := re.match(r"\| \[`.*?`\]\((.*?)\) \|", line):
            paths.setdefault(heading, []).append((DOCUMENT.parent / link.group(1)).resolve())
    return paths


def count_lines(files: list[Path]) -> int:
    """All lines, docstrings and blank ones too."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


if __name__ == "__main__":
    for heading, files in reading_paths().items():
        print(f"{heading}: {len(files)} files, {count_lines(files):,} lines")

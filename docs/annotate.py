"""Brings the annotated papers of ``docs/learn`` up to date with the code, and writes them as
notebooks.

    python docs/annotate.py

A page ``docs/learn/annotated_NAME.md`` names a function, class or method and its file, and shows
the source in a block of ``py`` below, which this script replaces by the source of today. Fenced
blocks of ``python`` are examples that run one after another; a block of ``text`` right after one is
what it prints.
"""

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent
CODE = re.compile(r"(^`(\S+)` in \[`(\S+)`\]\(\S+\):\n\n```py\n)(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n*^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A piece of code that runs, and what it prints."""

    code: str
    printed: str


def source_of(file: str, name: str, root: Path = DOCS.parent) -> str:
    """Return the source of ``name`` (``function``, ``Class`` or ``Class.method``) in a file.

    Raises LookupError when it is not there.
    """
    text = (root / file).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        inner = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == part]
        if not inner:
            raise LookupError(f"{file} has no {name}; a page of docs/learn shows it")
        (node,) = inner
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.split("\n")[first - 1 : node.end_lineno]))


def page(text: str) -> str:
    """Return a page with the current source of the code that it names."""
    return CODE.sub(lambda match: f"{match[1]}{source_of(match[3], match[2])}\n```", text)


def examples(text: str) -> list[Example]:
    """Return the pieces of code of a page that run, in their order."""
    return [Example(code, printed or "") for code, printed in EXAMPLE.findall(text)]


def notebook(text: str) -> dict[str, Any]:
    """Return a page as a notebook: examples are its code cells, everything else is Markdown."""
    cells = []
    for number, (kind, content, printed) in enumerate(_parts(text)):
        lines = content.strip("\n").splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
        if kind == "code":
            stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
            cell |= {"execution_count": None, "outputs": [stream] if printed else []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _parts(text: str) -> Iterator[tuple[str, str, str]]:
    end = 0
    for match in EXAMPLE.finditer(text):
        if text[end : match.start()].strip():
            yield "markdown", text[end : match.start()], ""
        yield "code", match[1], match[2] or ""
        end = match.end()
    if text[end:].strip():
        yield "markdown", text[end:], ""


def generated() -> dict[Path, str]:
    """Return the content of every page and notebook, by file."""
    files = {}
    for file in sorted((DOCS / "learn").glob("annotated_*.md")):
        files[file] = page(file.read_text(encoding="utf-8"))
        content = json.dumps(notebook(files[file]), indent=1, ensure_ascii=False)
        files[file.with_suffix(".ipynb")] = content + "\n"
    return files


def main() -> int:
    """Write them."""
    for file, content in generated().items():
        file.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the annotated papers, and a page on counting words, from their texts and from the library's own code.

    python docs/annotate.py

Each text in ``docs/annotated`` becomes ``docs/annotated_NAME.md`` and
``docs/annotated_NAME.ipynb``. A line of a text ``@code layers/masks.py causal_mask`` stands for the
source of that function, class or method now; a file ``docs/...`` is a script of these pages. Fenced
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
PACKAGE = "transformer_jax"
CODE = re.compile(r"^@code (\S+) (\S+)$", re.MULTILINE)
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n*^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
# Code of the library is shown, not run.
SHOWN = "```py"


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
            raise LookupError(f"{file} has no {name}; a text in docs/annotated shows it")
        (node,) = inner
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.split("\n")[first - 1 : node.end_lineno]))


def page(text: str) -> str:
    """Return a text with the code that it names."""

    def shown(match: re.Match[str]) -> str:
        path, name = match.groups()
        file = path if path.startswith("docs/") else f"{PACKAGE}/{path}"
        caption = f"`{name}` in [`{file}`](../{file}):"
        return f"{caption}\n\n{SHOWN}\n{source_of(file, name)}\n```"

    return CODE.sub(shown, text)


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
    for source in sorted((DOCS / "annotated").glob("*.md")):
        text = page(source.read_text(encoding="utf-8"))
        files[DOCS / f"annotated_{source.name}"] = text
        content = json.dumps(notebook(text), indent=1, ensure_ascii=False)
        files[DOCS / f"annotated_{source.stem}.ipynb"] = content + "\n"
    return files


def main() -> int:
    """Write them."""
    for file, content in generated().items():
        file.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

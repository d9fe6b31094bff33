"""Everything that serves every task knows none of them: the loop, records, checkpoints, sweeps, reports, preflight."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from test_architecture import FILES, ROOT, imported, module_name, parse

# `reports` also compares translations, sentence by sentence.
OF_EVERY_TASK = (
    "runs",
    "training",
    "checkpoints",
    "tasks.task",
    "tasks.trained_run",
    "tasks.run_tokenizers",
    "tools.sweeps",
    "tools.preflight",
    "tools.launching",
    "tools.reports.run_",
)
NAMES_OF_TASKS = re.compile(r"(?<![a-z])(translation|language_model|bleu|chrf|bits_per_byte)", re.IGNORECASE)
# The counters of version 0.1 called the best value so.
KNOWN = {"runs.run": {"best_bleu"}}


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every import, definition, name, attribute, argument and string of a module with its line, docstrings apart."""
    yield from imported(tree)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or "", node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value, node.lineno


def names_of_tasks(module: str, tree: ast.AST) -> list[str]:
    """What a module that serves every task knows of one."""
    if not module.startswith(OF_EVERY_TASK):
        return []
    known = KNOWN.get(module, set())
    return [f"line {line}: {name}" for name, line in named(tree) if NAMES_OF_TASKS.search(name) and name not in known]


def test_the_loop_records_sweeps_reports_and_preflight_know_no_task():
    found = [
        f"{Path(file).relative_to(ROOT)}: {name}"
        for file in FILES
        for name in names_of_tasks(module_name(file), parse(file))
    ]
    assert found == []

"""Find measured figures in README, docs and recipes that no experiment has.

python experiments/check_figures.py

A figure is a number with decimals in a sentence or table row that names a unit of measurement, or a
whole number with a unit that only measurements have. It must be, or round, a number in the README
or results/ of an experiment that its sentence links to, else its paragraph, else its section (in a
recipe, the file); a link to a heading counts only the section below it. Prints file, line, figure
and sentence of all others, and exits with status 1 if there are any.

A wrong number of four digits passes by chance in 2 of 100 cases, of three in 22, of two in 55.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# Programs write these pages, and tests compare them with their sources.
GENERATED = re.compile(r"settings\.md|kit\.md|conform\.md|annotated_\w+\.md")
# Figures that no experiment can have, by the name of the file, with the reason.
ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    "transformer_base.py": {"results of the paper": ("27.3", "28.4")},
    "transformer.md": {"results of the paper": ("27.3", "28.4")},
    "benchmarks.md": {"results of other projects": ("33.73", "30.74", "25.5", "26.1", "23.3", "28.12")},
    "course.md": {"an entropy, drawn by docs/theory_figures.py": ("1.25",)},
    "data.md": {"a threshold in the code": ("0.98",)},
    "duel.md": {"levels of tests, and an example of a verdict": ("0.05", "0.80", "0.30")},
    "getting_started.md": {"sizes of packages, in uv.lock": ("1.6", "4.2", "2.5", "2.9", "1.3", "6.6")},
    "language_models.md": {"a threshold in the code": ("0.06",)},
    "low_bleu.md": {"thresholds of advice": ("0.9", "0.98")},
    "paper_to_code.md": {"a section of the paper": ("3.4",)},
}

UNIT = re.compile(
    r"(?<![\w-])(?:BLEU|Moses|chrF|TER|F1|perplexit(?:y|ies)|bits per byte|nats|loss(?:es)?|accuracy|"
    r"error rates?|CPU|m?s|seconds?|min|minutes?|hours?|[KMG]iB|[kMG]B|%|times|ratios?|MFU|"
    r"(?:tokens|sentences|words)(?:/s| a second)|[GT]FLOPs?)(?!\w)"
)
ONLY_MEASURED = re.compile(
    r"\s?(?:CPU (?:s|seconds|min|minutes|hours)|BLEU|F1|% MFU|(?:tokens|sentences|words)/s)(?!\w)"
)
NUMBER = re.compile(r"(?<![\w.,/:#-])(?:\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w/]|\.\d)")
# Sections, versions and settings.
NOT_MEASURED = re.compile(
    r"(?:sections?|tables?|[Vv]ersions?|before|Python|transformers|tokamax|"
    r"dropout|penalty|probability) $"
)
SIZE = re.compile(r"\s(?:million|billion|M)(?!\w)")
ROW = re.compile(r"(?<=\n)\S.*")
SENTENCE = re.compile(r"(?s)\S.*?(?:[.?](?=\s)|\Z)")
# Code, addresses and pictures.
UNREAD = re.compile(r"(?ms:^(?:```|~~~).*?^(?:```|~~~))|(?m:^ {4,}\S.*$|^!\[.*$)|`[^`]*`|\]\([^)]*\)")


class Figure(NamedTuple):
    line: int
    text: str
    sentence: str
    experiments: frozenset[tuple[str, str]]
    in_minutes: bool


def figures(text: str) -> Iterator[Figure]:
    """Yield the figures of a Markdown text, with the experiments that are linked nearest to
    them."""
    plain = without_code(text)
    for part in re.finditer(r"(?s).+?(?=\n#|\Z)", plain):
        before = ""
        for block in re.finditer(r"(?s)\S.*?(?=\n\s*\n|\Z)", part[0]):
            start = part.start() + block.start()
            titles = block[0].partition("\n")[0] if block[0].startswith("|") else ""
            has_unit = bool(titles and UNIT.search(titles + before))
            before = block[0]
            for sentence in re.finditer(ROW if titles else SENTENCE, block[0]):
                at = start + sentence.start()
                original = text[at : at + len(sentence[0])]
                near = (original, text[start : start + len(block[0])], text[part.start() : part.end()])
                links = next(filter(None, map(linked, near)), frozenset())
                in_minutes = bool(re.search(r"\bmin", titles + sentence[0]))
                for number in numbers(sentence[0], titles, has_unit):
                    line = text.count("\n", 0, at + number.start()) + 1
                    yield Figure(line, number[0], " ".join(original.split()), links, in_minutes)


def without_code(text: str) -> str:
    """Blank code, addresses and pictures, so that offsets stay."""
    return UNREAD.sub(lambda match: re.sub(r"[^\n]", "~", match[0]), text)


def linked(text: str) -> frozenset[tuple[str, str]]:
    """Return the experiments that a text names, with the anchors of its links."""
    return frozenset(re.findall(r"experiments/(\w+)(?:/README[.]md#([\w-]+))?", text))


def numbers(sentence: str, titles: str, has_unit: bool) -> Iterator[re.Match[str]]:
    """Yield the figures of a sentence, or of a row below ``titles``."""
    has_unit = has_unit or bool(UNIT.search(sentence))
    columns = titles.split("|")
    for number in NUMBER.finditer(sentence):
        is_measured = ONLY_MEASURED.match(sentence, number.end()) or (
            titles and ONLY_MEASURED.match(columns[sentence.count("|", 0, number.start())])
        )
        is_other = NOT_MEASURED.search(sentence[: number.start()]) or SIZE.match(sentence, number.end())
        if (is_measured or (number[1] and has_unit)) and not is_other:
            yield number


def value(number: str) -> float:
    return float(number.replace(",", ""))


@cache
def results(experiment: str, anchor: str) -> tuple[float, ...]:
    """Return the numbers in the README of an experiment, or below a heading, and in its results."""
    folder = ROOT / "experiments" / experiment
    readme = folder / "README.md"
    texts = [below(anchor, readme.read_text(encoding="utf-8"))] if readme.is_file() else []
    tables = (file for kind in ("md", "csv", "jsonl") for file in folder.glob(f"results/*.{kind}"))
    text = without_code("\n".join([*texts, *(file.read_text(encoding="utf-8") for file in tables)]))
    return tuple(map(value, re.findall(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?", text)))


def below(anchor: str, text: str) -> str:
    """Return the text below the heading with this anchor; all of it without an anchor."""
    for heading in re.finditer(r"(?m)^(#+) (.*)$", text) if anchor else ():
        if re.sub(r"[^\w\- ]", "", heading[2].lower()).strip().replace(" ", "-") == anchor:
            return re.split(rf"(?m)^#{{1,{len(heading[1])}}} ", text[heading.end() :])[0]
    return text


def has(experiment: str, anchor: str, figure: str, in_minutes: bool = False) -> bool:
    """Return whether a result, or one in seconds, is the figure or rounds to it."""
    number, half = value(figure), 0.5 * 10.0 ** -len(figure.partition(".")[2]) * (1 + 1e-9)
    units = (1, 60) if in_minutes else (1,)
    return any(abs(result / unit - number) <= half for result in results(experiment, anchor) for unit in units)


def recipe_text(file: Path) -> str:
    """Return the docstrings and ``MEASURED`` of a recipe, at their lines."""
    source = file.read_text(encoding="utf-8")
    lines = [""] * (source.count("\n") + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef):
            indent = "    " * isinstance(node, ast.FunctionDef)
            docstring = (ast.get_docstring(node, clean=False) or "").split("\n")
            for number, line in enumerate(docstring, node.body[0].lineno - 1):
                lines[number] = line.removeprefix(indent)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MEASURED":
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant):
                    lines[each.lineno - 1] += f" {each.value}"
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the texts to check, by path."""
    docs, recipes = sorted((ROOT / "docs").rglob("*.md")), sorted((ROOT / "configs").glob("*.py"))
    paths = {file.relative_to(ROOT).as_posix(): file for file in (ROOT / "README.md", *docs, *recipes)}
    return {
        path: recipe_text(file) if file.suffix == ".py" else file.read_text(encoding="utf-8")
        for path, file in paths.items()
        if not GENERATED.fullmatch(paths[path].name)
    }


def orphans(texts: dict[str, str]) -> list[str]:
    """Return a line for each figure that no linked experiment has."""
    lines = []
    for path, text in texts.items():
        allowed = {figure for listed in ALLOWED.get(Path(path).name, {}).values() for figure in listed}
        for figure in figures(text):
            experiments = figure.experiments or (linked(text) if path.endswith(".py") else ())
            is_result = any(has(*each, figure.text, figure.in_minutes) for each in experiments)
            if figure.text not in allowed and not is_result:
                lines.append(f"{path}:{figure.line}: {figure.text}: {figure.sentence}")
    return lines


if __name__ == "__main__":
    unsourced = orphans(pages())
    print(*unsourced, sep="\n")
    sys.exit(bool(unsourced))

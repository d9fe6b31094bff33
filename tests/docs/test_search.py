"""Readers' questions in questions.toml: the search of the site answers each with one of its first
three hits."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUESTIONS = tomllib.loads((HERE / "questions.toml").read_text(encoding="utf-8"))
# With words that the pages that answer do not have.
HURRIED = {
    "max cpu threads": ["docs/training.md#limit-the-cores-and-threads"],
    "pip create wheel": ["docs/getting_started.md#build-a-wheel"],
    "cuda oom": ["docs/troubleshooting.md#what-if-the-gpu-runs-out-of-memory", "docs/choosing_a_size.md#by-memory"],
    "reuse beam_search standalone": ["docs/python.md#take-the-beam-search-the-loss-or-the-model-into-your-script"],
    "plot attention weights": ["docs/evaluation.md#see-the-attention", "docs/python.md#attention-as-arrays"],
    "finetune on my domain": ["docs/training.md#fine-tune", "docs/troubleshooting.md#how-do-i-fine-tune-a-model"],
}
STOP_WORDS = " a am an by do does for from how i in into is it my of on out own the this to what where why "


def words_of(text: str) -> set[str]:
    """The first letters of its words, which forms of a word share."""
    return {
        word[:4] for word in re.findall(r"\w+", text.lower()) if f" {word} " not in STOP_WORDS and not word.isdigit()
    }


def headings(page: Path) -> dict[str, str]:
    """Headings by anchor."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-"): line for line in lines}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_page_has_the_words_of_a_question_and_a_heading_has_one_of_them(question):
    for answer in QUESTIONS[question]:
        file, _, anchor = answer.partition("#")
        found = headings(ROOT / file)
        assert not anchor or anchor in found, answer
        assert words_of(question) <= words_of((ROOT / file).read_text(encoding="utf-8")), answer
    file, _, anchor = QUESTIONS[question][0].partition("#")
    found = headings(ROOT / file)
    assert words_of(question) & words_of(found[anchor] if anchor else next(iter(found.values())))


NEEDED = ("sphinx", "myst_nb", "furo", "latex2mathml")


@pytest.mark.slow
@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason="pip install '.[docs]'")
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_search_of_the_site_answers_with_one_of_its_first_three_hits(tmp_path):
    build = [sys.executable, "-m", "sphinx", "--quiet", "-c", "docs", "-d", str(tmp_path / "trees"), "."]
    subprocess.run([*build, str(tmp_path / "site")], cwd=ROOT, check=True)
    questions = QUESTIONS | HURRIED
    asked = "\n".join(questions)
    program = ["node", str(HERE / "site_search.js"), str(tmp_path / "site")]
    found = subprocess.run(program, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    hits = dict(zip(questions, map(json.loads, found), strict=True))
    answered = {question: {answer.replace(".md", "") for answer in questions[question]} for question in questions}
    assert {question: hits[question] for question in questions if not answered[question] & set(hits[question])} == {}

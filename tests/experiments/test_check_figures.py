"""Every measured figure of README, docs and recipes has an experiment."""

import pytest

TABLE = "| model | BLEU |\n|---|---:|\n| [tiny](experiments/multi30k/README.md) | {} |\n"
PROSE = "It takes 1,682 CPU s and reaches BLEU {} ([experiment](experiments/multi30k/README.md)).\n"


@pytest.fixture
def check_figures(script):
    return script("check_figures", ".")


def test_every_figure_has_an_experiment(check_figures):
    assert check_figures.orphans(check_figures.pages()) == []


@pytest.mark.parametrize("text", [TABLE, PROSE])
@pytest.mark.parametrize(
    ("figure", "is_result"), [("39.82", True), ("39.8", True), ("39.83", False), ("1,039.82", False)]
)
def test_a_figure_is_a_result_or_rounds_one(check_figures, text, figure, is_result):
    orphans = check_figures.orphans({"page.md": text.format(figure)})
    assert [line.split(": ")[1] for line in orphans] == ([] if is_result else [figure])


def test_a_result_in_seconds_is_a_figure_in_minutes(check_figures):
    text = "It takes 28 CPU {} ([experiment](experiments/multi30k/README.md#in-half-an-hour-with-the-recipe-text))."
    assert check_figures.orphans({"page.md": text.format("minutes")}) == []
    assert len(check_figures.orphans({"page.md": text.format("seconds")})) == 1


def test_a_link_to_a_section_counts_no_other(check_figures):
    text = "BLEU 39.82 ([experiment](experiments/multi30k/README.md#{}))."
    assert check_figures.orphans({"page.md": text.format("the-published-recipe-under-kill--9")}) == []
    assert len(check_figures.orphans({"page.md": text.format("notes")})) == 1


def test_the_nearest_link_is_searched_and_a_figure_without_link_is_an_orphan(check_figures):
    far = "# Title\n\nSee [it](experiments/scaling/README.md).\n\n" + PROSE.format("39.82")
    assert check_figures.orphans({"page.md": far}) == []
    assert len(check_figures.orphans({"page.md": far.replace("multi30k", "scaling")})) >= 1
    elsewhere = "See [it](experiments/multi30k/README.md).\n\n# Title\n\nIt reaches BLEU 39.82.\n"
    assert [line.split(": ")[0] for line in check_figures.orphans({"page.md": elsewhere})] == ["page.md:5"]


def test_settings_code_versions_and_numbers_without_unit_are_no_figures(check_figures):
    text = "`BLEU 1.23` of Python 3.45 with dropout 0.67 and 8.9 million parameters.\n\n    BLEU 2.34\n\nAbout 5.67.\n"
    assert list(check_figures.figures(text)) == []


def test_recipes_are_read_at_their_lines(check_figures, tmp_path):
    recipe = tmp_path / "mine.py"
    recipe.write_text('"""Mine.\n\nBLEU 1.23.\n"""\n\nMEASURED = {\n    "": ("a CPU", "BLEU 4.56"),\n}\nRATE = 0.1\n')
    found = list(check_figures.figures(check_figures.recipe_text(recipe)))
    assert [(figure.line, figure.text) for figure in found] == [(3, "1.23"), (7, "4.56")]

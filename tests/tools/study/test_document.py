import base64
import csv
import io
import re

from transformer_jax.config import from_dict
from transformer_jax.tools.study import document
from transformer_jax.tools.study.comparability import differing_settings
from transformer_jax.tools.study.document import Cell, Picture, Section, Table, to_csv

NASTY = '<script>alert("1")</script> a|b & _c_ `d` [e](f) $g$\nh'
TABLE = Table(("run", "BLEU"), ((NASTY, "36.10"), ("b_1", "")))
PICTURE = Picture("curves.png", b"\x89PNG", NASTY)
DOCUMENT = document.Document(NASTY, (Section(NASTY, (NASTY, TABLE, PICTURE)),))


def test_html_needs_nothing_else_and_escapes_everything():
    page = document.to_html(DOCUMENT)
    assert not any(f"<{tag}" in page for tag in ("script", "link", "iframe", "a "))
    assert "http" not in page
    assert (page.count("<table"), page.count("<img"), page.count("<td")) == (1, 1, 4)
    assert f'src="data:image/png;base64,{base64.b64encode(PICTURE.png).decode()}"' in page


def test_markdown_keeps_rows_and_meaning():
    lines = document.to_markdown(DOCUMENT).split("\n\n")
    assert lines[0].startswith(r"# \<script\>alert(")
    _, marks, nasty, last = lines[3].split("\n")
    assert (marks, last) == ("| --- | ---: |", "| b_1 |  |")
    assert nasty.replace(r"\|", "").count("|") == 3
    assert lines[4].strip().endswith("](curves.png)")
    assert document.escaped(r"a\b _c_ d_e") == r"a\\b \_c\_ d_e"


def test_latex_has_no_special_character_of_the_text():
    content = document.to_latex(
        Table(("run", "BLEU"), ((NASTY, "36.10 ± 0.1"), ("50 % {x}^~\\", "-0.5 [-1.0, 2.0]"))), "a_b"
    )
    body = content.partition(r"\midrule")[2].partition(r"\bottomrule")[0].splitlines()[1:]
    assert len(body) == 2 and all(line.endswith(r" \\") for line in body)
    bare = [re.sub(r"\\[a-zA-Z]+\{\}|\\[{}$&#%_]|\$[<>\\pm-]+\$", "", line[:-3]) for line in body]
    assert [line.count("&") for line in bare] == [1, 1]
    assert not any(character in line for line in bare for character in r"\{}$#%_^~<>|±")
    assert r"$-$0.5 [$-$1.0, 2.0]" in body[1] and r"\caption{a\_b}" in content


def test_only_settings_that_differ_and_none_where_a_model_has_no_such_thing():
    transformer = from_dict({"model": {"dropout": 0.3}, "data": {"source": "copy"}})
    rnn = from_dict({"model": {"kind": "rnn", "dropout": 0.3}})
    settings = differing_settings([transformer, rnn, rnn])
    assert settings["model.kind"] == ["transformer", "rnn", "rnn"]
    assert settings["model.cell"][0] == "" != settings["model.cell"][1]
    assert settings["model.num_heads"][1:] == ["", ""] != settings["model.num_heads"][:1]
    assert settings["data.source"] == ["copy", "grammar", "grammar"]
    assert not {"model.dropout", "seed", "data.directory"} & set(settings)
    assert differing_settings([rnn, rnn]) == differing_settings([rnn]) == {}
    empty = differing_settings([from_dict({}), from_dict({"data": {"source": "tfds", "name": "wmt"}})])
    assert empty["data.name"] == ["''", "wmt"]


def test_csv_reads_back_and_has_no_formula():
    formulas = ["=1+1", "+A1", "-1+cmd", "@SUM(A1)", "\t=1"]
    rows = [[NASTY, 36.1357, None], ["b", -2, "x,y"], ["-1", "-inf", "+2e-3"], *([text, 0, 0] for text in formulas)]
    read = list(csv.reader(io.StringIO(to_csv(Table(("a", "b", "c"), tuple(rows))), newline="")))
    assert read[:3] == [["a", "b", "c"], [NASTY, "36.1357", ""], ["b", "-2", "x,y"]]
    assert read[3] == ["-1", "-inf", "+2e-3"]
    assert [row[0] for row in read[4:]] == [f"'{text}" for text in formulas]


def test_tables_side_by_side_have_values_in_full_where_readers_see_texts():
    scores = Table(("run", Cell.of_interval("BLEU")), (("a", Cell.interval(1 / 3, 0.0, 0.5)), ("b", None)))
    costs = Table(("run", Cell("time", "seconds")), (("a", Cell("0:02", 1.75)), ("b", None)))
    assert scores.lines == [["run", "BLEU"], ["a", "0.33 [0.00, 0.50]"], ["b", ""]]
    head, first, second = csv.reader(to_csv(scores, costs).splitlines())
    assert head == ["run", "BLEU value", "BLEU lower", "BLEU upper", "seconds"]
    assert first == ["a", str(1 / 3), "0.0", "0.5", "1.75"]
    assert len(second) == len(head) and set(second[1:]) == {""}

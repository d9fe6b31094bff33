"""The same report in each format: nothing is lost, and nothing in a text is taken for markup."""

import base64
import csv
import io
from html.parser import HTMLParser

import pytest

from transformer_jax.config import from_dict
from transformer_jax.tools.reports.document import (
    Document,
    Picture,
    Section,
    Table,
    escaped,
    to_csv,
    to_html,
    to_markdown,
    to_text,
)
from transformer_jax.tools.reports.run_report import differing_settings, settings_table

NASTY = '<script>alert("1")</script> a|b & _c_ `d` [e](f) $g$\nh'
TABLE = Table(("run", "BLEU"), ((NASTY, "36.10"), ("b_1", "")))
PICTURE = Picture("curves.png", b"\x89PNG", NASTY)
DOCUMENT = Document(NASTY, (Section(NASTY, (NASTY, TABLE, PICTURE)),))


class Reader(HTMLParser):
    """Collects what a browser would show and load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.cells: list[str] = []
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)
        self._is_in_cell = tag in ("td", "th") or (tag == "wbr" and self._is_in_cell)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.cells[-1] += data


def test_html_needs_nothing_else_and_escapes_everything():
    page = to_html(DOCUMENT)
    reader = Reader()
    reader.feed(page)
    assert not {"script", "link", "iframe", "a"} & set(reader.tags)
    assert "http" not in page
    assert reader.tags.count("table") == reader.tags.count("img") == 1
    assert reader.cells == ["run", "BLEU", NASTY, "36.10", "b_1", ""]
    assert reader.attributes["alt"] == NASTY
    assert reader.attributes["src"] == f"data:image/png;base64,{base64.b64encode(PICTURE.png).decode()}"


def test_markdown_keeps_rows_and_meaning():
    lines = to_markdown(DOCUMENT).split("\n\n")
    text = r"\<script\>alert("
    assert lines[0].startswith(f"# {text}")
    rows = lines[3].split("\n")
    assert len(rows) == 4
    assert rows[1] == "| --- | ---: |"
    assert rows[2].replace(r"\|", "").count("|") == 3
    assert rows[3] == "| b_1 |  |"
    assert lines[4].strip().endswith("](curves.png)")
    assert escaped(r"a\b _c_ d_e") == r"a\\b \_c\_ d_e"


def test_text_is_aligned():
    table = Table(("run", "BLEU", "file"), (("a", "36.10", "x"), ("long", "4.00", "")), of_text=frozenset({0, 2}))
    assert to_text(table) == "run    BLEU  file\na     36.10  x\nlong   4.00"
    assert to_text(Table(("run",), ())) == "run"


def test_csv_reads_back():
    rows = [[NASTY, 36.1357, None], ["b", 2, "x,y"]]
    read = list(csv.reader(io.StringIO(to_csv(["a", "b", "c"], rows), newline="")))
    assert read == [["a", "b", "c"], [NASTY, "36.1357", ""], ["b", "2", "x,y"]]


def test_only_settings_that_differ_and_none_where_a_model_has_no_such_thing():
    transformer = from_dict({"model": {"dropout": 0.3}, "data": {"source": "copy"}})
    rnn = from_dict({"model": {"kind": "rnn", "dropout": 0.3}})
    found = differing_settings([transformer, rnn, rnn])
    assert found["model.kind"] == ["transformer", "rnn", "rnn"]
    assert found["model.cell"][0] == "" != found["model.cell"][1]
    assert found["model.num_heads"][1:] == ["", ""] != found["model.num_heads"][:1]
    assert found["data.source"] == ["copy", "grammar", "grammar"]
    assert not {"model.dropout", "seed", "data.directory"} & set(found)
    assert differing_settings([rnn, rnn]) == differing_settings([rnn]) == {}
    empty = differing_settings([from_dict({}), from_dict({"data": {"source": "tfds", "name": "wmt"}})])
    assert empty["data.name"] == ["''", "wmt"]


def test_settings_stand_where_there_is_room():
    assert settings_table(["a", "b"], {"x": ["1", "2"], "y": ["3", "4"]}).rows == (("x", "1", "2"), ("y", "3", "4"))
    assert settings_table(["a", "b"], {"x": ["1", "2"]}).rows == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1"])
def test_text_in_csv_is_no_formula(text):
    assert list(csv.reader(io.StringIO(to_csv(["a"], [[text], [-1.5]]), newline=""))) == [["a"], [f"'{text}"], ["-1.5"]]


def test_long_names_break_between_their_words_and_numbers_do_not():
    table = Table(("run", "beam_width=1.txt"), (("a.b", "0.5"), ("1.5", "c.d")), of_text=frozenset({0}))
    html = to_html(Document("t", (Section("s", (table,)),)))
    assert "beam_<wbr>width=<wbr>1.txt" in html
    assert "a.<wbr>b" in html
    assert all(f">{cell}<" in html for cell in ("0.5", "1.5", "c.d"))

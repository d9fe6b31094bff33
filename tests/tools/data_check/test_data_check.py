"""``data check``: every fault is counted, with its first lines; serious ones set the exit
status."""

import gzip
import random

import pytest

from transformer_jax.__main__ import main
from transformer_jax.tools.data_check import corpus_check

LINES = 1200
SHIFTED = "SERIOUS: lines shifted by one to three lines against the other side"
ENGLISH = "the a old small dog house sees under with bird tree garden walks sleeps green when where which"
GERMAN = "der ein alte kleine hund haus sieht unter mit vogel baum garten geht schl\u00e4ft gr\u00fcne wenn wo welche"


@pytest.fixture
def pairs():
    """Word for word; no two alike."""
    rng = random.Random(0)
    indices = [rng.choices(range(len(ENGLISH.split())), k=rng.randrange(8, 20)) for _ in range(LINES)]
    return [[" ".join(words.split()[index] for index in line) for words in (ENGLISH, GERMAN)] for line in indices]


@pytest.fixture
def checked(tmp_path, capsys):
    """The exit status and the table for these pairs, or for other arguments."""

    def check(pairs, *arguments):
        for side, language in enumerate(("en", "de")):
            lines = [pair[side] for pair in pairs if len(pair) > side]
            data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
            (tmp_path / f"t.{language}").write_bytes(data)
        settings = ["--config.tokenizer.kind=word"]
        status = main(["data", "check", *(arguments or [f"{tmp_path}/t.{{en,de}}"]), *settings])
        return status, capsys.readouterr().out

    return check


def faults(table):
    """``{"t.de: empty lines": ("2", "t.de:5")}``: the number of lines, and where the first is."""
    rows = table.splitlines()
    return {
        row[19:]: (row[:8].strip(), following.split()[0])
        for row, following in zip(rows, [*rows[1:], ""], strict=True)
        if row[8:9] == " " and row[17:19] == "  " and "%" in row[:18]
    }


def test_a_clean_corpus_has_no_faults(checked, pairs):
    status, table = checked(pairs)
    assert (status, faults(table)) == (0, {})
    assert "t.en: 19 distinct characters; Latin 100%" in table
    assert "  not found: 19 faults, see data check --help\n" in table and len(table.splitlines()) < 12
    assert "1,200 pairs are few to train on" in table


def test_every_fault_is_counted_where_it_is(checked, pairs):
    bad = [list(pair) for pair in pairs]
    bad[40][1], bad[41][1] = "\u200b", " \ufeff"
    bad[1][1], bad[2][1], bad[5][1], bad[3] = "", bad[2][0], bad[6][0], list(pairs[0])
    bad[4][0], bad[11][0] = "\u0434\u043e\u043c \u0438 \u0441\u0430\u0434", "tree " * 300
    for line, side, more in ((7, 0, " &amp; more"), (8, 1, "\u200b"), (9, 1, "\uff11"), (10, 0, "\x07")):
        bad[line][side] += more
    bad[12][0] += " fr\u00c3\u00bcher"
    for line in range(20, 32):
        bad[line] = ["all rights reserved", f"{pairs[line][1][:20]} rechte"]
    status, table = checked(bad)
    assert status == 0
    counts = faults(table)
    expected = {
        "duplicates of an earlier line or pair": ("1", "t.en:4"),
        "copies: target is source": ("1", "t.en:3"),
        "t.de: empty lines": ("3", "t.de:2"),
        "t.en: letters of another script": ("1", "t.en:5"),
        "t.en: HTML escapes or tags": ("1", "t.en:8"),
        "t.de: zero-width characters": ("3", "t.de:9"),
        "t.de: full-width characters (NFKC would make them ASCII)": ("1", "t.de:10"),
        "t.en: control characters or U+FFFD": ("1", "t.en:11"),
        "t.en: lines above 1,000 characters": ("1", "t.en:12"),
        "t.en: UTF-8 read as Latin-1": ("1", "t.en:13"),
        "t.en: boilerplate: the same line 10 times or more": ("12", "t.en:21"),
    }
    assert {fault: counts.pop(fault) for fault in expected} == expected
    assert counts.pop("one side 3 times longer than is usual")[1] == "t.en:5"
    reasons = "empty target", "target is the source", "source above 127 tokens"
    others = {fault for fault in counts if "language" not in fault}
    assert others == {f"of the sample, training would leave out: {reason}" for reason in reasons}


def test_lines_in_another_language_are_counted(checked):
    pytest.importorskip("py3langid", reason="pip install transformer_jax[data-check]")
    english = [f"This is the {number}th sentence about the weather in our old town." for number in range(40)]
    german = [f"Das ist der {number}. Satz \u00fcber das Wetter in unserer alten Stadt." for number in range(40)]
    french = "Voici une phrase sur le temps qu'il fait dans notre ville."
    pairs = [*zip(english, german, strict=True)]
    status, table = checked([*pairs, (french, "Eine ganz andere Sprache."), (english[1], english[0])])
    assert status == 0 and "t.en: languages en 98%" in table
    assert faults(table)["t.en: in a third language"] == ("1", "t.en:41")
    assert faults(table)["t.de: in the language of the other side"] == ("1", "t.de:42")
    assert "t.en:41  fr  Voici une" in table
    # Half of the sides are exchanged.
    half = [pair if number % 2 else pair[::-1] for number, pair in enumerate(pairs)]
    assert sum(int(count) for fault, (count, _) in faults(checked(half)[1]).items() if "other side" in fault) == 40
    # Numbers have no language.
    assert "t.en: not checked: no language of lines is recognized" in checked([("1 + 1 = 2", "drei")] * 20)[1]


def test_a_check_that_needs_a_library_says_so(checked, pairs, monkeypatch):
    monkeypatch.setattr(corpus_check, "can_identify", lambda: False)
    _, table = checked(pairs)
    assert "not checked: the language of lines, which needs py3langid; pip install py3langid" in table
    assert "in a third language" not in table and "in the language of the other side" not in table


def test_joiners_that_spell_a_word_are_no_fault(checked, pairs):
    # Persian, Malayalam, Sinhala, a family.
    spelled = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0d05\u0d35\u0d28\u0d4d\u200d a"]
    spelled += ["\u0dc1\u0dca\u200d\u0dbb\u0dd3", "\U0001f468\u200d\U0001f469"]
    added = [*spelled, "\u0645\u200c ", "a\u200db"]
    lines = [[f"{source} {more}", target] for (source, target), more in zip(pairs, added, strict=False)]
    counts = faults(checked([*lines, *pairs[len(added) :]])[1])
    assert counts["t.en: zero-width characters"] == ("2", "t.en:5")


def test_what_is_serious_sets_the_exit_status(checked, pairs, tmp_path):
    sources, targets = zip(*pairs, strict=True)
    status, table = checked([*zip(sources, ["eins", *targets[:-1]], strict=True)])
    assert (status, faults(table)[SHIFTED][0]) == (
        1,
        f"{LINES:,}",
    )
    assert "from line 1 to the end, line n of t.en translates line n+1 of t.de" in table
    status, table = checked([*pairs, ["one more"]])
    assert (status, faults(table)["SERIOUS: lines that the other side does not have"]) == (1, ("1", "t.en:1201"))
    status, table = checked([[b"caf\xe9", "ja"], *pairs])
    assert (status, len(faults(table))) == (1, 1)
    assert "t.en:1  invalid UTF-8: byte 0xe9" in table
    _, table = checked([[b"caf\xe9", "ja"], *pairs[:2], ["equal"] * 2, *pairs[2:]])
    assert faults(table)["of the sample, training would leave out: target is the source"] == ("1", "t.en:4")
    for language in ("en", "de"):
        (tmp_path / language).mkdir()
        (tmp_path / language / "t").write_text("one\n" * (3 if language == "en" else 2))
    status, table = checked(pairs, f"{tmp_path}/en/t,{tmp_path}/de/t")
    more = faults(table)["SERIOUS: lines that the other side does not have"]
    assert (status, more) == (1, ("1", f"{tmp_path}/en/t:3"))


def test_text_is_named_as_for_training_and_more_freely(checked, pairs, tmp_path, capsys):
    checked(pairs)
    (tmp_path / "t.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in [*pairs, ("", "x\ty")]))
    status, table = checked(pairs, str(tmp_path))
    titles = [line for line in table.splitlines() if line.endswith(" lines") and str(tmp_path) in line]
    assert titles == [f"{tmp_path}/t.de and {tmp_path}/t.en: 1,200 lines", f"{tmp_path}/t.tsv: 1,201 lines"]
    assert (status, "1201  2 tabs, expected exactly one" in table) == (1, True)
    assert checked(pairs, f"{tmp_path}/t.en")[1].startswith(f"{tmp_path}/t.en: 1,200 lines")
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(b"a"))
    for arguments, message in (
        (["check", str(tmp_path)], "both t.en and t.en.gz exist; remove one"),
        (["look", "t.en"], "data: write data check FILES"),
    ):
        assert main(["data", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_text_without_a_vocabulary_is_checked_all_the_same(checked, tmp_path, capsys):
    checked([[f"{number} + 1", ""] for number in range(300)])
    status, table = main(["data", "check", f"{tmp_path}/t.{{en,de}}"]), capsys.readouterr().out
    assert status == 1 and "SERIOUS: no vocabulary can be learned from the sample" in table
    assert faults(table)["t.de: empty lines"] == ("300", "t.de:1")


def test_a_part_without_similar_lengths_hides_no_shift(checked, pairs, monkeypatch):
    monkeypatch.setattr(corpus_check, "SHIFT_LINES", 400)
    sources, targets = map(list, zip(*pairs, strict=True))
    shifted = [*targets[:200], "eins", *targets[200:399], *targets[405:], *targets[400:405]]
    status, table = checked([*zip(sources, shifted, strict=True)])
    count, _ = faults(table)[SHIFTED]
    assert status == 1 and 190 <= int(count) <= 210 and "to 400, line n of t.en translates line n+1 of t.de" in table
    assert "translations in 400 lines or more from line 401, 801: the lengths of pairs do not agree" in table


def test_of_a_line_that_training_leaves_out_only_the_beginning_is_examined(checked, pairs, tmp_path, monkeypatch):
    lengths, check = list[int](), corpus_check._check_line

    def measured(report, name, number, text, scripts):
        lengths.append(len(text))
        check(report, name, number, text, scripts)

    monkeypatch.setattr(corpus_check, "_check_line", measured)
    status, table = checked([*pairs, ["the dog " * 400_000, GERMAN]])
    longest = corpus_check.MAX_LINE_BYTES + 1
    assert max(lengths) == longest
    (tmp_path / "t.tsv").write_text(f"{'x' * (longest + 9)}\ty\n")
    assert [*corpus_check._texts([tmp_path / "t.tsv"], is_table=True)] == [("x" * longest, "y")]
    assert faults(table)["t.en: lines above 1,000 characters"] == ("1", f"t.en:{LINES + 1}")
    assert faults(table)["of the sample, training would leave out: a line above 1,000,000 bytes"][0] == "1"
    assert status == 0

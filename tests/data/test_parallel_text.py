"""Parallel text files: sentences as written, faults with file and line, held-out pairs."""

import gzip
import io
import lzma
import re

import pytest

from transformer_jax.commands import flags
from transformer_jax.commands.translate import lines_as_they_come
from transformer_jax.config import DataConfig, DataError, TokenizerConfig
from transformer_jax.data import text_files
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.parallel_text import TextCorpus, named_files
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.text_files import read_lines
from transformer_jax.data.tokenization import HELD_OUT
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizers


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(data))


def corpus(folder, source=None, target=None, table=None, gz=""):
    for name, content in (("train.en", source), ("train.de", target), ("train.tsv", table)):
        if content is not None:
            write(folder / (name + gz), content)
    return TextCorpus(str(folder), "en", "de")


@pytest.mark.parametrize("gz", ["", ".gz", ".xz"])
@pytest.mark.parametrize("as_table", [False, True])
def test_reads_pairs_in_order(tmp_path, gz, as_table):
    texts = {"table": "a\tA\nb c\tB C"} if as_table else {"source": "a\nb c", "target": "A\nB C\n"}
    reader = corpus(tmp_path, **texts, gz=gz)
    assert list(reader.pairs("train")) == [SentencePair("a", "A"), SentencePair("b c", "B C")]
    assert reader.count("train") == 2
    reader.require_sound("train")
    named = named_files(f"{tmp_path}/train.tsv" if as_table else f"{tmp_path}/train.{{en,de}}", "data.train")
    assert named == reader.files("train")


def test_only_line_feeds_end_a_line_and_all_else_stays(tmp_path):
    source = "\ufeffa\u2028b\x0bc\x85d\re\r\n\nsame\n\ufefff\r\r\n" + "wort " * 200_000
    pairs = list(corpus(tmp_path, source, "A\n\nsame\nF\nG").pairs("train"))
    assert pairs[:-1] == [("a\u2028b\x0bc\x85d\re", "A"), ("", ""), ("same", "same"), ("\ufefff\r", "F")]
    assert pairs[-1] == ("wort " * 200_000, "G")
    assert next(TextCorpus(str(tmp_path), "de", "en").pairs("train"))[0] == "A"


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_lines_do_not_depend_on_the_blocks_that_are_read(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(text_files, "READ_AT_ONCE", at_once)
    lines = ["ä", "", "\u2028b\rc", "日本\r", "last"]
    (file := tmp_path / "text").write_bytes("\ufeffä\r\n\n\u2028b\rc\n日本\r\r\nlast".encode())
    assert [list(read_lines(file, skipped)) for skipped in range(7)] == [lines[skipped:] for skipped in range(7)]
    (tmp_path / "mark").write_bytes("\ufeff".encode())
    assert list(read_lines(tmp_path / "mark")) == [""]
    file.write_bytes(file.read_bytes() + b"\n\xff")
    result = read_lines(file, 2)
    assert [next(result) for _ in range(3)] == lines[2:]
    with pytest.raises(DataError, match="line 6: invalid UTF-8"):
        next(result)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"first\n" + b"a" * 200_000, "line 2: longer than 0 MiB; text has one sentence or document a line"),
        (b"first\n" + b"a" * 70_000 + b"\0" + b"b" * 50_000, "line 2: NUL byte at byte offset 70000"),
        (bytes(200_000), "line 1: NUL byte at byte offset 0"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_line_without_end_is_refused_before_it_is_read_whole(tmp_path, monkeypatch, content, message, ending):
    monkeypatch.setattr(text_files, "LINE_LIMIT", 150_000)
    file = tmp_path / f"text{ending}"
    file.write_bytes(gzip.compress(content) if ending else content)
    with pytest.raises(DataError, match=message):
        list(read_lines(file))
    with pytest.raises(DataError, match=message):
        list(lines_as_they_come(io.BufferedReader(io.BytesIO(content)), "standard input"))


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"source": b"good\nab\xff c\n", "target": "A\nB\n"}, r"train\.en\S*, line 2: .* byte 0xff at byte offset 2"),
        ({"source": "a\nb\n", "target": b"A\n\xc3\xa4b\0\n"}, r"train\.de\S*, line 2: NUL byte at byte offset 3"),
        ({"source": "a\nb\nc\n", "target": "A\n"}, r"train\.en\S* has 3 lines but \S*train\.de\S* has 1; line n"),
        ({"source": "", "target": "A\n"}, r"train\.en\S* has 0 lines but \S*train\.de\S* has 1; line n"),
        ({"source": "", "target": ""}, "the files are empty"),
        ({"table": ""}, "the file is empty"),
        ({"table": "a\tA\nno tab\n"}, r"train\.tsv\S*, line 2: 0 tabs, expected exactly one"),
        ({"table": "a\tA\ntwo\ttabs\there\n"}, r"train\.tsv\S*, line 2: 2 tabs, expected exactly one"),
        ({"source": gzip.compress(b"a\n", mtime=0), "target": "A\n"}, r"train\.en\S*: looks like gzip; name it \.gz"),
        ({"source": "a\n".encode("utf-16"), "target": "A\n"}, r"train\.en\S*: is UTF-16; convert it to UTF-8"),
    ],
)
def test_faults_are_named_with_file_and_line(tmp_path, gz, texts, message):
    reader = corpus(tmp_path, **texts, gz=gz)
    for read in (lambda: list(reader.pairs("train")), lambda: reader.require_sound("train")):
        with pytest.raises(DataError, match=message):
            read()


@pytest.mark.parametrize(
    ("damage", "is_damaged"),
    [
        (lambda data: data[: len(data) // 2], True),
        (lambda data: b"not gzip", False),
        (lambda data: data[:-6] + b"\1" * 6, True),
    ],
)
def test_damaged_gzip_is_named_with_its_last_sound_line(tmp_path, damage, is_damaged):
    text = "".join(f"line {number * 7919 % 10007}\n" for number in range(2000))
    reader = corpus(tmp_path, text, text, gz=".gz")
    path = tmp_path / "train.de.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"train\.de\.gz: not a complete gzip file(.*); copy it again") as raised:
        list(reader.pairs("train"))
    result = re.search(r"damaged after line ([\d,]+)", str(raised.value))
    assert (result is not None and 500 < int(result[1].replace(",", "")) <= 2000) is is_damaged


def test_missing_and_ambiguous_files_say_what_there_is(tmp_path):
    def refuses(message, split="train", source="en", target="de", folder=tmp_path):
        with pytest.raises(DataError, match=message):
            TextCorpus(str(folder), source, target).pairs(split)

    refuses("no split 'train'.*splits found: none; where it has another name, set --config.data.train_split=NAME")
    corpus(tmp_path, "a\n", "A\n")
    refuses(r"to hold out training pairs instead, set --config\.data\.held_out=0\.01$", "validation")
    write(tmp_path / "val.en.gz", "a\n")
    refuses("no split 'valid'.*splits found: train, val; did you mean 'val'", "valid")
    refuses(r"no split 'validation'.*set --config\.data\.validation_split=val$", "validation")
    refuses(r"no file train\.dk \(or \.gz, \.xz\); languages found: de, en", target="dk")
    (tmp_path / "train.fr").mkdir()
    refuses(r"train\.fr: is a folder; expected a file with one sentence a line, or train\.fr\.gz", target="fr")
    corpus(tmp_path, table="a\tA\n")
    refuses(r"both train\.tsv and train\.\*")
    corpus(tmp_path, "b\n", gz=".gz")
    refuses(r"both train\.en and train\.en\.gz exist")
    # A file of exactly this name is meant.
    assert named_files(f"{tmp_path}/train.{{en,de}}", "data.train")[0].name == "train.en"
    write(tmp_path / "val.en.xz", "a\n")
    with pytest.raises(DataError, match=r"both val\.en\.gz and val\.en\.xz exist"):
        named_files(f"{tmp_path}/val.en,{tmp_path}/train.de", "data.train")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "a corpus"
    folder.mkdir()
    lines = [f"line {number % 50}" for number in range(60)]
    (folder / "train.en").write_text("".join(f"{line}\n" for line in lines))
    with gzip.open(folder / "train.de.gz", "wt") as file:
        file.write("".join(f"Zeile {line.split()[1]}\n" for line in lines))
    (folder / "test.tsv").write_text("a\tb\n")
    return folder


def test_named_files_are_found_however_they_are_written(folder):
    for text in (f"{folder}/train.{{en,de}}", f"{folder}/train.en,{folder}/train.de.gz"):
        config = DataConfig(source="text", train=text, test=f"{folder}/test.tsv").absolute()
        result = open_corpus(config, 0)
        assert len(list(result.pairs("train"))) == 60
        assert list(result.pairs("test")) == [("a", "b")]
        with pytest.raises(DataError, match=r"no split .validation.; splits here: train, test; name its files with"):
            result.pairs("validation")
    assert DataConfig(source="text", train="/a,b/train.{en,de}").absolute().train == "/a,b/train.{en,de}"
    # A shell splits braces; they are joined again.
    overrides = ["data.train=t.en", "data.train=t.de", "seed=1", "seed=2"]
    values = flags.parse([flags.overrides], [f"--config.{item}" for item in overrides])
    assert flags.overrides_of(values) == [("data.train", "t.en,t.de"), ("seed", "1"), ("seed", "2")]
    for text, message in (
        (f"{folder}/train.en", "data.train: .*train.en' is neither two files"),
        (f"{folder}/train.{{en,fr}}", "data.train: .*train.fr is not a file"),
    ):
        with pytest.raises(DataError, match=message):
            open_corpus(DataConfig(source="text", train=text), 0).pairs("train")


def test_held_out_pairs_are_never_trained_on_nor_are_their_copies(folder):
    config = DataConfig(source="text", train=f"{folder}/train.{{en,de}}", held_out=9, cache_directory=f"{folder}/cache")
    first, again, other = (open_corpus(config, seed) for seed in (1, 1, 2))
    held, trained = list(first.pairs("validation")), list(first.pairs("train"))
    assert len(held) == 9 == first.count("validation")
    assert set(held).isdisjoint(trained)
    tokenizers = train_tokenizers(TokenizerConfig(kind="character"), first, "train", 0)
    store = open_token_store(first, "train", tokenizers, config, is_training=True)
    assert (store.statistics.read, store.statistics.dropped[HELD_OUT]) == (60, 60 - len(trained))
    # Lines 0 to 9 occur twice: their copies are missing as well.
    assert 60 - 2 * len(set(held)) <= len(trained) <= 60 - len(held)
    assert list(again.pairs("validation")) == held != list(other.pairs("validation"))
    assert len({item.fingerprint(split) for item in (first, other) for split in ("train", "validation")}) == 4
    tenth, most = (open_corpus(DataConfig(source="text", train=config.train, held_out=item), 0) for item in (0.1, 40))
    assert tenth.count("validation") == 6
    with pytest.raises(DataError, match=r"data\.held_out: 40 of 60 pairs of .*/train.de.gz; hold out at least one"):
        list(most.pairs("train"))


@pytest.mark.parametrize("settings", [{}, {"held_out": 2}, {"tags": "", "table": True}])
def test_skipped_pairs_are_the_first_and_are_not_decoded(settings, tmp_path):
    lines = [f"{number} a\tb {number}" for number in range(9)]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("\n".join(line.split("\t")[side] for line in lines))
    files = "a.tsv" if settings.pop("table", False) else "a.{en,de}"
    result = open_corpus(DataConfig(source="text", train=f"{tmp_path}/{files}", **settings), 0)
    for split in result.splits:
        whole = list(result.pairs(split))
        for skipped in (0, 1, 5, len(whole), 20):
            assert list(result.pairs(split, skipped)) == whole[skipped:]
    if files == "a.{en,de}" and not settings:
        (tmp_path / "a.en").write_bytes(b"\xff\nx\n\xfe\n")
        (tmp_path / "a.de").write_text("1\n2\n3\n")
        after = result.pairs("train", 1)
        assert next(after) == SentencePair("x", "2")
        with pytest.raises(DataError, match=r"a\.en, line 3: invalid UTF-8"):
            next(after)


def test_advice_on_held_out_pairs_follows_from_the_text(tmp_path):
    for lines, remedy in (
        ("a\tb\n", "1 pairs .* are too few to hold any out; name a text, data.validation=FILES"),
        ("a\tb\n" * 9, "every pair .* equals one of the 1 held out; add other text"),
        ("a\tb\rc\n", "carriage returns within lines: convert them"),
    ):
        (tmp_path / "t.tsv").write_bytes(lines.encode())
        data = DataConfig(source="text", train=f"{tmp_path}/t.tsv", held_out=1)
        with pytest.raises(DataError, match=remedy):
            list(open_corpus(data, 0).pairs("train"))

import gzip
import os
import re
from pathlib import Path

import pytest

from transformer_jax.config import DataError
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.text_files import TextCorpus, hash_file, read_lines


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def corpus(folder, source=None, target=None, table=None, gz=""):
    for name, content in (("train.en", source), ("train.de", target), ("train.tsv", table)):
        if content is not None:
            write(folder / (name + gz), content)
    return TextCorpus(str(folder), "en", "de")


def error_of(pairs):
    with pytest.raises(DataError) as caught:
        list(pairs)
    return str(caught.value)


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("as_table", [False, True])
def test_reads_pairs_in_order(tmp_path, gz, as_table):
    texts = {"table": "a\tA\nb c\tB C\n"} if as_table else {"source": "a\nb c\n", "target": "A\nB C\n"}
    pairs = list(corpus(tmp_path, **texts, gz=gz).pairs("train"))
    assert pairs == [SentencePair("a", "A"), SentencePair("b c", "B C")]


def test_direction_is_the_one_asked_for(tmp_path):
    corpus(tmp_path, "a\n", "A\n")
    assert list(TextCorpus(str(tmp_path), "de", "en").pairs("train")) == [("A", "a")]


def test_last_line_needs_no_line_end_and_carriage_returns_go(tmp_path):
    assert list(corpus(tmp_path, b"\xef\xbb\xbfa\r\nb\r\r\n\r\n", "A\nB\n\n").pairs("train")) == [
        ("a", "A"),
        ("b\r", "B"),
        ("", ""),
    ]
    assert list(corpus(tmp_path, "a\nb", "A\nB\n").pairs("train")) == [("a", "A"), ("b", "B")]
    later = corpus(tmp_path, "a\n\ufeffb\n", "A\nB\n")
    assert list(later.pairs("train"))[1].source == "\ufeffb", "only the first line of a file can have a byte order mark"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85", "\r"])
def test_only_line_feeds_end_a_line(tmp_path, separator):
    pairs = list(corpus(tmp_path, f"a{separator}b\nc\n", "A\nC\n").pairs("train"))
    assert pairs == [(f"a{separator}b", "A"), ("c", "C")]


def test_odd_sentences_pass(tmp_path):
    long = "wort " * 200_000
    pairs = list(corpus(tmp_path, f"\nsame\n{long}\n", f"A\nsame\n{long}\n").pairs("train"))
    assert pairs == [("", "A"), ("same", "same"), (long, long)]


def test_reading_streams(tmp_path):
    pairs = corpus(tmp_path, b"a\n\xff\n", "A\nB\n").pairs("train")
    assert next(pairs) == ("a", "A")
    with pytest.raises(DataError, match="line 2"):
        next(pairs)


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_invalid_utf8_names_file_line_and_byte(tmp_path, gz):
    message = error_of(corpus(tmp_path, b"good\nab\xff c\n", "A\nB\n", gz=gz).pairs("train"))
    assert f"train.en{gz}, line 2: invalid UTF-8: byte 0xff at byte offset 2" in message


def test_nul_byte_names_file_line_and_byte(tmp_path):
    message = error_of(corpus(tmp_path, "a\nb\n", b"A\n\xc3\xa4b\0\n").pairs("train"))
    assert "train.de, line 2: NUL byte at byte offset 3" in message


@pytest.mark.parametrize(
    ("source", "target", "counts"), [("a\nb\nc\n", "A\n", (3, 1)), ("a\n", "A\nB\n", (1, 2)), ("", "A\n", (0, 1))]
)
def test_different_line_counts_are_both_given(tmp_path, source, target, counts):
    message = error_of(corpus(tmp_path, source, target).pairs("train"))
    assert re.search(rf"train\.en has {counts[0]} lines but \S*train\.de has {counts[1]};", message)


def test_empty_corpus(tmp_path):
    assert "the files are empty" in error_of(corpus(tmp_path, "", "").pairs("train"))


def test_empty_table(tmp_path):
    assert "the file is empty" in error_of(corpus(tmp_path, table="").pairs("train"))


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there", ""])
def test_table_line_without_exactly_one_tab(tmp_path, line):
    message = error_of(corpus(tmp_path, table=f"a\tA\n{line}\n").pairs("train"))
    assert f"train.tsv, line 2: {line.count(chr(9))} tabs, expected exactly one" in message


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"not gzip", lambda data: data[:-6] + b"\1" * 6]
)
def test_damaged_gzip(tmp_path, damage):
    text = "".join(f"line {number * 7919 % 10007}\n" for number in range(2000))
    reader = corpus(tmp_path, text, text, gz=".gz")
    path = tmp_path / "train.de.gz"
    path.write_bytes(damage(path.read_bytes()))
    assert re.search(r"train\.de\.gz: not a whole gzip file, damaged after line \d+", error_of(reader.pairs("train")))


def test_plain_and_gzip_of_one_file_is_ambiguous(tmp_path):
    corpus(tmp_path, "a\n", "A\n")
    with pytest.raises(DataError, match=r"both train\.en and train\.en\.gz exist"):
        corpus(tmp_path, "b\n", gz=".gz").files("train")


def test_table_and_single_languages_are_ambiguous(tmp_path):
    reader = corpus(tmp_path, "a\n", "A\n", table="a\tA\n")
    with pytest.raises(DataError, match=r"both train\.tsv and train\.\*"):
        reader.pairs("train")


def test_missing_folder_split_and_language_say_what_there_is(tmp_path):
    with pytest.raises(DataError, match="'/no/such' is not a folder"):
        TextCorpus("/no/such", "en", "de").pairs("train")
    with pytest.raises(DataError, match="no split 'train'.*an empty folder"):
        TextCorpus(str(tmp_path), "en", "de").pairs("train")
    corpus(tmp_path, "a\n", "A\n")
    write(tmp_path / "val.en.gz", "a\n")
    with pytest.raises(DataError, match="no split 'valid'.*splits found: train, val; did you mean 'val'"):
        TextCorpus(str(tmp_path), "en", "de").pairs("valid")
    with pytest.raises(DataError, match=r"no split 'validation'.*set --config\.data\.validation_split=val$"):
        TextCorpus(str(tmp_path), "en", "de").pairs("validation")
    with pytest.raises(DataError, match=r"no file train\.dk \(or \.gz\); languages found: de, en"):
        TextCorpus(str(tmp_path), "en", "dk").pairs("train")
    write(tmp_path / "train.deu", "A\n")
    with pytest.raises(DataError, match=r"languages found: de, deu, en; did you mean 'deu'"):
        TextCorpus(str(tmp_path), "en", "ddeu").pairs("train")


def test_fingerprint_follows_content_and_direction_but_not_place(tmp_path):
    (tmp_path / "copy").mkdir()
    first = corpus(tmp_path, "a\n", "A\n")
    fingerprint = first.fingerprint("train")
    assert corpus(tmp_path / "copy", "a\n", "A\n").fingerprint("train") == fingerprint
    assert TextCorpus(str(tmp_path), "de", "en").fingerprint("train") != fingerprint
    write(tmp_path / "train.de", "B\n")
    assert first.fingerprint("train") != fingerprint


def test_large_files_are_hashed_by_samples(tmp_path, monkeypatch):
    path = tmp_path / "large"
    path.write_bytes(bytes(300_000))
    whole = hash_file(path)
    monkeypatch.setattr("transformer_jax.data.text_files.WHOLE_HASH_BYTES", 1000)
    sampled = hash_file(path)
    assert whole != sampled == hash_file(path)
    path.write_bytes(bytes(150_000) + b"x" + bytes(149_999))
    assert hash_file(path) != sampled


def test_unreadable_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder: cannot be read: Is a directory"):
        list(read_lines(tmp_path / "folder"))


def make_pipe(path):
    os.mkfifo(path)


def link_to_nothing(path):
    path.symlink_to(path.parent / "nowhere")


def link_in_a_loop(path):
    path.symlink_to(path)


def link_to_a_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a directory"),
        (make_pipe, "a pipe"),
        (link_to_nothing, "a link that leads nowhere"),
        (link_in_a_loop, "a link that leads nowhere"),
        (link_to_a_device, "a device"),
    ],
)
def test_what_is_no_file_is_told(tmp_path, make, kind):
    make(tmp_path / "train.en")
    (tmp_path / "train.de").write_text("a\n")
    with pytest.raises(DataError) as caught:
        TextCorpus(str(tmp_path), "en", "de").pairs("train")
    assert str(caught.value) == f"{tmp_path / 'train.en'} is {kind}; give a text file"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"a\n", mtime=0), "looks like gzip; name it .gz"),
        ("a\n".encode("utf-16"), "is UTF-16; convert it to UTF-8"),
        (b"\x7fELF\x02\x01", "is not a text file"),
    ],
)
def test_what_is_no_text_is_told(tmp_path, content, problem):
    assert error_of(corpus(tmp_path, content, "A\n").pairs("train")) == f"{tmp_path / 'train.en'}: {problem}"

"""Translate with a trained run, through the command line."""

import errno
import gzip
import io
import json
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.__main__ import main
from transformer_jax.commands import translate as command
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.decoding.segmented_search import SegmentedSearch
from transformer_jax.tasks.translation.translator import Translation, Translator

Translated = namedtuple("Translated", "returncode stdout stderr")


def translate(run: Path, text: bytes, *flags: str) -> Translated:
    """The command, here, with ``text`` on standard input."""
    streams = {"stdin": text, "stdout": b"", "stderr": b""}
    opened = {name: io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for name, content in streams.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in opened.items():
            patch.setattr(sys, name, stream)
        status = main(["translate", f"--workdir={run}", "--checkpoint=last", *flags])
        sys.stdout.flush()
        sys.stderr.flush()
    return Translated(status, opened["stdout"].buffer.getvalue(), opened["stderr"].buffer.getvalue())


def test_translate_keeps_lines_and_their_order(run):
    text = "a b c\n\nd e\u2028f\n   \ng".encode()
    result = translate(run, text)
    assert result.returncode == 0, result.stderr.decode()
    lines = result.stdout.decode().split("\n")
    assert len(lines) == 6 and lines[1] == lines[3] == lines[5] == ""
    rows = [line.split("\t") for line in translate(run, text, "--n-best=2").stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3", "4", "5", "5"]
    assert {len(row) for row in rows} == {3}
    with_remarks = translate(run, text, "--n-best=2", "--remarks").stdout.decode().splitlines()
    assert [row.split("\t")[:3] for row in with_remarks] == rows
    rows = [row.split("\t") for row in with_remarks]
    assert b"--remarks: is a column of --n_best=N" in translate(run, text, "--remarks").stderr
    objects = [json.loads(line) for line in translate(run, text, "--n_best=2", "--json").stdout.decode().splitlines()]
    assert [[str(each["line"]), each["text"], " ".join(each["remarks"])] for each in objects] == [
        [row[0], row[2], row[3]] for row in rows
    ]
    assert float(rows[0][1]) >= float(rows[1][1])


def test_leading_lines_are_written_before_the_others_are_done(run, tmp_path, monkeypatch):
    output, written = tmp_path / "out", []

    def search(self, params, batches, on_done):
        for row in (1, 0, 2):
            on_done(np.array([row]), f"line {row}")
            written.append(output.read_text(encoding="utf-8"))

    monkeypatch.setattr(SegmentedSearch, "search", search)
    monkeypatch.setattr(Translator, "_texts", lambda self, found, *_: [Translation(found, 0.0, [])])
    assert translate(run, b"a\n\nb\nc\n", f"--output={output}").returncode == 0
    assert written[:2] == ["", "line 0\n\nline 1\n"]
    assert output.read_text(encoding="utf-8") == "line 0\n\nline 1\nline 2\n"


def test_what_the_model_never_saw_and_what_is_cut_is_told(run):
    """Once for each kind, over all chunks, with the number of the first line."""
    text = "a b c\n\u200b\na \U0001f408 b\nКошка a\n>>xyz<< a\n" + "a " * 30 + "a\n"
    settings = "--lines_at_once=2", "--config.decoding.max_extra_tokens=1", "--n_best=2", "--remarks"
    result = translate(run, text.encode(), *settings)
    assert result.returncode == 0, result.stderr.decode()
    code, unseen, long, cut, *repeated = result.stderr.decode().splitlines()
    assert (
        code
        == "standard input: 1 of 6 lines begins with a language code that the vocabulary lacks (first: line 5): >>xyz<<"
    )
    assert unseen.startswith(
        "standard input: 3 of 6 lines have characters or words that the model never saw in training (first: line 3): "
    )
    assert unseen.split(": ")[-1].split(" ")[:2] == ["\U0001f408", "Кошка"]
    assert long.startswith("standard input: 1 of 6 lines is longer than every source in training, ")
    assert long.endswith(" tokens (first: line 6): it has 31; split them into sentences")
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    best = {row[0]: row[3] for row in reversed(rows)}
    lines_cut = [number for number, remarks in best.items() if "cut" in remarks]
    assert f"{len(lines_cut)} of 6 lines reached the length limit" in cut or not lines_cut
    assert all("repeat" in line for line in repeated)
    assert not [row for row in rows if row[0] == "2" and row[2:] != ["", ""]]


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_line_and_its_number_alone(run):
    draw = "--temperature=1.5", "--seed=3"
    together = translate(run, b"a b c\nd e f\n", "--n_best=3", *draw).stdout.decode().splitlines()
    assert len({line for line in together if line.startswith("1\t")}) > 1
    again = translate(run, b"\nd e f\n", *draw).stdout.decode().splitlines()
    assert again == ["", together[3].split("\t")[2]]


def test_flags_that_cannot_be_are_refused(run):
    for flag in ("--temperature=1e-38", "--temperature=nan", "--temperature=-1", "--seed=3", f"--seed={2**64}"):
        result = translate(run, b"a\n", flag)
        assert result.returncode == 2 and result.stdout == b"", flag
        assert flag.split("=")[0].encode() in result.stderr


def test_a_prefix_begins_every_translation(run):
    lines = translate(run, b"a b c\n\nd e f\n", "--prefix=d c").stdout.decode().split("\n")
    assert lines[0].startswith("d c") and lines[1] == "" and lines[2].startswith("d c")
    assert not translate(run, b"a b c\n").stdout.decode().startswith("d c")
    assert b"--prefix" in translate(run, b"a\n", "--prefix=d", "--top_k=3").stderr
    assert b"'d zzz' is 'd <unk>' in the vocabulary" in translate(run, b"a\n", "--prefix=d zzz").stderr


def test_whole_lines_are_answered_though_a_part_of_the_next_follows(monkeypatch):
    monkeypatch.setattr(command, "BYTES_AT_ONCE", 4)
    receiving, sending = os.pipe()
    with open(receiving, "rb") as source, open(sending, "wb", buffering=0) as sink:
        lines = command.lines_as_they_come(source, "pipe")
        sink.write(b"a b c\nd")
        assert [next(lines), next(lines)] == ["a b c", None]
        sink.write(b" e\nf")
        assert [next(lines), next(lines)] == ["d e", None]
        sink.close()
        assert list(lines) == ["f"]


def test_translate_reads_and_writes_files_as_training_does(run, tmp_path):
    """Compressed, with the byte order mark and the line ends of Windows."""
    text = b"a b\nc d\n"
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n")))
    files = [f"--source={tmp_path / 'in.gz'}", f"--output={tmp_path / 'out.gz'}"]
    assert main(["translate", str(run), "--checkpoint=last", *files]) == 0
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == translate(run, text).stdout


@pytest.mark.parametrize(
    ("text", "message", "lines"),
    [
        (b"a b\n" + b" ".join(50 * [b"a"]), b"line 2: 50 tokens are more than", 1),
        (b"a\n" * 10 + b"\xff\xfe\n", b"line 11: invalid UTF-8", 10),
    ],
)
def test_lines_before_one_that_cannot_be_translated_are(run, text, message, lines):
    result = translate(run, text, "--config.decoding.max_source_tokens=40")
    assert result.returncode == 2 and result.stdout.count(b"\n") == lines
    assert b"standard input, " + message in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_names_the_file_and_leaves_no_empty_one(run, tmp_path):
    result = translate(run, b"a b\n", "--output=/dev/full")
    assert result.returncode == 2
    assert result.stderr.decode().endswith("transformer-jax: /dev/full: No space left on device\n")
    with pytest.raises(OSError, match="No space left"), command._opened(str(tmp_path / "out")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not (tmp_path / "out").exists()


def test_translate_leaves_its_input_and_what_it_cannot_replace(run, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("a b\n")
    for source, message in ((file, "is what --source reads"), (tmp_path / "nowhere", "cannot be read")):
        assert main(["translate", f"--workdir={run}", f"--source={source}", f"--output={file}"]) == 2
        assert message in capsys.readouterr().err
        assert file.read_text() == "a b\n"
    shutil.copy(run / "config.json", tmp_path)
    save_tokenizers(TokenizerPair(*2 * [WordTokenizer.train(["x y z"], 64)]), tmp_path / "tokenizer")
    assert main(["translate", f"--workdir={run}", f"--ensemble={tmp_path}"]) == 2
    assert f"{tmp_path} and {run} have different source tokenizers" in capsys.readouterr().err

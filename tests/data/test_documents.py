"""Plain text as documents: every byte counted once, held-out text never trained on."""

import gzip
import lzma

import pytest

from transformer_jax.config import DataError
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data.documents import SEPARATORS, NamedTexts, TextFolder, open_documents

TEXT = "ein \u2028 Hund\r\n\n\nzwei\x85 K\u00e4tzchen\n\n\U0001f600\n  drei\n"


def write(path, text):
    data = text.encode()
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(data))
    return str(path)


@pytest.mark.parametrize("ending", ["txt", "txt.xz"])
@pytest.mark.parametrize("documents", ["lines", "paragraphs"])
def test_documents_and_separators_add_up_to_the_file(tmp_path, ending, documents):
    write(tmp_path / f"train.{ending}", TEXT)
    result = list(TextFolder(str(tmp_path), documents).documents("train"))
    assert SEPARATORS[documents].join(document.text for document in result) in (TEXT, TEXT.removesuffix("\n"))
    assert sum(document.num_bytes for document in result) == len(TEXT.encode())
    assert len(result) == {"lines": 7, "paragraphs": 3}[documents]
    write(tmp_path / f"windows.{ending}", "a\r\nb\r\n\r\nc\r\n")
    result = [document.text for document in TextFolder(str(tmp_path), documents).documents("windows")]
    assert result == {"lines": ["a\r", "b\r", "\r", "c\r"], "paragraphs": ["a\r\nb\r", "c\r"]}[documents]


@pytest.mark.parametrize("documents", ["lines", "paragraphs"])
@pytest.mark.parametrize("held_out", [0.05, 0.9])
def test_the_splits_of_one_file_add_up_to_it_and_the_tail_is_held_out(tmp_path, documents, held_out):
    text = "".join(f"line {index}\n" + "\n" * (index % 3 == 0) for index in range(100))
    source = NamedTexts({"train": write(tmp_path / "all.txt.xz", text)}, documents, held_out)
    train, validation = (list(source.documents(split)) for split in ("train", "validation"))
    assert SEPARATORS[documents].join(item.text for item in train + validation).rstrip("\n") == text.rstrip("\n")
    size, train_bytes = len(text.encode()), sum(document.num_bytes for document in train)
    assert train_bytes + sum(document.num_bytes for document in validation) == size
    assert train_bytes - train[-1].num_bytes < size - int(size * held_out) <= train_bytes


def test_bad_and_missing_files_and_splits_are_named(tmp_path):
    for name, content, message in (
        ("all.txt", b"good\nb\xffd\n", r"all.txt, line 2: invalid UTF-8: byte 0xff"),
        ("all.txt.xz", lzma.compress(b"good\n" * 1000)[:-30], "all.txt.xz: not a complete xz file"),
        ("all.txt.gz", b"good\n", "all.txt.gz: not a complete gzip file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            list(NamedTexts({"train": str(tmp_path / name)}, "lines", 0.1).documents("train"))
    path = write(tmp_path / "train.txt", TEXT)
    with pytest.raises(DataError, match="no split 'test'; it has train, validation"):
        list(NamedTexts({"train": path}, "lines", 0.1).documents("test"))
    with pytest.raises(DataError, match="no trian.txt, plain, .gz or .xz; .*; did you mean 'train'"):
        list(TextFolder(str(tmp_path), "lines").documents("trian"))


@pytest.mark.parametrize("name", ["all.jsonl", "all.json.gz", "all.CSV", "memory.tmx"])
def test_json_and_csv_are_not_read_as_plain_text(tmp_path, name):
    source = NamedTexts({"train": write(tmp_path / name, TEXT)}, "lines", 0.1)
    with pytest.raises(DataError, match=r"^data.train: '.*' is (JSONL?|CSV|TMX), .* write its texts to a .txt file"):
        list(source.documents("train"))


def test_a_named_validation_file_leaves_the_training_text_whole(tmp_path):
    names = {split: write(tmp_path / f"{split}.txt", f"{split} {TEXT}") for split in ("train", "validation", "test")}
    source = open_documents(TextDataConfig(source="text", **names), 0)
    for split in names:
        result, size = list(source.documents(split)), len(f"{split} {TEXT}".encode())
        assert sum(document.num_bytes for document in result) == source.count_bytes(split) == size
        assert result[0].text.startswith(split)

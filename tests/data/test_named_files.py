"""Files named one by one, and pairs held out of the training."""

import gzip

import pytest

from transformer_jax.commands.flag_parsing import define_override_flag, overrides_of, parse_flags
from transformer_jax.config import ConfigError, DataConfig, DataError
from transformer_jax.data.corpora import open_corpus


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "a corpus"
    folder.mkdir()
    lines = [f"line {number % 50}" for number in range(60)]
    (folder / "train.en").write_text("".join(f"{line}\n" for line in lines))
    with gzip.open(folder / "train.de.gz", "wt") as file:
        file.write("".join(f"Zeile {line.split()[1]}\n" for line in lines))
    (folder / "test.tsv").write_text("a\tb\n")
    return folder


def test_named_files_are_found_however_they_are_written(corpus):
    for text in (f"{corpus}/train.{{en,de}}", f"{corpus}/train.en,{corpus}/train.de.gz"):
        config = DataConfig(source="text", train=text, test=f"{corpus}/test.tsv").absolute()
        found = open_corpus(config, 0)
        assert len(list(found.pairs("train"))) == 60
        assert list(found.pairs("test")) == [("a", "b")]
        with pytest.raises(
            DataError,
            match=r"no split .validation.; splits here: train, test; name its files with .*validation, or hold",
        ):
            found.pairs("validation")


def test_a_shell_splits_braces_and_they_are_joined_again():
    values = parse_flags(
        define_override_flag,
        ["--config.data.train=t.en", "--config.data.train=t.de", "--config.seed=1", "--config.seed=2"],
    )
    assert overrides_of(values) == [("data.train", "t.en,t.de"), ("seed", "1"), ("seed", "2")]


def test_held_out_pairs_are_never_trained_on_nor_are_their_copies(corpus):
    config = DataConfig(source="text", train=f"{corpus}/train.{{en,de}}", held_out=9)
    first, again, other = (open_corpus(config, seed) for seed in (1, 1, 2))
    held, trained = list(first.pairs("validation")), list(first.pairs("train"))
    assert len(held) == 9 == first.count("validation")
    assert set(held).isdisjoint(trained)
    # Lines 0 to 9 occur twice: their copies are missing as well.
    assert 60 - 2 * len(set(held)) <= len(trained) <= 60 - len(held)
    assert list(again.pairs("validation")) == held != list(other.pairs("validation"))
    assert len({each.fingerprint(split) for each in (first, other) for split in ("train", "validation")}) == 4
    tenth = open_corpus(DataConfig(source="text", train=config.train, held_out=0.1), 0)
    assert tenth.count("validation") == 6
    with pytest.raises(DataError, match=r"data\.held_out: 40 of 60 pairs; hold out at least one, and at most half"):
        list(open_corpus(DataConfig(source="text", train=config.train, held_out=40), 0).pairs("train"))


def test_what_is_no_pair_of_files_is_refused(corpus):
    for text, message in (
        (f"{corpus}/train.en", "data.train: .*train.en' is neither two files"),
        (f"{corpus}/train.{{en,fr}}", "data.train: .*train.fr is not a file"),
    ):
        with pytest.raises(DataError, match=message):
            open_corpus(DataConfig(source="text", train=text), 0).pairs("train")
    for settings, message in (
        ({"source": "grammar", "train": "a.en,a.de"}, "data.source: grammar reads no files"),
        (
            {"source": "text", "train": "a.tsv", "validation": "b.tsv", "held_out": 3},
            "data.held_out: data.validation names",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            DataConfig(**settings)

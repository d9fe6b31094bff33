"""Sentence pairs from a CSV file, one a split, with a column for each language.

transformer-jax train --plugin=examples/csv_source.py --config=quickstart --config.data.source=csv \
    --config.data.directory=corpus --workdir=runs/csv
"""

import csv
from pathlib import Path

import transformer_jax
from transformer_jax.data.sentence_pairs import SentencePair, digest

ENCODING = "utf-8-sig"  # UTF-8, with or without the byte order mark of Excel.


@transformer_jax.register("data_source", "csv")
class CsvCorpus:
    """``{split}.csv`` in ``data.directory``; its header names the languages."""

    def __init__(self, config, seed):
        self.directory = Path(config.directory)
        self.source_language, self.target_language = config.source_language, config.target_language

    def pairs(self, split):
        with self._file(split).open(encoding=ENCODING, newline="") as file:
            for row in csv.DictReader(file):
                yield SentencePair(row[self.source_language], row[self.target_language])

    def count(self, split):
        return sum(1 for _ in self.pairs(split))

    def fingerprint(self, split):
        return digest([self._file(split).read_text(encoding=ENCODING)])

    def _file(self, split):
        file = self.directory / f"{split}.csv"
        if not file.is_file():
            raise transformer_jax.DataError(f"{file}: no such file; expected a header such as en,de and a pair a line")
        return file

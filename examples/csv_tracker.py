"""Metrics as a table that any spreadsheet reads: step, name, value.

transformer-jax train --plugin=examples/csv_tracker.py --config=quickstart \
    --config.training.trackers=tensorboard,csv --workdir=runs/csv
"""

import csv

import transformer_jax


@transformer_jax.register("tracker", "csv")
class CsvTracker:
    """``metrics.csv`` in the folder of the run, without updates after ``first_update``."""

    def __init__(self, folder, config, first_update):
        path = folder / "metrics.csv"
        rows = list(csv.reader(path.read_text().splitlines())) if path.exists() else []
        self.file = path.open("w", newline="")
        self.table = csv.writer(self.file)
        self.table.writerows(row for row in rows if int(row[0]) <= first_update)
        self.file.flush()

    def write(self, step, metrics):
        self.table.writerows((step, name, value) for name, value in metrics.items())

    def sync(self):
        self.file.flush()

    def close(self):
        self.file.close()

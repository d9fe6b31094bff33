"""Metrics as a table that any spreadsheet reads: step, name, value.

transformer-jax train --plugin=examples/csv_tracker.py --config=quickstart --config.training.trackers=tensorboard,csv \
    --workdir=runs/csv
"""

import csv

import transformer_jax


@transformer_jax.register("tracker", "csv")
class CsvTracker:
    """``metrics.csv`` in the folder of the run; a resumed run appends."""

    def __init__(self, folder, config, first_update):
        self.file = (folder / "metrics.csv").open("a", newline="")
        self.table = csv.writer(self.file)

    def write(self, step, metrics):
        self.table.writerows((step, name, value) for name, value in metrics.items())

    def sync(self):
        self.file.flush()

    def close(self):
        self.file.close()

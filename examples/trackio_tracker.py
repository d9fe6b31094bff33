"""Metrics in Trackio (pip install trackio), in its local database.

transformer-jax train --plugin=examples/trackio_tracker.py --config=quickstart \
    --config.training.trackers=tensorboard,trackio --workdir=runs/trackio
"""

import uuid

import transformer_jax
from transformer_jax.config import flatten
from transformer_jax.runs.trackers import group_of, run_id


@transformer_jax.register("tracker", "trackio")
class Trackio:
    """A run of Trackio; trials of a sweep are one project."""

    def __init__(self, folder, config, first_update):
        import trackio

        self.trackio = trackio
        name = run_id(folder, "trackio", lambda: f"{folder.name}-{uuid.uuid4().hex[:6]}")
        trackio.init(project=group_of(folder) or "transformer_jax", name=name, config=flatten(config), resume="allow")

    def write(self, step, metrics):
        self.trackio.log(dict(metrics), step=step)

    def sync(self):
        pass

    def close(self):
        self.trackio.finish()

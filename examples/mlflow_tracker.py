"""Metrics in MLflow (pip install mlflow), at MLFLOW_TRACKING_URI or in ``mlruns.db``.

transformer-jax train --plugin=examples/mlflow_tracker.py --config=quickstart \
    --config.training.trackers=tensorboard,mlflow --workdir=runs/mlflow
"""

import os

import transformer_jax
from transformer_jax.config import flatten
from transformer_jax.runs.trackers import group_of, run_id


@transformer_jax.register("tracker", "mlflow")
class Mlflow:
    """A run of MLflow; trials of a sweep are one experiment."""

    def __init__(self, folder, config, first_update):
        import mlflow

        database = f"sqlite:///{folder.absolute().parent / 'mlruns.db'}"
        self.client = mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or database)
        self.id = run_id(folder, "mlflow", lambda: self.new_run(folder, config))
        self.client.update_run(self.id, status="RUNNING")

    def new_run(self, folder, config):
        name = group_of(folder) or os.environ.get("MLFLOW_EXPERIMENT_NAME", "transformer_jax")
        experiment = self.client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self.client.create_experiment(name)
        run = self.client.create_run(number, run_name=folder.name).info.run_id
        for key, value in flatten(config).items():
            self.client.log_param(run, key, str(value)[:500])
        return run

    def write(self, step, metrics):
        for name, value in metrics.items():
            self.client.log_metric(self.id, name, value, step=step)

    def sync(self):
        pass

    def close(self):
        self.client.set_terminated(self.id)

    def fail(self):
        self.client.set_terminated(self.id, "FAILED")

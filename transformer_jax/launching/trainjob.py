"""A TrainJob of Kubeflow Trainer for a run.

From the API of Kubeflow Trainer 2.2 (trainer.kubeflow.org/v1alpha1, pkg/apis/trainer/v1alpha1/trainjob_types.go), the first
with a runtime for JAX, ``jax-distributed``, and with ``runtimePatches``, one of which mounts the shared disk here. The runtime
sets JAX's three variables that say which process is which; pods are those of its replicated job ``node``. A sweep, whose
workers need not know each other, is better launched as a plain Job (``launch kubernetes``).
"""

import shlex
from dataclasses import dataclass

from transformer_jax.config import ConfigError
from transformer_jax.launching.kubernetes import (
    SHELL,
    VOLUME,
    Manifest,
    as_yaml,
    require_on_volume,
    require_pod_settings,
    unexpanded,
)
from transformer_jax.launching.workload import Sweep, Training

NODE = "node"
GRACE_OF_RUNTIME = "the runtime's terminationGracePeriodSeconds, 30 where it says nothing, is the time for that."
# Who owns a patch of the runtime; any name, of which each may patch once.
MANAGER = "transformer-jax"


@dataclass(frozen=True)
class TrainJobSettings:
    """Settings of a TrainJob; fields are the flags of ``transformer-jax launch trainjob``."""

    name: str
    namespace: str | None
    runtime: str
    image: str | None
    volume_claim: str | None
    mount_path: str
    gpus_per_node: int | None
    nodes: int
    cpus: int | None
    memory: str | None

    def __post_init__(self) -> None:
        require_pod_settings(self, ("namespace", "runtime", "image", "volume_claim"))


def train_job(settings: TrainJobSettings, workload: Training | Sweep) -> Manifest:
    """The manifest; raises ConfigError when the workload does not fit what is asked for."""
    if isinstance(workload, Sweep):
        raise ConfigError("a sweep is no TrainJob: its workers are apart; use launch kubernetes")
    require_on_volume(settings.mount_path, "--workdir", workload.workdir)
    gpus = settings.gpus_per_node or 0
    workload.require_fits(settings.nodes * max(gpus, 1))
    asked: Manifest = {"nvidia.com/gpu": gpus} if gpus else {}
    asked |= {name: value for name, value in (("cpu", settings.cpus), ("memory", settings.memory)) if value is not None}
    script = unexpanded(SHELL.format(command=shlex.join(workload.command(settings.nodes))))
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": settings.name} | ({"namespace": settings.namespace} if settings.namespace else {}),
        "spec": {
            "runtimeRef": {"name": settings.runtime},
            "trainer": {
                "image": settings.image,
                "command": ["/bin/sh", "-c", script],
                "numNodes": settings.nodes,
                **({"resourcesPerNode": {"limits": asked}} if asked else {}),
            },
            "runtimePatches": [_mounted(settings)],
        },
    }


def _mounted(settings: TrainJobSettings) -> Manifest:
    """The patch of the runtime that mounts the shared disk where the trainer runs."""
    pod = {
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": settings.volume_claim}}],
        "containers": [{"name": NODE, "volumeMounts": [{"name": VOLUME, "mountPath": settings.mount_path}]}],
    }
    job = {"name": NODE, "template": {"spec": {"template": {"spec": pod}}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def train_job_manifest(settings: TrainJobSettings, workload: Training | Sweep) -> str:
    """The manifest as YAML."""
    return as_yaml(train_job(settings, workload), "trainjob", "kubectl apply --filename", GRACE_OF_RUNTIME)

"""Manifests for Kubernetes: a JobSet for a run, an indexed Job for the workers of a sweep.

From the JobSet API reference (jobset.sigs.k8s.io, v1alpha2), the Kubernetes API (batch/v1) and GKE's pages on TPUs
(cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and .../how-to/tpus).

The JobSet's own headless service names its pods ``NAME-workers-0-N.NAME``. On GPUs the manifest says by JAX's three variables
who is who: JAX's own detection would need the ``kubernetes`` package and a service account that may list pods. On TPUs GKE sets
``TPU_WORKER_ID`` and ``TPU_WORKER_HOSTNAMES`` in the pods of a JobSet, from which JAX finds out
(``jax/_src/clusters/cloud_tpu_cluster.py``); set here they could only contradict it.

A run that is asked to end (a node is drained, a spot machine taken) saves and ends with status 143. The shell around it, which
gets the signal instead, waits for that and fails too; the JobSet starts all pods again, and the run resumes.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from transformer_jax.config import ConfigError
from transformer_jax.tools.launching.field_formats import require_memory, require_name, require_word
from transformer_jax.tools.launching.tpu_slices import parse_slice
from transformer_jax.tools.launching.workload import STORAGE_VARIABLE, Sweep, Training, is_absolute, storage_path

Manifest = dict[str, Any]
WORKERS = "workers"
PORT = 8476
VOLUME = "shared"
# EX_TEMPFAIL of sysexits.h: try again.
INTERRUPTED = 75
STARTED = "/tmp/started"
# Asked to end by SIGTERM a run saves and ends, after a validation or a compilation at the latest.
GRACE = "# SIGTERM makes it save and end; "
SHELL = f"""trap 'stopped=yes; kill -TERM "$child"' TERM
{{command}} &
child=$!
wait "$child"
status=$?
# Terminated by Kubernetes: wait until everything is saved, and exit with a status that asks for a restart.
if [ -n "$stopped" ]; then wait "$child"; exit {INTERRUPTED}; fi
exit "$status"
"""


@dataclass(frozen=True)
class KubernetesSettings:
    """Settings of a Kubernetes launch; fields are the flags of ``transformer-jax launch kubernetes``."""

    name: str
    namespace: str | None
    image: str | None
    volume_claim: str | None
    mount_path: str
    tpu: str | None
    gpus_per_node: int | None
    gpu_type: str | None
    nodes: int
    cpus: int | None
    memory: str | None
    spot: bool
    max_restarts: int
    seconds_to_save: int
    minutes_without_progress: int

    def __post_init__(self) -> None:
        require_pod_settings(self, ("namespace", "image", "volume_claim", "gpu_type"))
        if (self.tpu is None) == (self.gpus_per_node is None):
            raise ConfigError(
                "--tpu, --gpus_per_node: give one of them; --gpus_per_node=0 is one process a node on its CPU"
            )
        if self.tpu is not None and self.nodes != 1:
            raise ConfigError(
                f"--nodes: {self.nodes}: the topology of --tpu says how many hosts there are; leave it out"
            )


def require_pod_settings(settings: Any, words: Sequence[str]) -> None:
    """Checks what every manifest has: name, image, volume and memory; ``words`` are flags that take a word.

    Raises ConfigError that names the flag.
    """
    require_name(settings.name)
    for flag in ("image", "volume_claim"):
        if getattr(settings, flag) is None:
            raise ConfigError(f"--{flag}: is missing; --help shows an example")
    for flag in words:
        if getattr(settings, flag) is not None:
            require_word(flag, getattr(settings, flag))
    if settings.memory is not None:
        require_memory(settings.memory, "Ki|Mi|Gi|Ti|k|M|G|T")
    if not settings.mount_path.startswith("/"):
        raise ConfigError(f"--mount_path: {settings.mount_path} must begin with /")


class Hosts(NamedTuple):
    """Hosts of a launch: their number, the devices of each, and the resources and selector of their pods."""

    number: int
    devices_of_each: int
    resources: dict[str, int]
    node_selector: dict[str, str]


def hosts_of(settings: KubernetesSettings) -> Hosts:
    """The hosts of these settings."""
    selector = {"cloud.google.com/gke-spot": "true"} if settings.spot else {}
    if settings.tpu is not None:
        tpu = parse_slice(settings.tpu)
        selector |= {
            "cloud.google.com/gke-tpu-accelerator": tpu.kind.gke,
            "cloud.google.com/gke-tpu-topology": tpu.topology,
        }
        chips = tpu.num_chips // tpu.num_hosts
        return Hosts(tpu.num_hosts, chips, {"google.com/tpu": chips}, selector)
    if settings.gpu_type is not None:
        selector |= {"cloud.google.com/gke-accelerator": settings.gpu_type}
    gpus = settings.gpus_per_node or 0
    return Hosts(settings.nodes, gpus or 1, {"nvidia.com/gpu": gpus} if gpus else {}, selector)


def manifest(settings: KubernetesSettings, workload: Training | Sweep) -> Manifest:
    """The manifest; raises ConfigError when the workload does not fit what is asked for."""
    hosts = hosts_of(settings)
    require_on_volume(settings.mount_path, "--workdir", workload.workdir)
    if isinstance(workload, Training):
        workload.require_fits(hosts.number * hosts.devices_of_each)
        return _job_set(settings, hosts, workload)
    if hosts.number != 1:
        asked = f"--tpu={settings.tpu}" if settings.tpu else f"--nodes={settings.nodes}"
        raise ConfigError(f"{asked}: each worker of a sweep has one host, and this is {hosts.number}; ask for one")
    path = storage_path(workload.storage) if workload.storage else None
    if path is not None:
        require_on_volume(settings.mount_path, "--storage", path)
    return _sweep_job(settings, hosts, workload)


def kubernetes_manifest(settings: KubernetesSettings, workload: Training | Sweep) -> str:
    """The manifest as YAML, fields in the order of ``manifest``."""
    grace = f"Kubernetes waits {settings.seconds_to_save} s for that (--seconds_to_save)."
    return as_yaml(manifest(settings, workload), "kubernetes", "kubectl apply --filename", grace)


def as_yaml(content: Manifest, launcher: str, start: str, grace: str) -> str:
    """A file of ``launcher`` that ``start`` starts, its fields in the order of ``content``; ``grace``: the time to save."""
    head = f"# Written by transformer-jax launch {launcher}. Start it with {start}.\n{GRACE}{grace}\n"
    return head + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """Scripts as blocks of lines, and no references to what was written before."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def require_on_volume(mount_path: str, flag: str, path: str) -> None:
    """Raises ConfigError, which names ``flag``, unless ``path`` is below ``mount_path``."""
    folder = mount_path.rstrip("/") + "/"
    if not is_absolute(path) or not f"{path}/".startswith(folder) or ".." in path.split("/"):
        raise ConfigError(f"{flag}: {path} is not on the volume, which --mount_path puts at {folder}; use {folder}NAME")


def _metadata(settings: KubernetesSettings) -> Manifest:
    namespace = {} if settings.namespace is None else {"namespace": settings.namespace}
    return {"name": settings.name, **namespace}


def _job_set(settings: KubernetesSettings, hosts: Hosts, workload: Training) -> Manifest:
    pod = _pod(settings, hosts, workload.command(hosts.number), _process_environment(settings, hosts))
    pod["spec"]["containers"][0] |= _probes(settings, workload)
    metadata = _metadata(settings)
    if settings.tpu is not None:
        # All pods on one slice, where the cluster has several of this topology.
        metadata["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    job = {
        "completionMode": "Indexed",
        "completions": hosts.number,
        "parallelism": hosts.number,
        # One pod that fails fails the Job, and the JobSet starts all of them again.
        "backoffLimit": 0,
        "template": pod,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": settings.max_restarts},
            "replicatedJobs": [{"name": WORKERS, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _probes(settings: KubernetesSettings, workload: Training) -> Manifest:
    """Ready: the run has written its goodput since the pod started. Alive, where that is asked for: it goes on doing so.

    A run writes it with every line of the log and every checkpoint. Without the limit a run that hangs ends by its own
    watchdog (``training.hang_factor``). Workers of a sweep send heartbeats to the study instead.
    """
    goodput = shlex.quote(f"{workload.workdir.rstrip('/')}/goodput.json")
    has_begun = _probe(f'test -n "$(find {goodput} -newer {STARTED})"')
    if not settings.minutes_without_progress:
        return {"readinessProbe": has_begun}
    minutes = settings.minutes_without_progress
    goes_on = _probe(f'test -n "$(find {goodput} -mmin -{minutes})"')
    return {
        "startupProbe": has_begun | {"failureThreshold": minutes},
        "readinessProbe": has_begun,
        "livenessProbe": goes_on | {"failureThreshold": 3},
    }


def _probe(test: str) -> Manifest:
    """Once a minute."""
    return {"exec": {"command": ["/bin/sh", "-c", unexpanded(test)]}, "periodSeconds": 60, "timeoutSeconds": 30}


def _sweep_job(settings: KubernetesSettings, hosts: Hosts, sweep: Sweep) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(settings),
        "spec": {
            "completionMode": "Indexed",
            "completions": sweep.workers,
            "parallelism": sweep.workers,
            # One worker's failures leave the others alone (Kubernetes 1.29).
            "backoffLimitPerIndex": settings.max_restarts,
            "template": _pod(settings, hosts, sweep.command(), _storage_environment(settings, sweep)),
        },
    }


def _storage_environment(settings: KubernetesSettings, sweep: Sweep) -> list[Manifest]:
    """The address of the study from the Secret ``NAME-storage``: it may hold a password, and manifests are kept and shown."""
    if not sweep.storage_is_in_environment:
        return []
    key = {"name": f"{settings.name}-storage", "key": "address"}
    return [{"name": STORAGE_VARIABLE, "valueFrom": {"secretKeyRef": key}}]


def _process_environment(settings: KubernetesSettings, hosts: Hosts) -> list[Manifest]:
    if hosts.number == 1 or settings.tpu is not None:
        return []
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{settings.name}-{WORKERS}-0-0.{settings.name}:{PORT}"},
        {"name": "JAX_NUM_PROCESSES", "value": str(hosts.number)},
        {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
    ]


def _pod(settings: KubernetesSettings, hosts: Hosts, command: list[str], environment: list[Manifest]) -> Manifest:
    asked: dict[str, int | str] = dict(hosts.resources)
    if settings.cpus is not None:
        asked["cpu"] = settings.cpus
    if settings.memory is not None:
        asked["memory"] = settings.memory
    container: Manifest = {
        "name": "worker",
        "image": settings.image,
        "command": ["/bin/sh", "-c", unexpanded(f"touch {STARTED}\n{SHELL.format(command=shlex.join(command))}")],
        "resources": {"limits": asked} if asked else {},
        "volumeMounts": [{"name": VOLUME, "mountPath": settings.mount_path}],
    }
    if environment:
        container["env"] = environment
    if any(variable["name"] == "JAX_COORDINATOR_ADDRESS" for variable in environment):
        container["ports"] = [{"containerPort": PORT}]
    pod: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.seconds_to_save,
        "containers": [container],
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": settings.volume_claim}}],
    }
    if hosts.node_selector:
        pod["nodeSelector"] = hosts.node_selector
    return {"spec": pod}


def unexpanded(script: str) -> str:
    """The script, with a second ``$`` where Kubernetes would put a variable for ``$(NAME)`` or one ``$`` for two."""
    return re.sub(r"\$(?=[$(])", "$$", script)

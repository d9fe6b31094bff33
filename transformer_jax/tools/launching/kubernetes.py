"""Manifests for Kubernetes: a JobSet for a run, for jobs that tokenize, or both; an indexed Job for the workers of a sweep.

From the JobSet API reference (jobset.sigs.k8s.io, v1alpha2), the Kubernetes API (batch/v1) and GKE's pages on TPUs
(cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and .../how-to/tpus).

On GPUs the manifest sets JAX's three variables for coordinator, number of processes and process id: JAX's own detection needs
the ``kubernetes`` package and a service account that may list pods. On TPUs GKE sets the variables that JAX reads
(``jax/_src/clusters/cloud_tpu_cluster.py``). The queue is Kueue's (kueue.sigs.k8s.io).
"""

import math
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import is_address
from transformer_jax.tools.launching import (
    PROGRAM,
    Evaluation,
    Sweep,
    Tokenizing,
    Training,
    Workload,
    is_absolute,
    require_given,
    require_memory,
    require_name,
)
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE

Manifest = dict[str, Any]
WORKERS = "workers"
PORT = 8476
VOLUME = "shared"
# Topologies and chips per VM: cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}.
FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
CUBIC = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
# Value of GKE's node selector, and topologies.
KINDS = {
    "v4": ("tpu-v4-podslice", CUBIC),
    "v5e": ("tpu-v5-lite-podslice", FLAT),
    "v5p": ("tpu-v5p-slice", (*CUBIC, "16x16x16")),
    "v6e": ("tpu-v6e-slice", FLAT),
}
# EX_TEMPFAIL of sysexits.h.
INTERRUPTED = 75
# A week to read the logs; the run itself is on the volume or in the object store.
SECONDS_UNTIL_REMOVED = 7 * 24 * 3600
# The largest number of restarts that Kubernetes takes.
NO_LIMIT = 2**31 - 1
STARTED = "/tmp/started"
# It finishes a validation or compilation first.
GRACE = "# On SIGTERM a run saves and ends; "
SHELL = f"""trap 'stopped=yes; kill -TERM "$child"' TERM
{{command}} &
child=$!
wait "$child"
status=$?
# Terminated by Kubernetes: wait until everything is saved, and fail so that the job is restarted.
if [ -n "$stopped" ]; then wait "$child"; exit {INTERRUPTED}; fi
exit "$status"
"""


@dataclass(frozen=True)
class KubernetesSettings:
    """Settings of a Kubernetes launch; fields are the flags of ``transformer-jax launch kubernetes``."""

    name: str
    namespace: str | None
    queue: str | None
    secret: str | None
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

    def __post_init__(self) -> None:
        require_name(self.name)
        # Clusters with quotas refuse pods that state no CPU and memory.
        require_given(self, image="REGISTRY/IMAGE", cpus="8", memory="32Gi")
        require_memory(self.memory, "Ki|Mi|Gi|Ti|k|M|G|T")
        if (self.tpu is None) == (self.gpus_per_node is None):
            raise ConfigError("--tpu, --gpus_per_node: give one of them; --gpus_per_node=0 uses CPUs alone")
        if self.tpu is not None and self.nodes != 1:
            raise ConfigError(f"--nodes: {self.nodes}: the topology of --tpu sets the number of hosts; leave it out")
        if self.gpu_type is not None and not self.gpus_per_node:
            raise ConfigError(f"--gpu_type: {self.gpu_type}: without --gpus_per_node there is no GPU; leave it out")


class Hosts(NamedTuple):
    """Hosts of a launch: their number, the devices of each, and the resources and selector of their pods."""

    number: int
    devices_of_each: int
    resources: dict[str, int]
    node_selector: dict[str, str]


def hosts_of_slice(text: str) -> Hosts:
    """The hosts of a slice such as ``v5e:4x4``; raises ConfigError, which lists the slices, if Google does not offer it."""
    kind, _, topology = text.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"--tpu: {text!r} is not KIND:TOPOLOGY such as v5e:4x4; kinds: {', '.join(KINDS)}")
    gke, topologies = KINDS[kind]
    if topology not in topologies:
        raise ConfigError(f"--tpu: {kind} has no slice {topology!r}; slices: {', '.join(topologies)}")
    num_chips = math.prod(map(int, topology.split("x")))
    # Up to eight chips of v5e and v6e are one host; otherwise each host has four.
    chips = num_chips if topologies is FLAT and num_chips <= 8 else 4
    selector = {"cloud.google.com/gke-tpu-accelerator": gke, "cloud.google.com/gke-tpu-topology": topology}
    return Hosts(num_chips // chips, chips, {"google.com/tpu": chips}, selector)


def _hosts(settings: KubernetesSettings) -> Hosts:
    spot = {"cloud.google.com/gke-spot": "true"} if settings.spot else {}
    if settings.tpu is not None:
        hosts = hosts_of_slice(settings.tpu)
        return hosts._replace(node_selector=spot | hosts.node_selector)
    gpus = settings.gpus_per_node or 0
    selector = {} if settings.gpu_type is None else {"cloud.google.com/gke-accelerator": settings.gpu_type}
    return Hosts(settings.nodes, gpus or 1, {"nvidia.com/gpu": gpus} if gpus else {}, spot | selector)


def kubernetes_manifest(settings: KubernetesSettings, workload: Workload) -> str:
    """The manifest as YAML; raises ConfigError if the workload does not fit the hosts."""
    hosts = _hosts(settings)
    for each in (workload, *workload.followers):
        require_on_volume(settings.volume_claim, settings.mount_path, each)
    if not isinstance(workload, Sweep):
        content = _job_set(settings, hosts, workload)
    elif hosts.number == 1:
        content = _sweep_job(settings, hosts, workload)
    else:
        asked = f"--tpu={settings.tpu}" if settings.tpu else f"--nodes={settings.nodes}"
        raise ConfigError(
            f"{asked}: has {hosts.number} hosts, but each worker of a sweep runs on one; request one host"
        )
    grace = f"Kubernetes waits {settings.seconds_to_save} s for that (--seconds_to_save)."
    return as_yaml(content, "kubernetes", "kubectl apply --filename", grace)


def as_yaml(content: Manifest | list[Manifest], launcher: str, start: str, grace: str) -> str:
    """A YAML file that the command ``start`` starts, fields in the order of ``content``; ``grace``: the time to save.

    A list gives a document for each of its items.
    """
    documents = content if isinstance(content, list) else [content]
    head = f"# Written by transformer-jax launch {launcher}. Start it with {start}.\n{GRACE}{grace}\n"
    return head + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes scripts as block literals, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def require_on_volume(volume: str | None, mount_path: str, workload: Workload | Evaluation) -> None:
    """Raises ConfigError unless run and token store are at addresses, or below the absolute ``mount_path`` of a volume."""
    if not mount_path.startswith("/"):
        raise ConfigError(f"--mount_path: {mount_path} must begin with /")
    folder = mount_path.rstrip("/") + "/"
    paths = {"--output" if isinstance(workload, Tokenizing) else "--workdir": workload.workdir}
    if isinstance(workload, Training):
        paths["--config.data.store"] = workload.config.data.store
    for key, path in paths.items():
        if not path or is_address(path):
            continue
        if not (is_absolute(path) and f"{path}/".startswith(folder)) or ".." in path.split("/"):
            raise ConfigError(
                f"{key}: {path} is not on the volume of --mount_path; use {folder}NAME, or gs:// or s3://"
            )
        if volume is None:
            problem = f"is missing; without a volume {path} is lost with its machine"
            raise ConfigError(f"--volume_claim: {problem}; give one, or a path at gs:// or s3://")


def _metadata(settings: KubernetesSettings) -> Manifest:
    namespace = {} if settings.namespace is None else {"namespace": settings.namespace}
    queue = {} if settings.queue is None else {"kueue.x-k8s.io/queue-name": settings.queue}
    return {"name": settings.name, **namespace, "labels": _labels(settings) | queue}


def _labels(settings: KubernetesSettings) -> dict[str, str]:
    return {"app.kubernetes.io/name": PROGRAM, "app.kubernetes.io/instance": settings.name}


def _job_set(settings: KubernetesSettings, hosts: Hosts, workload: Tokenizing | Training) -> Manifest:
    jobs = [] if workload.tokenizing is None else _tokenizing_jobs(settings, workload.tokenizing)
    if isinstance(workload, Training):
        jobs.append(_workers(settings, hosts, workload, after=jobs[-1]["name"] if jobs else ""))
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(settings),
        "spec": {
            "ttlSecondsAfterFinished": SECONDS_UNTIL_REMOVED,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": settings.max_restarts},
            "replicatedJobs": [*jobs, *(_follower(settings, each) for each in workload.followers)],
        },
    }


def _workers(settings: KubernetesSettings, hosts: Hosts, workload: Training, after: str) -> Manifest:
    """The job of a run."""
    workload.require_fits(hosts.number * hosts.devices_of_each)
    command = shlex.join(workload.command(hosts.number))
    pod = _pod(settings, hosts, command, _process_environment(settings, hosts))
    pod["spec"]["containers"][0] |= _readiness(workload)
    job = {
        "completionMode": "Indexed",
        "completions": hosts.number,
        "parallelism": hosts.number,
        # If one pod fails, the Job fails, and the JobSet restarts all pods.
        "backoffLimit": 0,
        "template": pod,
    }
    workers = _replicated_job(WORKERS, job, after)
    if settings.tpu is not None:
        # All pods on one slice, even if the cluster has several of this topology.
        exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
        workers["template"] = {"metadata": {"annotations": exclusive}} | workers["template"]
    return workers


def _replicated_job(name: str, spec: Manifest, after: str, status: str = "Complete") -> Manifest:
    """A job of a JobSet that begins when the job ``after``, if there is one, has this status."""
    depends = {"dependsOn": [{"name": after, "status": status}]} if after else {}
    return {"name": name, "replicas": 1, **depends, "template": {"spec": spec}}


def _tokenizing_jobs(settings: KubernetesSettings, tokenizing: Tokenizing) -> list[Manifest]:
    """The first shard, which trains the tokenizers, and then all; on CPUs."""
    hosts = Hosts(1, 1, {}, {"cloud.google.com/gke-spot": "true"} if settings.spot else {})
    pod = _pod(settings, hosts, tokenizing.command("$JOB_COMPLETION_INDEX"), [])
    first, all_shards = (_indexed(settings.max_restarts, number, pod) for number in (1, tokenizing.shards))
    return [_replicated_job("tokenizers", first, ""), _replicated_job("tokens", all_shards, "tokenizers")]


def _follower(settings: KubernetesSettings, follower: Sweep | Evaluation) -> Manifest:
    """A job on one device, or the smallest slice, when the run is ready or complete."""
    if settings.tpu is None:
        one = replace(settings, nodes=1, gpus_per_node=min(settings.gpus_per_node or 0, 1))
    else:
        kind = settings.tpu.partition(":")[0]
        one = replace(settings, tpu=f"{kind}:{KINDS[kind][1][0]}")
    hosts = _hosts(one)
    if isinstance(follower, Sweep):
        follower.require_fits(hosts.devices_of_each)
    pod = _pod(settings, hosts, shlex.join(follower.command()), _sweep_environment(settings, follower))
    # If it failed, the JobSet would restart the run.
    spec = _indexed(NO_LIMIT, follower.workers, pod)
    return _replicated_job(follower.kind, spec, WORKERS, "Ready" if follower.is_beside else "Complete")


def _indexed(max_restarts: int, number: int, pod: Manifest) -> Manifest:
    """A job of ``number`` pods; if one fails, the others continue (Kubernetes 1.29)."""
    return {
        "completionMode": "Indexed",
        "completions": number,
        "parallelism": number,
        "backoffLimitPerIndex": max_restarts,
        "template": pod,
    }


def _readiness(workload: Training) -> Manifest:
    """Ready: the run has written ``goodput.json``, as it does with every line of the log, since the pod started.

    A run in an object store has no probe.
    """
    if is_address(workload.workdir):
        return {}
    goodput = shlex.quote(f"{workload.workdir.rstrip('/')}/goodput.json")
    command = ["/bin/sh", "-c", unexpanded(f'test -n "$(find {goodput} -newer {STARTED})"')]
    return {"readinessProbe": {"exec": {"command": command}, "periodSeconds": 60, "timeoutSeconds": 30}}


def _sweep_job(settings: KubernetesSettings, hosts: Hosts, sweep: Sweep) -> Manifest:
    sweep.require_fits(hosts.devices_of_each)
    pod = _pod(settings, hosts, shlex.join(sweep.command()), _sweep_environment(settings, sweep))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(settings),
        "spec": {"ttlSecondsAfterFinished": SECONDS_UNTIL_REMOVED}
        | _indexed(settings.max_restarts, sweep.workers, pod),
    }


def _sweep_environment(settings: KubernetesSettings, workload: Sweep | Evaluation) -> list[Manifest]:
    # The URL of the study may contain a password, so it is read from the Secret NAME-storage.
    secret = {"secretKeyRef": {"name": f"{settings.name}-storage", "key": "address"}}
    return [{"name": STORAGE_VARIABLE, "valueFrom": secret}] if workload.has_database else []


def _process_environment(settings: KubernetesSettings, hosts: Hosts) -> list[Manifest]:
    if hosts.number == 1 or settings.tpu is not None:
        return []
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{settings.name}-{WORKERS}-0-0.{settings.name}:{PORT}"},
        {"name": "JAX_NUM_PROCESSES", "value": str(hosts.number)},
        {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
    ]


def _pod(settings: KubernetesSettings, hosts: Hosts, command: str, environment: list[Manifest]) -> Manifest:
    asked = {**hosts.resources, "cpu": settings.cpus, "memory": settings.memory}
    container: Manifest = {
        "name": "worker",
        "image": settings.image,
        "command": ["/bin/sh", "-c", unexpanded(f"touch {STARTED}\n{SHELL.format(command=command)}")],
        "resources": {"requests": asked, "limits": asked},
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.seconds_to_save,
        "containers": [container],
    }
    if settings.volume_claim is not None:
        container["volumeMounts"] = [{"name": VOLUME, "mountPath": settings.mount_path}]
        pod["volumes"] = [{"name": VOLUME, "persistentVolumeClaim": {"claimName": settings.volume_claim}}]
    if settings.secret is not None:
        container["envFrom"] = [{"secretRef": {"name": settings.secret}}]
    if environment:
        container["env"] = environment
    if any(variable["name"] == "JAX_COORDINATOR_ADDRESS" for variable in environment):
        container["ports"] = [{"containerPort": PORT}]
    if hosts.node_selector:
        pod["nodeSelector"] = hosts.node_selector
    return {"metadata": {"labels": _labels(settings)}, "spec": pod}


def unexpanded(script: str) -> str:
    """The script with ``$$`` for ``$`` where Kubernetes would expand ``$(NAME)`` or ``$$``."""
    return re.sub(r"\$(?=[$(])", "$$", script)

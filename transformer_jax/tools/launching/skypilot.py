"""A SkyPilot task for a run, or for the workers of a sweep, one per node; a pipeline of tasks with jobs that tokenize.

From the task schema of SkyPilot (docs.skypilot.co, YAML specification). SkyPilot gives each node the addresses of all nodes,
their number and its rank, from which the script sets JAX's three variables. A managed job (``sky jobs launch``) is restarted
elsewhere when its spot machines are preempted or a process fails, and the run resumes from an object store or the shared disk:
a volume (``sky volumes apply``; Kubernetes and RunPod), or one that ``setup`` mounts, such as NFS. A mounted bucket does not
work: its files cannot be appended to.
"""

import shlex
from dataclasses import dataclass

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import is_address
from transformer_jax.tools.launching import Sweep, Training, Workload, is_absolute, require_name
from transformer_jax.tools.launching.kubernetes import PORT, Manifest, as_yaml, require_on_volume
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE

GRACE = "spot machines get 30 s to two minutes for that, or none: rely on training.checkpoint_every."
RANK = "$SKYPILOT_NODE_RANK"
PROCESSES = f"""export JAX_COORDINATOR_ADDRESS="$(echo "$SKYPILOT_NODE_IPS" | head -n1):{PORT}"
export JAX_NUM_PROCESSES="$SKYPILOT_NUM_NODES" JAX_PROCESS_ID="$SKYPILOT_NODE_RANK"
"""


@dataclass(frozen=True)
class SkyPilotSettings:
    """Settings of a SkyPilot task; fields are the flags of ``transformer-jax launch skypilot``."""

    name: str
    gpu_type: str | None
    gpus_per_node: int | None
    nodes: int
    cpus: int | None
    spot: bool
    setup: str | None
    image: str | None
    volume_claim: str | None
    mount_path: str

    def __post_init__(self) -> None:
        require_name(self.name)
        if bool(self.gpu_type) != bool(self.gpus_per_node):
            raise ConfigError("--gpu_type, --gpus_per_node: give both, such as --gpu_type=H100 --gpus_per_node=8")
        if not (self.image or self.setup):
            problem = "give one: the machines have no transformer-jax, such as --setup='pip install ...'"
            raise ConfigError(f"--image, --setup: {problem}")


def sky_task(settings: SkyPilotSettings, workload: Workload) -> str:
    """The task, or a pipeline of tasks, as YAML; raises ConfigError if the workload does not fit the nodes."""
    for each in (workload, *workload.followers):
        if settings.volume_claim or not settings.setup:
            require_on_volume(settings.volume_claim, settings.mount_path, each)
        elif not (is_absolute(each.workdir) or is_address(each.workdir)):
            raise ConfigError(f"--workdir: {each.workdir} is not absolute; give a path on the disk that --setup mounts")
    # SkyPilot restarts a job after a preemption only, unless this says otherwise.
    resources: Manifest = {"job_recovery": {"max_restarts_on_errors": 10}}
    if settings.cpus is not None:
        resources["cpus"] = f"{settings.cpus}+"
    if settings.image is not None:
        resources["image_id"] = f"docker:{settings.image}"
    if settings.spot:
        resources["use_spot"] = True

    def task(name: str, number: int, command: str, accelerators: str, has_database: bool = False) -> Manifest:
        asked = ({"accelerators": accelerators} if settings.gpus_per_node and accelerators else {}) | resources
        return {
            "name": name,
            "num_nodes": number,
            "resources": asked,
            **({"volumes": {settings.mount_path: settings.volume_claim}} if settings.volume_claim else {}),
            # No value: sky jobs launch --env NAME takes it from the user's environment.
            **({"envs": {STORAGE_VARIABLE: None}} if has_database else {}),
            **({"setup": settings.setup} if settings.setup else {}),
            "run": f"{command}\n",
        }

    # A pipeline of managed jobs: each begins when the one before it has succeeded.
    tasks, gpus, nodes = [], f"{settings.gpu_type}:{settings.gpus_per_node}", settings.nodes
    if workload.tokenizing is not None:
        shards = workload.tokenizing.command(RANK)
        for name, number in (("tokenizers", 1), ("tokens", workload.tokenizing.shards)):
            tasks.append(task(f"{settings.name}-{name}", number, shards, ""))
    if isinstance(workload, Training):
        workload.require_fits(nodes * (settings.gpus_per_node or 1))
        script = (PROCESSES if nodes > 1 else "") + shlex.join(workload.command(nodes))
        tasks.append(task(settings.name, nodes, script, gpus))
    elif isinstance(workload, Sweep):
        workload.require_fits(settings.gpus_per_node or 1)
        tasks.append(task(settings.name, workload.workers, shlex.join(workload.command()), gpus, workload.has_database))
    for each in workload.followers:
        if isinstance(each, Sweep):
            each.require_fits(1)
        name, command = f"{settings.name}-{each.kind}", shlex.join(each.command())
        tasks.append(task(name, each.workers, command, f"{settings.gpu_type}:1", each.has_database))
    head = [{"name": settings.name}] if len(tasks) > 1 else []
    return as_yaml([*head, *tasks], "skypilot", "sky jobs launch", GRACE)

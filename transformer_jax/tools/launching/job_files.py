"""Job files for SLURM, Kubernetes and SkyPilot: templates, filled for a chain of jobs.

From the manuals of sbatch, srun, scancel and scontrol (slurm.schedmd.com), the references of
batch/v1, JobSet (jobset.sigs.k8s.io) and Kueue, GKE's pages on TPUs
(cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}), and the schema of SkyPilot (docs.skypilot.co). In
tasks of SLURM and on TPUs of GKE, JAX reads the variables of the cluster. Elsewhere the script sets
the three variables of ``jax.distributed.initialize``.
"""

import hashlib
import json
import math
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.optimization import mesh_sizes, require_rows_divide
from transformer_jax.files.paths import is_address
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE

TEMPLATES = {"slurm": "slurm.sbatch", "kubernetes": "kubernetes.yaml", "skypilot": "skypilot.yaml"}
WORD = r"[^\s\"'`\\$#]+", "one word without quotes, $, # and backslashes"
LABEL = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", "lower-case letters, digits, dots and hyphens, such as team-a"
# Kubernetes appends to it to name a host, and host names have at most 63 characters.
NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", "at most 40 lower-case letters, digits and hyphens, and begin with a letter"
MEMORY = r"[1-9][0-9]*[MGT]i?", "a number with one of M, G, T, Mi, Gi, Ti, such as 64G"
IMAGE = r"[A-Za-z0-9][A-Za-z0-9_./:@-]*", "the name of an image, such as REGISTRY/IMAGE:TAG"
GPU = r"[A-Za-z0-9][A-Za-z0-9_.-]*", "the name of a GPU, such as nvidia-h100-80gb or H100"
FOLDER = r"/[A-Za-z0-9_./-]*", "an absolute path of letters, digits, _, ., / and -, such as /shared"
FLAT = "1x1|2x2|2x4|4x4|4x8|8x8|8x16|16x16"
CUBIC = "2x2x1|2x2x2|2x2x4|2x4x4|4x4x4|4x4x8|4x8x8|8x8x8|8x8x16|8x16x16"
SLICE = rf"(v5e|v6e):({FLAT})|(v4|v5p):({CUBIC})|v5p:16x16x16", f"v5e: or v6e: and {FLAT}, or v4: or v5p: and {CUBIC}"
SHELL = r"(?s).+", "a command of the shell"
# Flags with text: launchers that take it, meaning, and pattern and description of its values.
TEXTS = {
    "name": ("slurm, kubernetes, skypilot", "of the job (default: from the folder of the run or store)", NAME),
    "time": ("slurm", "limit, D-HH:MM:SS or HH:MM:SS; before it the run saves and is queued again", WORD),
    **dict.fromkeys(("partition", "account", "qos", "constraint"), ("slurm", "passed to sbatch", WORD)),
    "memory": ("slurm, kubernetes", "of each node or pod, such as 64G", MEMORY),
    "setup": ("slurm, skypilot", "commands to run first, such as 'source venv/bin/activate'", SHELL),
    "tpu": ("kubernetes", "KIND:TOPOLOGY, such as v5e:4x4, v5p:2x2x4, v6e:2x4", SLICE),
    "namespace": ("kubernetes", "namespace of the job", LABEL),
    "queue": ("kubernetes", "local queue of Kueue that starts the job", LABEL),
    "secret": ("kubernetes", "a Secret with environment variables, such as WANDB_API_KEY", LABEL),
    "image": ("kubernetes, skypilot", "a container image with transformer-jax in it", IMAGE),
    "volume_claim": ("kubernetes, skypilot", "claim or volume of the shared disk; none at gs:// or s3://", LABEL),
    "mount_path": ("kubernetes, skypilot", "mount point of the shared disk (default: /shared)", FOLDER),
    "gpu_type": ("kubernetes, skypilot", "gke-accelerator, such as nvidia-h100-80gb; or such as H100", GPU),
}
# Value of GKE's node selector.
TPUS = {"v4": "tpu-v4-podslice", "v5e": "tpu-v5-lite-podslice", "v5p": "tpu-v5p-slice", "v6e": "tpu-v6e-slice"}
# SLURM gives a task one core otherwise. Clusters with quotas refuse pods without CPU and memory.
REQUIRED = {"slurm": ("gpus_per_node", "cpus"), "kubernetes": ("image", "cpus", "memory"), "skypilot": ()}
EXAMPLES = {"gpus_per_node": "8, or 0 for CPUs", "cpus": "8", "memory": "32Gi", "image": "REGISTRY/IMAGE"}
# Plugins go along with a job: Kubernetes mounts them from a ConfigMap of at most 1 MiB, SkyPilot
# copies them.
SHIPPED = {"kubernetes": "/plugins", "skypilot": "/tmp/transformer_jax_plugins"}
MOST_SHIPPED = 2**20 - 2**14
# Kinds of jobs.
TOKENIZING = ("tokenizers", "tokens")
FOLLOWERS = ("evaluate", "sweep")
SWEEPS = ("workers", "sweep")
_FIELD = re.compile(r"\{\{([a-z_]+)\}\}")
Fields = Mapping[str, Any]


class Job(NamedTuple):
    """A job of the chain tokenizers, tokens, run, evaluate, or sweep.

    The ``kind`` may also be ``workers``, of a sweep. ``words``: the command. ``after``: the kind of
    the job before. ``copies``: processes that do not communicate.
    """

    kind: str
    words: Sequence[str]
    workdir: str
    after: str | None = None
    copies: int = 1
    configs: Sequence[ExperimentConfig] = ()
    budget: str | None = None


def filled(file: str, fields: Fields) -> str:
    """Fill the fields of a template. A line with a field that is None is left out."""
    lines = resources.files(__package__).joinpath(file).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = (line for line in lines if all(fields[name] is not None for name in _FIELD.findall(line)))
    return "".join(_FIELD.sub(lambda field: str(fields[field[1]]), line) for line in kept)


def shell_words(words: Sequence[str]) -> str:
    r"""Quote words for bash, on one line: a word with a line break becomes ``$'\x61\x0a'``."""
    escaped = [re.sub("..", r"\\x\g<0>", word.encode().hex()) for word in words]
    return " ".join(shlex.quote(a) if a.isprintable() else f"$'{b}'" for a, b in zip(words, escaped, strict=True))


def yaml_value(value: Any) -> str:
    """Write a value as YAML on one line: JSON, but without pairs of surrogates."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(value, ensure_ascii=False))


def job_name(path: str) -> str:
    """Return ``base`` for the path ``base``, ``base-`` and a digest for ``runs/base``."""
    path = path.rstrip("/")
    last = unicodedata.normalize("NFKD", path.rpartition("/")[2].casefold()).encode("ascii", "ignore").decode()
    name = re.sub("[^a-z0-9]+", "-", last).strip("-").lstrip("-0123456789")
    if name == path and re.fullmatch(NAME[0], name):
        return name
    return f"{name[:31].rstrip('-') or 'run'}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def beside(workdir: str, name: str) -> str | None:
    """Return the folder ``name`` next to a run directory, None for a relative path."""
    parent = workdir.rstrip("/").rpartition("/")[0]
    return f"{parent}/{name}" if workdir.startswith(("~/", "/")) and parent not in ("", "~") else None


def job_file(launcher: str, flags: Fields, jobs: Sequence[Job]) -> str:
    """Return a script for sbatch, or for bash with several jobs, a JobSet, or a SkyPilot task."""
    _require_flags(launcher, flags)
    if launcher != "slurm":
        # The run first: its error names data.store, and one of tokenize names --output.
        for job in reversed(jobs):
            _require_on_volume(launcher, flags, job)
    texts = [filled(TEMPLATES[launcher], _fields(launcher, flags, job)) for job in jobs]
    if launcher == "kubernetes":
        if plugins := _plugins_of(jobs):
            contents = {name: Path(file).expanduser().read_text(encoding="utf-8") for name, file in plugins.items()}
            if sum(len(text.encode()) for text in contents.values()) > MOST_SHIPPED:
                raise ConfigError("--plugin", "a ConfigMap holds less than 1 MiB", "put the files into the image")
            texts[0] = filled("config_map.yaml", {**flags, "plugins": yaml_value(contents)}) + texts[0]
        head, marker, _ = texts[0].partition("  replicatedJobs:\n")
        return head + marker + "".join(text.partition(marker)[2] for text in texts)
    if len(jobs) == 1:
        return texts[0]
    if launcher == "skypilot":
        return f'name: "{flags["name"]}"\n---\n' + "---\n".join(texts)
    text = "#!/bin/bash\n# Start it with bash, in the folder that relative paths start from; again after a failure.\nset -e\n"
    for (kind, _, _, before, *_), script in zip(jobs, texts, strict=True):
        after = f" --dependency=afterok:${before} --kill-on-invalid-dep=yes" if before else ""
        text += f"{kind}=$(sbatch --parsable{after} <<'END_OF_JOB'\n{script}END_OF_JOB\n)\n"
        text += f'{kind}=${{{kind}%%;*}}\necho "{kind}: job ${kind}"\n'
    return text


def _plugins_of(jobs: Iterable[Job]) -> dict[str, str]:
    """Return the files of ``--plugin`` in the commands, by their names on the machines."""
    files = dict.fromkeys(word.partition("=")[2] for job in jobs for word in job.words if word.startswith("--plugin="))
    by_name = {Path(file).name: file for file in files}
    if len(by_name) < len(files):
        raise ConfigError("--plugin", f"{', '.join(files)}: two files have one name", "rename one")
    return by_name


def _require_flags(launcher: str, flags: Fields) -> None:
    for flag, (_, _, (pattern, needed)) in TEXTS.items():
        if flags[flag] is not None and not re.fullmatch(pattern, flags[flag]):
            raise ConfigError(f"--{flag}", f"{flags[flag]!r} must be {needed}")
    for flag in REQUIRED[launcher]:
        if flags[flag] is None:
            raise ConfigError(f"--{flag}", "is missing", f"write --{flag}={EXAMPLES[flag]}")
    if launcher == "kubernetes":
        if (flags["tpu"] is None) == (flags["gpus_per_node"] is None):
            raise ConfigError("--tpu, --gpus_per_node", "give one of them", "--gpus_per_node=0 uses CPUs alone")
        if flags["tpu"] and flags["nodes"] != 1:
            raise ConfigError("--nodes", f"{flags['nodes']}: the topology of --tpu sets the hosts", "leave it out")
    elif launcher == "skypilot" and not (flags["image"] or flags["setup"]):
        problem, remedy = "the machines have no transformer-jax", "give one, such as --setup='pip install ...'"
        raise ConfigError("--image, --setup", problem, remedy)
    has_type, has_gpus = bool(flags["gpu_type"]), bool(flags["gpus_per_node"])
    if has_type > has_gpus or (launcher == "skypilot" and has_gpus > has_type):
        raise ConfigError("--gpu_type, --gpus_per_node", "give both, such as --gpu_type=H100 --gpus_per_node=8")


def _hosts(flags: Fields, job: Job) -> tuple[int, int, str | None]:
    """Return hosts, devices of a host (0: CPUs) and TPU topology, if mesh and batch fit them."""
    if job.kind in TOKENIZING:
        return 1, 0, None
    hosts, devices, topology = flags["nodes"], flags["gpus_per_node"] or 0, (flags["tpu"] or "").partition(":")[2]
    if job.kind in FOLLOWERS:
        # One device, or the smallest slice.
        hosts, devices = 1, min(devices, 1)
        topology = topology and ("1x1" if topology.count("x") == 1 else "2x2x1")
    if topology:
        chips = math.prod(map(int, topology.split("x")))
        # Up to eight chips of v5e and v6e are one host. Other hosts have four.
        devices = chips if topology.count("x") == 1 and chips <= 8 else 4
        hosts = -(-chips // devices)
    if job.kind == "workers" and hosts > 1:
        raise ConfigError(
            "--nodes, --tpu", f"{hosts} hosts, but each worker of a sweep runs on one", "request one host"
        )
    for config in job.configs:
        sizes = mesh_sizes(config.mesh, hosts * (devices or 1), "that the launch requests")
        require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, sizes)
    return hosts, devices, topology or None


def _fields(launcher: str, flags: Fields, job: Job) -> dict[str, Any]:
    (hosts, devices, topology), is_run, words = _hosts(flags, job), job.kind == "run", list(job.words)
    tasks = devices if is_run and launcher == "slurm" and devices else 1
    if is_run:
        if job.budget and hosts * tasks > 1:
            problem = f"{job.budget} sizes a run of one process, and the launch requests {hosts * tasks}"
            raise ConfigError("--budget", problem, "take a recipe with sizes, or a run that has begun (--config=RUN)")
        kept = (word for word in words[1:] if not re.fullmatch("--(no)?distributed(=.*)?", word))
        words = [words[0], *(["--distributed"] if hosts * tasks > 1 else []), *kept]
    plugins = _plugins_of([job]) if launcher in SHIPPED else {}
    shipped = {f"--plugin={file}": f"--plugin={SHIPPED[launcher]}/{name}" for name, file in plugins.items()}
    words = [shipped.get(word, word) for word in words]
    volumes = (
        {"shared": {"persistentVolumeClaim": {"claimName": flags["volume_claim"]}}} if flags["volume_claim"] else {}
    )
    mounts = dict.fromkeys(volumes, flags["mount_path"])
    if plugins and launcher == "kubernetes":
        volumes["plugins"] = {"configMap": {"name": f"{flags['name']}-plugins"}}
        mounts["plugins"] = SHIPPED[launcher]
    return {
        **flags,
        "kind": job.kind,
        "job": flags["name"] if is_run or job.kind == "workers" else f"{flags['name']}-{job.kind}",
        "after": job.after,
        "hosts": hosts if is_run or launcher == "slurm" else job.copies,
        "tasks": tasks,
        "processes": hosts if is_run and hosts > 1 and not topology else None,
        "gpus": None if topology else devices or None,
        "chips": devices if topology else None,
        "topology": topology,
        "tpu_accelerator": TPUS[flags["tpu"].partition(":")[0]] if topology else None,
        "slice": topology if is_run else None,
        "spot": "true" if flags["spot"] else None,
        # SLURM counts 1,024 MiB as 1G.
        "memory": flags["memory"] and (flags["memory"].rstrip("i") if launcher == "slurm" else flags["memory"]),
        "shards": job.copies if job.kind == "tokens" else None,
        # The job before the tokens has written the first shard.
        "array": f"{int(job.kind == 'tokens')}-{job.copies - 1}" if job.kind in ("tokens", *SWEEPS) else None,
        # Without the signal, a shard that takes longer than the limit ends: tokenizing cannot save.
        "seconds_before_limit": flags["seconds_to_save"] if flags["time"] and job.kind not in TOKENIZING else None,
        # A failed job would restart the run, so later jobs have the largest number of restarts.
        "restarts": 0 if is_run else None,
        "restarts_of_each": None if is_run else 2**31 - 1 if job.kind in FOLLOWERS else flags["max_restarts"],
        "storage_variable": STORAGE_VARIABLE if job.kind in SWEEPS and os.environ.get(STORAGE_VARIABLE) else None,
        "setup_text": flags["setup"] and yaml_value(flags["setup"]),
        "volumes": yaml_value([{"name": name, **volume} for name, volume in volumes.items()]) if volumes else None,
        "mounts": yaml_value([{"name": name, "mountPath": path} for name, path in mounts.items()]) if mounts else None,
        "file_mounts": yaml_value({f"{SHIPPED[launcher]}/{name}": file for name, file in plugins.items()})
        if plugins and launcher == "skypilot"
        else None,
        "command": shell_words(words),
        # Kubernetes would expand $(NAME), and read $$ as $.
        "arguments": yaml_value([re.sub(r"\$(?=[$(])", "$$", word) for word in words]),
    }


def _require_on_volume(launcher: str, flags: Fields, job: Job) -> None:
    """Raise ConfigError unless run and token store are at addresses or on a shared disk."""
    is_mounted = launcher == "skypilot" and flags["setup"] and not flags["volume_claim"]
    folder = "/" if is_mounted else flags["mount_path"].rstrip("/") + "/"
    stores = [("data.store", config.data.store) for config in job.configs if job.kind == "run"]
    for key, path in (("--output" if job.kind in TOKENIZING else "--workdir", job.workdir), *stores):
        if not path or is_address(path):
            continue
        if not f"{path}/".startswith(folder) or ".." in path.split("/"):
            raise ConfigError(key, f"{path} is not below --mount_path", f"write {folder}NAME, or gs:// or s3://")
        if not (flags["volume_claim"] or is_mounted):
            problem = f"is missing; without a volume {path} is lost with its machine"
            raise ConfigError("--volume_claim", problem, "give one, or a path at gs:// or s3://")

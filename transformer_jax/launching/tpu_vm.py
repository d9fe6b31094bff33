"""A shell script around gcloud: makes Cloud TPU VMs, starts the program on all hosts, looks at it, stops it.

From cloud.google.com/tpu/docs/jax-pods (a command on all workers), .../docs/queued-resources and the gcloud reference.
JAX learns from the machine's metadata who is who (``jax/_src/clusters/cloud_tpu_cluster.py``), so that every host gets the same
command; ``jax[tpu]`` installs what that needs. The program runs on when gcloud's connection has ended.
"""

import shlex
from dataclasses import dataclass

from transformer_jax.config import ConfigError
from transformer_jax.launching.field_formats import require_name, require_word
from transformer_jax.launching.tpu_slices import TpuSlice, parse_slice
from transformer_jax.launching.workload import STORAGE_VARIABLE, Sweep, Training, is_absolute

SCRIPT = """#!/bin/bash
# Written by transformer-jax launch tpu-vm: {accelerator}, {hosts}. In this order:
# bash FILE create     makes the TPU VMs{queued}
# bash FILE start      starts the program on every host; after an interruption the same resumes
# bash FILE log        shows the last lines of the first host, and those that follow
# bash FILE stop       asks it to save and end, and waits for nothing; a spot TPU has 30 s for that
# bash FILE delete     gives the TPU VMs back
set -euo pipefail
vms=({vms})
where=({where})
on_all() {{ gcloud compute tpus tpu-vm ssh "$1" "${{where[@]}}" --worker=all --command="$2"; }}
start={start}
stop={stop}
case ${{1-}} in
create) for vm in "${{vms[@]}}"; do {create}; done ;;
{state}start) for vm in "${{vms[@]}}"; do on_all "$vm" "$start"; done ;;
log) gcloud compute tpus tpu-vm ssh "${{2-${{vms[0]}}}}" "${{where[@]}}" --worker=0 --command={log} ;;
stop) for vm in "${{vms[@]}}"; do on_all "$vm" "$stop"; done ;;
delete) for vm in "${{vms[@]}}"; do {delete}; done ;;
*) sed -n '2,/^set /{{/^#/p}}' "$0" >&2; exit 2 ;;
esac
"""


@dataclass(frozen=True)
class TpuVmSettings:
    """Settings of a Cloud TPU launch; fields are the flags of ``transformer-jax launch tpu-vm``."""

    name: str
    tpu: str | None
    zone: str | None
    project: str | None
    runtime_version: str | None
    spot: bool
    queued: bool
    setup: str | None

    def __post_init__(self) -> None:
        require_name(self.name)
        for flag in ("tpu", "zone"):
            if getattr(self, flag) is None:
                raise ConfigError(f"--{flag}: is missing; --help shows an example")
        for flag in ("zone", "project", "runtime_version"):
            if getattr(self, flag) is not None:
                require_word(flag, getattr(self, flag))


def gcloud_script(settings: TpuVmSettings, workload: Training | Sweep) -> str:
    """The script; raises ConfigError when the workload does not fit what is asked for."""
    tpu = parse_slice(settings.tpu or "")
    if not is_absolute(workload.workdir):
        raise ConfigError(
            f"--workdir: {workload.workdir} must be absolute, on a disk that all hosts mount, such as /mnt/runs/base"
        )
    if isinstance(workload, Training):
        workload.require_fits(tpu.num_chips)
        vms, command = [settings.name], workload.command(tpu.num_hosts)
    else:
        if tpu.num_hosts != 1:
            raise ConfigError(
                f"--tpu={settings.tpu}: each worker of a sweep has one host, and this is {tpu.num_hosts}; ask for one"
            )
        if workload.storage_is_in_environment and STORAGE_VARIABLE not in (settings.setup or ""):
            raise ConfigError(
                f"{STORAGE_VARIABLE}: a TPU VM does not have the environment of here; read the address from a file there, "
                f"--setup='export {STORAGE_VARIABLE}=$(cat ~/storage)'"
            )
        vms, command = [f"{settings.name}-{worker}" for worker in range(workload.workers)], workload.command()
    where = [f"--zone={settings.zone}", *([f"--project={settings.project}"] if settings.project else [])]
    hosts = f"{len(vms)} x " if len(vms) > 1 else ""
    return SCRIPT.format(
        accelerator=f"{tpu.accelerator_type} ({tpu.topology})",
        hosts=f"{hosts}{tpu.num_hosts} host{'s' if tpu.num_hosts > 1 else ''}",
        queued="; it may take long: bash FILE state" if settings.queued else "",
        vms=shlex.join(vms),
        where=shlex.join(where),
        start=shlex.quote(_started_in_background(settings, command)),
        stop=shlex.quote(f'kill -TERM "$(cat {settings.name}.pid)"'),
        log=shlex.quote(f"tail -n 100 -F {settings.name}.log"),
        create=_create(settings, tpu),
        state=STATE if settings.queued else "",
        delete=_delete(settings),
    )


STATE = (
    'state) for vm in "${vms[@]}"; do gcloud compute tpus queued-resources describe "$vm" "${where[@]}" '
    "--format='value(state.state)'; done ;;\n"
)


def _started_in_background(settings: TpuVmSettings, command: list[str]) -> str:
    """Shell command of a host: ``--setup``, then ``command`` in the background, its process number and output in files."""
    program = "\n".join(["set -e", *([settings.setup] if settings.setup else []), f"exec {shlex.join(command)}"])
    return (
        f"nohup bash -c {shlex.quote(program)} >> {settings.name}.log 2>&1 < /dev/null & echo $! > {settings.name}.pid"
    )


def _create(settings: TpuVmSettings, tpu: TpuSlice) -> str:
    runtime = settings.runtime_version or tpu.kind.runtime
    spot = " --spot" if settings.spot else ""
    accelerator = f"--accelerator-type={tpu.accelerator_type}"
    if settings.queued:
        return (
            f'gcloud compute tpus queued-resources create "$vm" --node-id="$vm" "${{where[@]}}" {accelerator} '
            f"--runtime-version={shlex.quote(runtime)}{spot}"
        )
    return (
        f'gcloud compute tpus tpu-vm create "$vm" "${{where[@]}}" {accelerator} --version={shlex.quote(runtime)}{spot}'
    )


def _delete(settings: TpuVmSettings) -> str:
    if settings.queued:
        return 'gcloud compute tpus queued-resources delete "$vm" "${where[@]}" --force'
    return 'gcloud compute tpus tpu-vm delete "$vm" "${where[@]}"'

"""Manifests are read back; their shell is run."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import yaml
from jax._src.clusters import GkeTpuCluster, cloud_tpu_cluster
from tools.launching.workloads import AWKWARD, sweep, tokens, training, watch

from transformer_jax.config import ConfigError
from transformer_jax.runtime import distributed
from transformer_jax.tools.launching.kubernetes import (
    INTERRUPTED,
    NO_LIMIT,
    STARTED,
    KubernetesSettings,
    kubernetes_manifest,
)
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE


def settings(**changes: object) -> KubernetesSettings:
    defaults = dict.fromkeys(("namespace", "queue", "secret", "tpu", "gpus_per_node", "gpu_type"))
    defaults |= {"cpus": 8, "memory": "64Gi"}
    defaults |= {
        "name": "base",
        "image": "registry/image:1",
        "volume_claim": "runs",
        "mount_path": "/shared",
        "nodes": 1,
    }
    defaults |= {"spot": False, "max_restarts": 10, "seconds_to_save": 120}
    return KubernetesSettings(**(defaults | changes))


def read(asked: KubernetesSettings, workload) -> tuple[dict, dict, dict]:
    """The manifest, the specification of its jobs and that of their pods."""
    content = yaml.safe_load(kubernetes_manifest(asked, workload))
    job = content["spec"] if content["kind"] == "Job" else content["spec"]["replicatedJobs"][0]["template"]["spec"]
    return content, job, job["template"]["spec"]


def variables(pod: dict, index: int) -> dict[str, str]:
    """The environment of pod ``index`` as Kubernetes fills it in."""
    annotations = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index)}
    return {
        item["name"]: item["value"] if "value" in item else annotations[item["valueFrom"]["fieldRef"]["fieldPath"]]
        for item in pod["containers"][0].get("env", [])
    }


def test_a_run_is_ready_when_it_has_logged_since_its_pod_started(tmp_path):
    run = training(workdir=f"{tmp_path}/a b")
    (container,) = read(settings(gpus_per_node=0, mount_path=str(tmp_path)), run)[2]["containers"]
    script = container["readinessProbe"]["exec"]["command"][2].replace("$$", "$")
    script = script.replace(STARTED, str(tmp_path / "started"))

    def is_ready() -> bool:
        return subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.DEVNULL, check=False).returncode == 0

    assert f"touch {STARTED}" in container["command"][2]
    (tmp_path / "started").touch()
    assert not is_ready()
    (tmp_path / "a b").mkdir()
    goodput = tmp_path / "a b" / "goodput.json"
    goodput.touch()
    for seconds, ready in ((5, True), (-1200, False)):
        os.utime(goodput, (time.time() + seconds,) * 2)
        assert is_ready() == ready


def test_pods_with_gpus_are_told_who_is_who(monkeypatch):
    content, job, pod = read(settings(gpus_per_node=8, nodes=4, gpu_type="nvidia-h100-80gb"), training())
    assert job["completions"] == job["parallelism"] == 4
    assert job["completionMode"] == "Indexed"
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    network, [workers] = content["spec"]["network"], content["spec"]["replicatedJobs"]
    assert network == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    # <jobSet.name>-<replicatedJob.name>-<job-index>-<pod-index>.<subdomain>, and the subdomain is the JobSet's name.
    first = f"{content['metadata']['name']}-{workers['name']}-0-0.{content['metadata']['name']}"
    for index in range(4):
        for name, value in variables(pod, index).items():
            monkeypatch.setenv(name, value)
        told = distributed._by_hand()
        assert (told["num_processes"], told["process_id"]) == (4, index)
        host, port = told["coordinator_address"].split(":")
        assert host == first
        assert {"containerPort": int(port)} in pod["containers"][0]["ports"]


def test_pods_with_tpus_leave_it_to_gke(monkeypatch):
    content, job, pod = read(settings(tpu="v5e:4x4", spot=True, max_restarts=7, seconds_to_save=300), training())
    assert job["completions"] == job["parallelism"] == 4
    # Where one pod fails, all of them start again.
    assert (content["spec"]["failurePolicy"], job["backoffLimit"]) == ({"maxRestarts": 7}, 0)
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 300)
    assert pod["containers"][0]["resources"]["limits"]["google.com/tpu"] == 4
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-spot": "true",
    }
    (workers,) = content["spec"]["replicatedJobs"]
    topology = workers["template"]["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
    assert topology == "cloud.google.com/gke-nodepool"
    # What GKE sets in the pods of a JobSet must not meet anything of ours: JAX's own three would come first.
    assert variables(pod, 3) == {}
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    assert not GkeTpuCluster.is_env_present()
    hosts = ",".join(f"base-workers-0-{index}.base" for index in range(job["completions"]))
    given = {
        "TPU_WORKER_HOSTNAMES": hosts,
        "TPU_WORKER_ID": "3",
        "MEGASCALE_NUM_SLICES": "1",
        "MEGASCALE_SLICE_ID": "0",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert GkeTpuCluster.is_env_present()
    assert (GkeTpuCluster.get_process_count(), GkeTpuCluster.get_process_id()) == (4, 3)
    assert distributed._by_hand() == {}
    assert " train --distributed " in pod["containers"][0]["command"][2]


def test_the_run_lies_on_the_volume():
    _, _, pod = read(settings(gpus_per_node=1, mount_path="/mnt/disk"), training(workdir="/mnt/disk/runs/base"))
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert pod["containers"][0]["volumeMounts"] == [{"name": pod["volumes"][0]["name"], "mountPath": "/mnt/disk"}]
    for workdir in ("/mnt/disks/base", "runs/base", "/mnt/disk/../base", "~/base"):
        with pytest.raises(ConfigError, match=r"--workdir: .* is not on the volume .*; use /mnt/disk/NAME"):
            read(settings(gpus_per_node=1, mount_path="/mnt/disk"), training(workdir=workdir))
    with pytest.raises(ConfigError, match="--mount_path: shared must begin with /"):
        read(settings(gpus_per_node=1, mount_path="shared"), training())
    with pytest.raises(ConfigError, match="--volume_claim: is missing; without a volume /shared/runs/base is lost"):
        read(settings(gpus_per_node=1, volume_claim=None), training())


def test_a_run_in_an_object_store_needs_no_volume():
    run = training(workdir="gs://bucket/base")
    _, _, pod = read(settings(gpus_per_node=1, volume_claim=None), run)
    assert "volumes" not in pod
    assert not {"volumeMounts", "readinessProbe"} & set(pod["containers"][0])
    with_sweep = replace(run, followers=(sweep(),))
    stored = replace(run, config=replace(run.config, data=replace(run.config.data, store="/shared/tokens")))
    for other, lost in ((with_sweep, "/shared/sweep"), (stored, "/shared/tokens")):
        with pytest.raises(ConfigError, match=f"--volume_claim: is missing; without a volume {lost} is lost"):
            read(settings(gpus_per_node=1, volume_claim=None), other)


@pytest.mark.parametrize("devices", [{"tpu": "v5p:2x2x4"}, {"gpus_per_node": 8, "nodes": 2}, {"gpus_per_node": 0}])
def test_jobs_before_beside_and_after_a_run_are_in_its_job_set(devices, program, notes):
    asked, followers = settings(max_restarts=7, **devices), (watch(), sweep(3, has_database=True))
    jobs = read(asked, training(shards=12, followers=followers))[0]["spec"]["replicatedJobs"]
    after = {job["name"]: job.pop("dependsOn", [{}])[0] for job in jobs}
    assert [(name, each.get("name"), each.get("status")) for name, each in after.items()] == [
        ("tokenizers", None, None),
        ("tokens", "tokenizers", "Complete"),
        ("workers", "tokens", "Complete"),
        ("watch", "workers", "Ready"),
        ("sweep", "workers", "Complete"),
    ]
    assert jobs[2] == read(asked, training())[0]["spec"]["replicatedJobs"][0]
    specs = [job["template"]["spec"] for job in jobs]
    # A job beside or after the run that fails would restart the run.
    limits = [(each["completions"], each.get("backoffLimitPerIndex")) for each in specs]
    assert limits == [(1, 7), (12, 7), limits[2], (1, NO_LIMIT), (3, NO_LIMIT)]
    pods = [each["template"]["spec"] for each in specs]
    one = {"tpu": {"google.com/tpu": 4}, "nodes": {"nvidia.com/gpu": 1}}.get(max(devices), {})
    for pod, own in zip((*pods[:2], *pods[3:]), ({}, {}, one, one), strict=True):
        assert pod["containers"][0]["resources"]["limits"] == {**own, "cpu": 8, "memory": "64Gi"}
        topology = pod.get("nodeSelector", {}).get("cloud.google.com/gke-tpu-topology")
        assert topology == ("2x2x1" if own and "tpu" in devices else None)
    assert "transformer-jax evaluate --watch --workdir=/shared/runs/base &" in pods[3]["containers"][0]["command"][2]
    environments = [[each["name"] for each in pod["containers"][0].get("env", [])] for pod in pods[3:]]
    assert environments == [[], [STORAGE_VARIABLE]]
    environment = {**os.environ, "BEHAVIOR": "", "JOB_COMPLETION_INDEX": "5"}
    assert subprocess.run(as_a_container_runs_it(pods[1]), env=environment, timeout=20).returncode == 0
    arguments = (notes / "arguments-0").read_text().splitlines()
    assert arguments == ["tokenize", "--config=a.py", f"--output=/shared/{AWKWARD}", "--shard=5/12"]
    with pytest.raises(ConfigError, match="/elsewhere is not on the volume"):
        read(asked, training(followers=(sweep(workdir="/elsewhere"),)))


def test_tokenizing_alone_is_the_jobs_before_a_run():
    asked = settings(gpus_per_node=0, queue="team")
    alone, of_run = (read(asked, workload)[0] for workload in (tokens(12), training(shards=12)))
    assert of_run["spec"]["replicatedJobs"].pop()["name"] == "workers"
    assert alone == of_run
    assert read(settings(gpus_per_node=0, volume_claim=None), tokens(12, "s3://bucket/tokens"))[0]["kind"] == "JobSet"
    with pytest.raises(ConfigError, match="--output: /elsewhere is not on the volume"):
        read(asked, tokens(12, "/elsewhere"))


def test_workers_of_a_sweep_are_pods_of_their_own():
    content, job, pod = read(settings(tpu="v5e:2x4", namespace="lab"), sweep(5))
    assert (content["apiVersion"], content["kind"]) == ("batch/v1", "Job")
    assert (content["metadata"]["name"], content["metadata"]["namespace"]) == ("base", "lab")
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (5, 5, "Indexed")
    assert job["backoffLimitPerIndex"] == 10
    assert " --workers=1 &" in pod["containers"][0]["command"][2]
    for asked, flag in ((settings(tpu="v5e:4x4"), "--tpu=v5e:4x4"), (settings(gpus_per_node=1, nodes=2), "--nodes=2")):
        with pytest.raises(ConfigError, match=f"{flag}: has [24] hosts, but each worker"):
            read(asked, sweep())


@pytest.mark.parametrize("workload", [training(), sweep(has_database=True)])
def test_what_operators_ask_for(workload):
    content, job, pod = read(settings(gpus_per_node=1, queue="team", secret="keys"), workload)
    labels = content["metadata"]["labels"]
    assert labels.pop("kueue.x-k8s.io/queue-name") == "team"
    assert job["template"]["metadata"]["labels"] == labels
    assert labels["app.kubernetes.io/instance"] == "base"
    assert content["spec"]["ttlSecondsAfterFinished"] > 0
    (container,) = pod["containers"]
    asked = {"nvidia.com/gpu": 1, "cpu": 8, "memory": "64Gi"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert all("value" not in each for each in container.get("env", []))


def as_a_container_runs_it(pod: dict) -> list[str]:
    """The command after Kubernetes' own expansion of variables: ``$$`` is a dollar; none that are named here are set."""
    command = pod["containers"][0]["command"]
    assert "$(" not in command[2].replace("$$", "")
    return [word.replace("$$", "$") for word in command]


@pytest.mark.parametrize(("behavior", "status"), [("", 0), ("fails", 1)])
def test_the_status_of_the_training_is_that_of_the_pod(program, notes, behavior, status):
    _, _, pod = read(settings(gpus_per_node=1), training(f"--config.data.directory={AWKWARD}"))
    environment = {**os.environ, "BEHAVIOR": behavior}
    assert subprocess.run(as_a_container_runs_it(pod), env=environment, timeout=20).returncode == status
    assert (notes / "arguments-0").read_text().splitlines()[-1] == f"--config.data.directory={AWKWARD}"


def test_a_training_that_is_asked_to_end_saves_and_is_not_taken_for_finished(program, notes):
    _, _, pod = read(settings(gpus_per_node=1), training())
    process = subprocess.Popen(as_a_container_runs_it(pod), env={**os.environ, "BEHAVIOR": "forever"})
    deadline = time.monotonic() + 20
    while not (notes / "ready-0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == INTERRUPTED
    assert (notes / "saved").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tpu": "v5e:4x4", "gpus_per_node": 1}, "--tpu, --gpus_per_node: give one of them"),
        ({"tpu": "v5e:4x4", "nodes": 2}, "--nodes: 2: the topology of --tpu sets the number of hosts"),
        ({"tpu": "v5e:4x4", "gpu_type": "h100"}, "--gpu_type: h100: without --gpus_per_node there is no GPU"),
        (
            {"gpus_per_node": 1, "memory": "64GB"},
            "--memory: '64GB' is not a number with one of Ki, .*, G, T, such as 64G",
        ),
        ({"gpus_per_node": 1, "image": None}, "--image: is missing"),
    ],
)
def test_what_kubernetes_would_refuse(changes, problem):
    with pytest.raises(ConfigError, match=problem):
        settings(**changes)

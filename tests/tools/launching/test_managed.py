"""Tasks for SkyPilot have the fields of its public schema, and find each other by JAX's variables."""

import os
import subprocess

import pytest
import yaml
from tools.launching.workloads import AWKWARD, sweep, tokens, training, watch

from transformer_jax.config import ConfigError
from transformer_jax.tools.launching.skypilot import SkyPilotSettings, sky_task
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE

SKY = {
    "name": "base",
    "gpu_type": "H100",
    "gpus_per_node": 8,
    "nodes": 2,
    "cpus": 16,
    "spot": True,
    "setup": None,
    "image": "i",
    "volume_claim": "runs",
    "mount_path": "/shared",
}

MOUNTED = SKY | {"setup": "mount /shared", "volume_claim": None}


def test_a_task_of_skypilot():
    task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), training()))
    assert set(task) == {"name", "num_nodes", "resources", "volumes", "run"}
    assert task["volumes"] == {"/shared": "runs"}
    task_of_workers = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), sweep(workers=3)))
    assert (task_of_workers["num_nodes"], task_of_workers["run"].split()[-1]) == (3, "--workers=1")
    asked = {"accelerators": "H100:8", "cpus": "16+", "image_id": "docker:i", "use_spot": True}
    assert task["resources"] == asked | {"job_recovery": {"max_restarts_on_errors": 10}}


def test_a_run_in_an_object_store_needs_no_volume():
    run = training(workdir="s3://bucket/base")
    assert "volumes" not in yaml.safe_load(sky_task(SkyPilotSettings(**SKY | {"volume_claim": None}), run))
    assert "--workdir=s3://bucket/base" in sky_task(SkyPilotSettings(**MOUNTED), run)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_fits_the_schema_of_skypilot_where_that_is_installed():
    schemas, jsonschema = pytest.importorskip("sky.utils.schemas"), pytest.importorskip("jsonschema")
    for workload in (training(), sweep(), training(shards=4), training(followers=(watch(), sweep())), tokens(4)):
        *_, task = yaml.safe_load_all(sky_task(SkyPilotSettings(**SKY), workload))
        jsonschema.validate(task, schemas.get_task_schema())
        jsonschema.validate(task["resources"], schemas.get_resources_schema())


def test_jobs_before_and_after_a_run_are_tasks_of_a_pipeline():
    workload = training(shards=4, followers=(watch(), sweep(3, has_database=True)))
    name, *tasks = yaml.safe_load_all(sky_task(SkyPilotSettings(**SKY), workload))
    first, of_shards, run, beside, after = tasks
    assert name == {"name": "base"} and run == yaml.safe_load(sky_task(SkyPilotSettings(**SKY), training()))
    assert [(task["name"], task["num_nodes"], task["resources"].get("accelerators")) for task in tasks] == [
        ("base-tokenizers", 1, None),
        ("base-tokens", 4, None),
        ("base", 2, "H100:8"),
        ("base-watch", 1, "H100:1"),
        ("base-sweep", 3, "H100:1"),
    ]
    assert (beside.get("envs"), after["envs"]) == (None, {STORAGE_VARIABLE: None})
    assert beside["run"] == "transformer-jax evaluate --watch --workdir=/shared/runs/base\n"
    script, rank = of_shards["run"].replace("transformer-jax", "printf '%s\\n'"), {"SKYPILOT_NODE_RANK": "3"}
    found = subprocess.run(["sh", "-c", script], env=rank, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["tokenize", "--config=a.py", f"--output=/shared/{AWKWARD}", "--shard=3/4"]
    assert first["run"] == of_shards["run"]
    alone = yaml.safe_load_all(sky_task(SkyPilotSettings(**SKY), tokens(4)))
    assert list(alone) == [name, first, of_shards]


def test_its_shell_says_who_is_who():
    task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), training()))
    script = task["run"].replace("transformer-jax", "echo $JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID")
    node = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    told = subprocess.run(
        ["sh", "-c", script], env=os.environ | node, capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith("10.0.0.1:8476 2 1 train --distributed ")


@pytest.mark.parametrize(
    ("changes", "workload", "message"),
    [
        ({"gpu_type": None}, training(), "--gpu_type, --gpus_per_node: give both"),
        ({"image": None}, training(), "--image, --setup: give one"),
        ({}, training(followers=(sweep(workdir="/a/b"),)), "--workdir: /a/b is not on the volume"),
        (MOUNTED, training(workdir="runs/a"), "--workdir: runs/a is not absolute"),
        ({}, training(rows=8), "batching.row_multiple: 8 is not a multiple"),
    ],
)
def test_mismatched_flags_are_refused(changes, workload, message):
    with pytest.raises(ConfigError, match=message):
        sky_task(SkyPilotSettings(**SKY | changes), workload)


def test_a_study_without_a_database_cannot_be_in_a_store():
    with pytest.raises(ConfigError, match="a store cannot hold the study; set TRANSFORMER_JAX_SWEEP_STORAGE"):
        sweep(1, "gs://b/c")

"""Tasks for SkyPilot and Kubeflow Trainer have the fields of their public schemas, and find each other by JAX's variables."""

import os
import subprocess

import jsonschema
import pytest
import yaml
from launching.workloads import sweep, training

from transformer_jax.config import ConfigError
from transformer_jax.launching.skypilot import SkyPilotSettings, sky_task
from transformer_jax.launching.trainjob import TrainJobSettings, train_job_manifest

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
JOB = {
    "name": "base",
    "namespace": "team",
    "runtime": "jax-distributed",
    "image": "registry/image:1",
    "volume_claim": "runs",
    "mount_path": "/shared",
    "gpus_per_node": 4,
    "nodes": 2,
    "cpus": None,
    "memory": "64Gi",
}


def fields(required: tuple[str, ...] = (), **kinds: object) -> dict[str, object]:
    return {"type": "object", "properties": kinds, "required": list(required), "additionalProperties": False}


def listed(item: object) -> dict[str, object]:
    return {"type": "array", "items": item, "minItems": 1}


TEXT, WORDS, COUNT, ANY = {"type": "string", "minLength": 1}, listed({"type": "string"}), {"type": "integer"}, True
MOUNT = fields(("name", "mountPath"), name=TEXT, mountPath=TEXT, subPath=TEXT, readOnly={"type": "boolean"})
POD_PATCH = fields(
    volumes=listed(fields(("name",), name=TEXT, persistentVolumeClaim=fields(("claimName",), claimName=TEXT))),
    containers=listed(fields(("name",), name=TEXT, env=ANY, volumeMounts=listed(MOUNT), securityContext=ANY)),
    nodeSelector=ANY,
    tolerations=ANY,
)
JOB_PATCH = fields(metadata=ANY, spec=fields(template=fields(metadata=ANY, spec=POD_PATCH)))
JOB_SET_PATCH = fields(replicatedJobs=listed(fields(("name",), name=TEXT, template=JOB_PATCH)))
RUNTIME_PATCH = fields(
    ("manager",),
    manager=TEXT,
    trainingRuntimeSpec=fields(template=fields(metadata=ANY, spec=JOB_SET_PATCH)),
)
# The fields of a TrainJob that a user sets, as trainjob_types.go of Kubeflow Trainer 2.2 has them; what an API server prunes
# or refuses is an error here.
TRAIN_JOB = fields(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=fields(("name",), name={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}, namespace=TEXT),
    spec=fields(
        ("runtimeRef",),
        runtimeRef=fields(("name",), name=TEXT, apiGroup=TEXT, kind=TEXT),
        trainer=fields(
            image=TEXT,
            command=WORDS,
            args=WORDS,
            env=ANY,
            numNodes=COUNT,
            numProcPerNode=COUNT,
            resourcesPerNode=fields(limits={"type": "object"}, requests={"type": "object"}),
        ),
        runtimePatches=listed(RUNTIME_PATCH),
        suspend={"type": "boolean"},
    ),
)


def test_a_task_of_skypilot():
    task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), training()))
    assert set(task) == {"name", "num_nodes", "resources", "volumes", "run"}
    assert task["volumes"] == {"/shared": "runs"}
    assert task["resources"] == {"accelerators": "H100:8", "cpus": "16+", "image_id": "docker:i", "use_spot": True}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_fits_the_schema_of_skypilot_where_that_is_installed():
    schemas, jsonschema = pytest.importorskip("sky.utils.schemas"), pytest.importorskip("jsonschema")
    for workload in (training(), sweep()):
        task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), workload))
        jsonschema.validate(task, schemas.get_task_schema())
        jsonschema.validate(task["resources"], schemas.get_resources_schema())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_train_job_fits_the_models_of_kubeflow_where_they_are_installed():
    models = pytest.importorskip("kubeflow_trainer_api.models")
    manifest = yaml.safe_load(train_job_manifest(TrainJobSettings(**JOB), training()))
    # A field that the API does not know is dropped, as an API server prunes it.
    assert models.TrainerV1alpha1TrainJob.from_dict(manifest).to_dict() == manifest
    unknown = {**manifest, "spec": {**manifest["spec"], "podTemplate": {}}}
    assert models.TrainerV1alpha1TrainJob.from_dict(unknown).to_dict() != unknown


def test_its_shell_says_who_is_who():
    task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), training()))
    script = task["run"].replace("transformer-jax", "echo $JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID")
    node = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    told = subprocess.run(
        ["sh", "-c", script], env=os.environ | node, capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith("10.0.0.1:8476 2 1 train --distributed ")


def test_workers_of_a_sweep_are_nodes():
    task = yaml.safe_load(sky_task(SkyPilotSettings(**SKY), sweep(workers=3)))
    assert task["num_nodes"] == 3
    assert task["run"].strip().endswith("--workers=1")


def test_a_train_job():
    job = yaml.safe_load(train_job_manifest(TrainJobSettings(**JOB), training()))
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"] == {"name": "base", "namespace": "team"}
    spec = job["spec"]
    assert spec["runtimeRef"] == {"name": "jax-distributed"}
    trainer = spec["trainer"]
    assert set(trainer) == {"image", "command", "numNodes", "resourcesPerNode"}
    assert (trainer["numNodes"], trainer["resourcesPerNode"]) == (
        2,
        {"limits": {"nvidia.com/gpu": 4, "memory": "64Gi"}},
    )
    assert "transformer-jax train --distributed " in trainer["command"][2]
    jsonschema.validate(job, TRAIN_JOB)
    (job_patch,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job_patch["template"]["spec"]["template"]["spec"]
    assert pod["containers"] == [{"name": "node", "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]
    assert pod["volumes"] == [{"name": "shared", "persistentVolumeClaim": {"claimName": "runs"}}]


def test_a_field_of_an_earlier_trainer_does_not_fit():
    job = yaml.safe_load(train_job_manifest(TrainJobSettings(**JOB), training()))
    job["spec"]["podTemplateOverrides"] = job["spec"].pop("runtimePatches")
    with pytest.raises(jsonschema.ValidationError, match="podTemplateOverrides"):
        jsonschema.validate(job, TRAIN_JOB)


def test_what_does_not_fit_is_refused():
    for make, message in (
        (
            lambda: sky_task(SkyPilotSettings(**SKY | {"gpu_type": None}), training()),
            "--gpu_type, --gpus_per_node: belong",
        ),
        (lambda: sky_task(SkyPilotSettings(**SKY | {"volume_claim": None}), training()), "--volume_claim: is missing"),
        (lambda: sky_task(SkyPilotSettings(**SKY), training(workdir="/a/b")), "--workdir: /a/b is not on the volume"),
        (lambda: sky_task(SkyPilotSettings(**SKY), training(workdir="runs/a")), "--workdir: runs/a is not absolute"),
        (lambda: sky_task(SkyPilotSettings(**SKY), training(rows=8)), "batching.row_multiple: 8 rows"),
        (lambda: train_job_manifest(TrainJobSettings(**JOB | {"image": None}), training()), "--image: is missing"),
        (lambda: train_job_manifest(TrainJobSettings(**JOB), sweep()), "a sweep is no TrainJob"),
        (
            lambda: train_job_manifest(TrainJobSettings(**JOB), training(workdir="/home/a")),
            "--workdir: /home/a is not on",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            make()

"""Files of the launchers are parsed, and their scripts run with stand-ins for the programs of the
clusters."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from transformer_jax.config import ConfigError, from_dict
from transformer_jax.runtime import process_group
from transformer_jax.tools.launching.job_files import NAME, TEXTS, Job, job_file, job_name

# srun starts nodes x tasks of each, with the variables of the srun manual that tell them apart, and
# waits for all.
SRUN = """
echo "$@" > "$NOTES/srun"
while [[ $1 == --* ]]; do shift; done
for ((task = 0; task < SLURM_NTASKS; task++)); do
    SLURM_PROCID=$task SLURM_LOCALID=$((task % TASKS_PER_NODE)) SLURM_STEP_NODELIST='node[007-008]' "$@" & pids+=($!)
    echo $! >> "$NOTES/pids"
done
worst=0
for pid in "${pids[@]}"; do wait "$pid" || worst=$?; done
exit $worst
"""
HOSTILE = 'it\'s a "b" $(touch x) `touch x` $$ $(HOME) {{name}} \\ \u00df\u2028\nEND_OF_JOB\ntouch x\n- a: #'
CONFIG = from_dict({"batching": {"row_multiple": 64, "tokens_per_update": 64 * 256}})
FLAGS = dict.fromkeys((*TEXTS, "gpus_per_node")) | {"name": "base", "mount_path": "/shared", "nodes": 1, "cpus": 4}
FLAGS |= {"seconds_to_save": 120, "max_restarts": 10, "spot": False}
SLURM = {**FLAGS, "gpus_per_node": 0}
KUBERNETES = {**FLAGS, "gpus_per_node": 1, "image": "a/b:1", "memory": "64Gi", "volume_claim": "runs"}
SKY = {**FLAGS, "gpus_per_node": 8, "gpu_type": "H100", "image": "i", "volume_claim": "runs"}
EACH = [("slurm", SLURM), ("kubernetes", KUBERNETES), ("skypilot", SKY)]


def run(*words: str, workdir: str = "/shared/runs/base") -> Job:
    return Job("run", ["train", "--config=a.py", f"--workdir={workdir}", *words], workdir, configs=[CONFIG])


def workers(number: int = 3) -> Job:
    return Job("workers", ["sweep", "--workers=1"], "/shared/sweep", copies=number, configs=[CONFIG])


def chain(word: str = "") -> list[Job]:
    words = ["tokenize", *([word] if word else [])]
    tokenizers = Job("tokenizers", [*words, "--shard=0/12"], "/shared/tokens")
    tokens = Job("tokens", words, "/shared/tokens", "tokenizers", 12)
    evaluate = Job("evaluate", ["evaluate", *words[1:]], "/shared/runs/base", "run")
    sweep = Job("sweep", ["sweep", *words[1:]], "/shared/sweep", "run", 3)
    return [tokenizers, tokens, run(*words[1:])._replace(after="tokens"), evaluate, sweep]


@pytest.mark.parametrize("kind", ["kubernetes", "skypilot"])
def test_plugins_go_along_with_a_job(kind, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("text = '{{name}} $(HOME)'\n")
    job, flags = run(f"--plugin={file}", "--config.seed=1"), dict(EACH)[kind]
    *maps, content = yaml.safe_load_all(job_file(kind, flags, [job]))
    if kind == "kubernetes":
        (pod,) = pods_of(job_file(kind, flags, [job])).values()
        words, mounts = pod["containers"][0]["args"], pod["containers"][0]["volumeMounts"]
        assert maps[0]["data"] == {"mine.py": file.read_text()}
        volume = {"name": "plugins", "configMap": {"name": maps[0]["metadata"]["name"]}}
        assert volume in pod["volumes"] and {"name": "plugins", "mountPath": "/plugins"} in mounts
    else:
        ((there, here),) = content["file_mounts"].items()
        assert here == str(file)
        words = content["run"].split()
        assert f"--plugin={there}" in words
    assert not any(str(file) in word for word in words) and any(word.endswith("/mine.py") for word in words)
    other = tmp_path / "other" / "mine.py"
    with pytest.raises(ConfigError, match="two files have one name"):
        job_file(kind, flags, [run(f"--plugin={file}", f"--plugin={other}")])


def pods_of(text: str) -> dict[str, dict]:
    *_, content = yaml.safe_load_all(text)
    jobs = content["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def container_command(pod: dict) -> list[str]:
    """The command after Kubernetes' own expansion: ``$$`` is a dollar, and no variable here is one
    that it knows."""
    (container,) = pod["containers"]
    words = [*container["command"], *container["args"]]
    assert not any("$(" in word.replace("$$", "") for word in words)
    return [word.replace("$$", "$") for word in words]


def directives(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    return {flag: value for flag, _, value in (line.partition("=") for line in lines)}


@pytest.fixture
def started(program, notes, tmp_path):
    """Runs a script as a job; the process ends when the job does."""
    program("srun", SRUN)
    program("scancel", 'echo "$@" >> "$NOTES/scancel"; xargs -r kill -TERM < "$NOTES/pids"; : > "$NOTES/pids"')
    program("scontrol", 'echo "$@" >> "$NOTES/scontrol"')

    def start(flags: dict, job: Job, behavior: str = "", **variables: str) -> subprocess.Popen:
        script = re.sub("sleep [0-9]+", "sleep 0.05", job_file("slurm", flags, [job]))
        (tmp_path / "run.sbatch").write_text(script)
        asked = directives(script)
        num_tasks = int(asked["nodes"]) * int(asked["ntasks-per-node"])
        environment = {**os.environ, "BEHAVIOR": behavior, "SLURM_JOB_ID": "5000", "SLURM_NTASKS": str(num_tasks)}
        environment |= {"TASKS_PER_NODE": asked["ntasks-per-node"], "USER": "me", **variables}
        return subprocess.Popen(["bash", "run.sbatch"], env=environment, cwd=tmp_path)

    return start


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_ready(notes: Path, number: int = 1) -> None:
    until(lambda: len(list(notes.glob("ready-*"))) >= number)


def noted(notes: Path, process: int = 0) -> list[str]:
    return (notes / f"arguments-{process}").read_bytes().decode().split("\0")[:-1]


def test_hostile_text_reaches_the_program_and_nothing_is_executed(started, notes, tmp_path):
    flags, words = {**SKY, "nodes": 2}, run(HOSTILE).words
    assert started(SLURM, run(HOSTILE)).wait(120) == 0
    assert noted(notes) == words
    pod = pods_of(job_file("kubernetes", KUBERNETES, [run(HOSTILE)]))["run"]
    subprocess.run(container_command(pod), cwd=tmp_path, timeout=20, check=True)
    assert noted(notes) == words
    task = yaml.safe_load(job_file("skypilot", {**flags, "setup": HOSTILE}, [run(HOSTILE)]))
    assert task["setup"] == HOSTILE
    node = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": "1"}
    subprocess.run(["bash", "-c", task["run"]], env=os.environ | node, cwd=tmp_path, timeout=20, check=True)
    assert noted(notes) == [words[0], "--distributed", *words[1:]]
    environment = (notes / "environment-0").read_text().splitlines()
    assert {"JAX_COORDINATOR_ADDRESS=10.0.0.1:8476", "JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=1"} <= set(environment)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("launcher", "flags"), EACH)
def test_the_jobs_of_a_chain_come_in_order(launcher, flags, program, notes, tmp_path):
    text = job_file(launcher, flags, chain(HOSTILE))
    if launcher == "slurm":
        keep = 'n=$(ls "$NOTES" | grep -c ^job-); cat > "$NOTES/job-$n"; echo "$@" >> "$NOTES/asked"'
        program("sbatch", f'{keep}; echo "$((70 + n));cluster"')
        done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "tokenizers: job 70\ntokens: job 71\nrun: job 72\nevaluate: job 73\nsweep: job 74\n"
        ok = "--parsable --dependency=afterok:{} --kill-on-invalid-dep=yes"
        assert (notes / "asked").read_text().splitlines() == [
            "--parsable",
            ok.format(70),
            ok.format(71),
            ok.format(72),
            ok.format(72),
        ]
        scripts = [(notes / f"job-{number}").read_text() for number in range(5)]
        assert scripts == [job_file("slurm", flags, [job]) for job in chain(HOSTILE)]
        jobs = [directives(script) for script in scripts]
        names = ["base-tokenizers", "base-tokens", "base", "base-evaluate", "base-sweep"]
        assert [job["job-name"] for job in jobs] == names
        assert [job.get("array") for job in jobs] == [None, "1-11", None, None, "0-2"]
    elif launcher == "kubernetes":
        jobs = yaml.safe_load(text)["spec"]["replicatedJobs"]
        order = [(job["name"], *job.get("dependsOn", [{"name": "", "status": ""}])[0].values()) for job in jobs]
        assert order == [
            ("tokenizers", "", ""),
            ("tokens", "tokenizers", "Complete"),
            ("run", "tokens", "Complete"),
            ("evaluate", "run", "Complete"),
            ("sweep", "run", "Complete"),
        ]
        limits = [pod["containers"][0]["resources"]["limits"] for pod in pods_of(text).values()]
        assert [limit.get("nvidia.com/gpu") for limit in limits] == [None, None, 1, 1, 1]
    else:
        head, *tasks = yaml.safe_load_all(text)
        assert head == {"name": "base"}
        assert [(task["name"], task["num_nodes"], task["resources"].get("accelerators")) for task in tasks] == [
            ("base-tokenizers", 1, None),
            ("base-tokens", 12, None),
            ("base", 1, "H100:8"),
            ("base-evaluate", 1, "H100:1"),
            ("base-sweep", 3, "H100:1"),
        ]


def test_each_shard_has_its_number(started, notes, tmp_path):
    tokens = chain(HOSTILE)[1]
    expected = [*tokens.words, "--shard=7/12"]
    assert started(SLURM, tokens, SLURM_ARRAY_TASK_ID="7", SLURM_ARRAY_JOB_ID="5000").wait(120) == 0
    assert noted(notes) == expected
    pod = pods_of(job_file("kubernetes", KUBERNETES, [tokens]))["tokens"]
    task = yaml.safe_load(job_file("skypilot", SKY, [tokens]))
    for command, variable in (
        (container_command(pod), "JOB_COMPLETION_INDEX"),
        (["bash", "-c", task["run"]], "SKYPILOT_NODE_RANK"),
    ):
        subprocess.run(command, env=os.environ | {variable: "7"}, cwd=tmp_path, timeout=20, check=True)
        assert noted(notes) == expected


@pytest.mark.parametrize(("job", "number"), [(run(), 4), (workers(), 1)])
def test_before_the_time_limit_all_save_and_the_job_queues_again(started, notes, job, number):
    flags = {**SLURM, "time": "24:00:00"} | ({"gpus_per_node": 2, "nodes": 2} if number == 4 else {})
    asked = directives(job_file("slurm", flags, [job]))
    assert (asked["signal"], "requeue" in asked, asked.get("array")) == (
        "B:USR1@120",
        True,
        None if number == 4 else "0-2",
    )
    # SLURM gives one element of an array the number of the array itself.
    array = {} if number == 4 else {"SLURM_ARRAY_JOB_ID": "5000", "SLURM_ARRAY_TASK_ID": "2"}
    process = started(flags, job, "forever", **array)
    until_ready(notes, number)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(120) == 0
    # Without it a task would see no GPU but its own, and JAX chooses by the local number.
    assert number == 1 or "--gpu-bind=none" in (notes / "srun").read_text()
    # Queued again only when the slowest has saved.
    assert (notes / "saved").read_text().count("saved") == number
    job_id = "5000_2" if array else "5000"
    assert (notes / "scancel").read_text() == f"--signal=TERM {job_id}\n"
    assert (notes / "scontrol").read_text() == f"requeue {job_id}\n"


@pytest.mark.parametrize(
    ("behavior", "restarts", "status", "is_requeued"),
    [
        ("lost", "", 75, True),
        ("lost", "9", 75, True),
        ("lost", "10", 75, False),
        ("", "", 0, False),
        ("fails", "", 1, False),
    ],
)
def test_status_75_queues_again_ten_times(started, notes, behavior, restarts, status, is_requeued):
    count = {"SLURM_RESTART_COUNT": restarts} if restarts else {}
    assert started({**SLURM, "time": "24:00:00"}, run(), behavior, **count).wait(120) == status
    assert (notes / "scontrol").exists() == is_requeued


@pytest.mark.parametrize(("behavior", "status"), [("", 0), ("fails", 1), ("forever", 75)])
def test_an_evicted_pod_saves_and_does_not_count_as_complete(program, notes, behavior, status):
    text = job_file("kubernetes", {**KUBERNETES, "seconds_to_save": 300}, [run()])
    pod = pods_of(text)["run"]
    process = subprocess.Popen(container_command(pod), env={**os.environ, "BEHAVIOR": behavior})
    if behavior == "forever":
        until_ready(notes)
        process.send_signal(signal.SIGTERM)
    assert process.wait(120) == status and (notes / "saved").exists() == (behavior == "forever")
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 300)


def test_pods_with_gpus_find_each_other(program, notes, monkeypatch, tmp_path):
    text = job_file("kubernetes", {**KUBERNETES, "gpus_per_node": 8, "nodes": 4, "gpu_type": "h100"}, [run()])
    (job,), pod = yaml.safe_load(text)["spec"]["replicatedJobs"], pods_of(text)["run"]
    assert job["template"]["spec"]["completions"] == job["template"]["spec"]["parallelism"] == 4
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": 4, "memory": "64Gi", "nvidia.com/gpu": 8}
    assert pod["nodeSelector"]["cloud.google.com/gke-accelerator"] == "h100"
    for index in range(4):
        environment = os.environ | {"JOB_COMPLETION_INDEX": str(index)}
        subprocess.run(container_command(pod), env=environment, cwd=tmp_path, timeout=20, check=True)
        for line in (notes / "environment-0").read_text().splitlines():
            if line.startswith("JAX_"):
                monkeypatch.setenv(*line.split("=", 1))
        settings = process_group._by_hand()
        assert (settings["num_processes"], settings["process_id"]) == (4, index)
        # <jobSet.name>-<replicatedJob.name>-<job-index>-<pod-index>.<subdomain>, and the subdomain
        # is the JobSet's name.
        assert settings["coordinator_address"] == "base-run-0-0.base:8476"


def test_pods_with_tpus_have_the_hosts_and_chips_of_the_slice():
    flags = {**KUBERNETES, "gpus_per_node": None, "tpu": "v5e:4x4", "spot": True}
    text = job_file("kubernetes", flags, [run(), *chain()[3:]])
    (job, *_), pods = yaml.safe_load(text)["spec"]["replicatedJobs"], pods_of(text)
    # GKE tells the processes of each other.
    assert job["template"]["spec"]["completions"] == 4 and "JAX_" not in text
    topologies = [pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] for pod in pods.values()]
    assert topologies == ["4x4", "1x1", "1x1"]
    assert [pod["containers"][0]["resources"]["limits"]["google.com/tpu"] for pod in pods.values()] == [4, 1, 1]
    assert pods["run"]["containers"][0]["args"][:2] == ["train", "--distributed"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_fits_the_schema_of_skypilot_where_that_is_installed():
    schemas, jsonschema = pytest.importorskip("sky.utils.schemas"), pytest.importorskip("jsonschema")
    _, *tasks = yaml.safe_load_all(job_file("skypilot", {**SKY, "setup": "x", "spot": True}, chain()))
    for task in tasks:
        jsonschema.validate(task, schemas.get_task_schema())
        jsonschema.validate(task["resources"], schemas.get_resources_schema())


def test_no_two_paths_give_one_name():
    paths = ["exp1/base", "exp2/base", "/exp1/base", "my_run", "My-Run", "my-run", "base", "Größe", "Grosse", "gr-e"]
    paths += ["a" * 41, "a" * 42, "x/" + "a" * 42, "s3://b/base", "gs://b/base", "日本", "中国", "a\n", "-", "a-"]
    names = [job_name(path) for path in paths]
    assert len(set(names)) == len(paths) and all(re.fullmatch(NAME[0], name) for name in names)
    assert job_name("base") == "base" and job_name("exp1/base/") == job_name("exp1/base")
    assert names[0].startswith("base-") and names[7].startswith("grosse-")


@pytest.mark.parametrize("flag", [flag for flag in TEXTS if flag != "setup"])
def test_flags_refuse_line_breaks_and_what_is_no_name(flag):
    for value in ("a\n", "a\nb: c", "", 'a"b', "a b", "$(touch x)"):
        for launcher, flags in EACH:
            with pytest.raises(ConfigError, match=f"^--{flag}: .* must be "):
                job_file(launcher, {**flags, flag: value}, [run()])


@pytest.mark.parametrize(
    ("launcher", "changes", "job", "problem"),
    [
        ("slurm", {"gpus_per_node": None}, run(), "--gpus_per_node: is missing"),
        ("slurm", {"cpus": None}, run(), "--cpus: is missing; write --cpus=8"),
        ("slurm", {"nodes": 2}, workers(), "2 hosts, but each worker of a sweep runs on one"),
        ("slurm", {"nodes": 3}, run(), "batching.row_multiple: 64 is not a multiple of 3"),
        ("kubernetes", {"tpu": "v5e:4x4"}, run(), "--tpu, --gpus_per_node: give one of them"),
        ("kubernetes", {"tpu": "v5e:3x4", "gpus_per_node": None}, run(), r"--tpu: 'v5e:3x4' must be .*2x4\|4x4"),
        ("kubernetes", {"volume_claim": None}, run(), "--volume_claim: is missing; without a volume /shared/runs/base"),
        ("kubernetes", {}, run(workdir="/shared/../base"), "is not below --mount_path"),
        ("skypilot", {"image": None}, run(), "--image, --setup: the machines have no transformer-jax; give one"),
        ("skypilot", {"setup": "mount", "volume_claim": None}, run(workdir="runs/a"), "--workdir: runs/a is not below"),
    ],
)
def test_flags_that_do_not_fit_are_refused(launcher, changes, job, problem):
    with pytest.raises(ConfigError, match=problem):
        job_file(launcher, {**dict(EACH)[launcher], **changes}, [job])


def test_a_job_that_its_owner_cancels_does_not_queue_again(started, notes):
    job = started({**SLURM, "time": "24:00:00"}, run(), "forever")
    until_ready(notes)
    job.terminate()
    assert job.wait(120) == -signal.SIGTERM
    os.kill(int((notes / "pids").read_text()), signal.SIGTERM)
    assert not (notes / "scontrol").exists()

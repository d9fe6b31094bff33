import re

import pytest

from transformer_jax.__main__ import main
from transformer_jax.commands.launch import _jobs

RECIPE = """
def get_config():
    return {"batching": {"row_multiple": 16, "tokens_per_update": 16 * 256}, "mesh": {"fsdp": 2}}
"""
STUDIED = """
from transformer_jax.tools.study.sweeps import Sweep

def get_sweep():
    return Sweep(config="small.py", overrides={"mesh.fsdp": 1}, seeds=(0, 1))
"""
SLURM = ["launch", "slurm", "--gpus_per_node=8", "--nodes=2", "--cpus=8"]
ONE = [*SLURM[:2], "--gpus_per_node=1", "--cpus=8"]
SHARDS = [*SLURM, "--tokenize_shards=4"]
KUBERNETES = ["launch", "kubernetes", "--image=a/b", "--volume-claim=c", "--cpus=8", "--memory=32Gi", "--name=own"]
TRAIN = ["--", "train", "--config=small.py", "--workdir=/shared/runs/Small"]
OWN_TEXT = ["--", "train", "--config=text", "--workdir=/a/b", "--config.data.train=/c.tsv", "--config.data.store=/d"]
TOKENIZE = ["--", "tokenize", "--config=small.py"]
JOBS = ["launch", "slurm", "--cpus=8", "--tokenize_shards=4"]
WATCH = ["--", "evaluate", "--watch"]
SWEEP = ["--", "sweep", "--sweep=sweep.py", "--workdir=/shared/sweep", "--workers=2"]


@pytest.fixture(autouse=True)
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(RECIPE)
    (tmp_path / "sweep.py").write_text(STUDIED)


def test_a_command_becomes_a_file_and_the_file_is_named(tmp_path, capsys):
    assert main([*SLURM, "--output=my run.sbatch", *TRAIN, "--config.model.d_ff=64"]) == 0
    assert capsys.readouterr() == ("", "written; start it with: sbatch 'my run.sbatch'\n")
    script = (tmp_path / "my run.sbatch").read_text()
    command = "train --distributed --config=small.py --workdir=/shared/runs/Small --config.model.d_ff=64"
    assert f"transformer-jax {command} --config.data.cache_directory=/shared/runs/cache\n" in script
    assert re.search("#SBATCH --job-name=small-[0-9a-f]{8}\n", script)


def test_machines_share_what_they_compile_and_tokenize(capsys):
    fast = "--config.data.cache_directory=/fast"
    for given, cache in (
        (["~/runs/a/"], ["~/runs/cache"]),
        (["/a"], []),
        (["runs/a"], []),
        (["/s/a", fast], ["/fast"]),
    ):
        assert main([*SLURM, "--", "train", "--config=small.py", "--workdir", *given]) == 0
        assert re.findall(r"--config\.data\.cache_directory=([^\s']+)", capsys.readouterr().out) == cache


def test_tokenizing_has_the_settings_of_the_run(tmp_path, capsys):
    flags = ["--config.data.store=s3://b/tokens", "--config.model.d_ff=64"]
    assert main([*SHARDS, "--output=run.sh", *TRAIN, *flags]) == 0
    assert capsys.readouterr().err == "written; start it with: bash run.sh\n"
    found = re.findall("transformer-jax (tokenize .*)", (tmp_path / "run.sh").read_text())
    cache = "--config.data.cache_directory=/shared/runs/cache"
    own = f"tokenize --config=small.py --config.model.d_ff=64 {cache} --output=s3://b/tokens"
    assert found == [f"{own} --shard=0/4", own]


@pytest.mark.parametrize(
    ("flags", "checkpoint"),
    [
        (["--init_from=/b"], "best"),
        (["--init_from=/b", "--config.init.checkpoint=50"], "50"),
        (["--init_from=/b:7"], "7"),
    ],
)
def test_a_launched_run_begins_from_another(flags, checkpoint):
    (run,) = _jobs([*TRAIN[1:], *flags, "--config.init.leave_out=embedding"], None)
    init = run.configs[0].init
    assert (init.run, init.checkpoint, init.leave_out) == ("/b", checkpoint, "embedding")


@pytest.mark.parametrize("launcher", [["launch", "slurm", "--cpus=8"], KUBERNETES])
def test_tokenizing_alone_asks_for_no_run_and_no_devices(launcher, tmp_path, capsys):
    tokenize = ["--", "tokenize", "--config=small.py", "--output", "/shared/tokens"]
    assert main([*launcher, "--tokenize_shards=4", "--output=jobs", *tokenize]) == 0
    start = "bash jobs" if "slurm" in launcher else "kubectl apply --filename jobs"
    assert capsys.readouterr().err == f"written; start it with: {start}\n"
    script = (tmp_path / "jobs").read_text()
    assert len(re.findall("/shared/tokens.*--config.data.cache_directory=/shared/cache", script)) == 2
    assert not re.search("train|nvidia|gpus-per|--config.mesh", script)


def test_commands_follow_a_run(tmp_path, capsys):
    assert main([*SLURM, "--output=run.sh", *TRAIN, *WATCH, "--workdir=/shared/runs/Small", *SWEEP]) == 0
    assert capsys.readouterr().err == "written; start it with: bash run.sh\n"
    found = re.findall("transformer-jax (evaluate|sweep) (.*)", (tmp_path / "run.sh").read_text())
    assert found[0] == ("evaluate", "--watch --workdir=/shared/runs/Small") and found[1][0] == "sweep"
    assert "#SBATCH --array=0-1\n" in (tmp_path / "run.sh").read_text()


def test_a_sweep_becomes_an_array(capsys):
    assert main([*SLURM[:2], "--gpus_per_node=1", "--cpus=4", *SWEEP, "--study=both", "--trust_config"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-1\n" in script
    cache = "--config.data.cache_directory=/shared/cache"
    assert f"sweep --sweep=sweep.py --workdir=/shared/sweep --study=both --trust_config {cache} --workers=1" in script


@pytest.mark.parametrize(
    "launcher",
    [
        [*SLURM[:2], "--gpus_per_node=2", "--cpus=4"],
        [*KUBERNETES, "--gpus_per_node=2", "--gpu_type=nvidia-h100-80gb"],
        ["launch", "skypilot", "--image=a/b", "--volume-claim=c", "--gpus_per_node=2", "--gpu_type=H100"],
    ],
)
def test_mesh_and_batch_of_a_sweep_fit_the_devices_of_a_worker(launcher, capsys):
    assert main([*launcher, *SWEEP]) == 0
    for flags, followed, devices in (["--config.mesh.fsdp=4"], [], 2), (["--config.mesh.fsdp=2"], TRAIN, 1):
        assert main([*launcher, *followed, *SWEEP, *flags]) == 2
        assert f"does not use the {devices} devices that the launch requests" in capsys.readouterr().err


def test_a_mistake_is_told_before_anything_queues(capsys, tmp_path):
    for arguments, message in (
        (["launch"], "'' is not a launcher; launchers are slurm, kubernetes, skypilot"),
        (SLURM, "'' cannot be launched; write train, sweep or tokenize with its flags after --"),
        ([*SHARDS, *TRAIN], "data.store: is missing; set the store that --tokenize_shards writes"),
        ([*SHARDS, *TRAIN, "--config.data.store=/a", "--init_from=/b"], "init.run: training adopts its tokenizers"),
        ([*SHARDS, *OWN_TEXT], "--config=text chooses tokenizer.vocabulary_size"),
        (
            [*KUBERNETES, "--gpus_per_node=1", *TRAIN, "--config.data.store=/other"],
            "data.store: /other is not below --mount_path",
        ),
        ([*SHARDS, *SWEEP], "--tokenize_shards: is for train and tokenize, not for 'sweep'"),
        ([*SLURM, *TRAIN, *TRAIN], "'train' cannot follow a run; write evaluate or sweep with its flags"),
        ([*SLURM, *SWEEP, *SWEEP], "--: a second command follows train, not sweep; launch it by itself"),
        ([*SLURM, *TOKENIZE, "--output=/a/b"], "--shard: each job gets its own; write --tokenize_shards=64 before --"),
        ([*JOBS, *TOKENIZE, "--output=/a/b", "--shard=0/4"], "--shard: each job gets its own; write --tokenize_shards"),
        (
            [*JOBS, *TOKENIZE, "--output=a/b"],
            "--output: 'a/b' must be an absolute path or an address, such as /shared/tokens",
        ),
        (
            [*JOBS, *TOKENIZE, "--output=/a/b", "--config.data.store=/c"],
            "data.store: is read by train; tokenize writes",
        ),
        ([*JOBS, *TOKENIZE, "--output=/a", "--config.init.run=/b"], "init.run: training adopts its tokenizers"),
        (
            [*JOBS, "--", "tokenize", "--config=text", *OWN_TEXT[4:5], "--output=/a"],
            "--config=text chooses tokenizer.voc",
        ),
        ([*JOBS, *TOKENIZE, "--output=/a", *SWEEP], "--: a second command follows train, not tokenize; launch it by"),
        ([*JOBS, "--nodes=2", *TOKENIZE, "--output=/a"], "--nodes: each shard of tokenize takes CPUs of one machine"),
        ([*SLURM, *TRAIN, *SWEEP, *SWEEP], "--: 'sweep' is there twice; launch one of them by itself"),
        ([*SLURM, *TRAIN, *WATCH, "--workdir=/b"], "evaluate: --workdir=/b is another run; write --workdir=/shared/r"),
        ([*SLURM, "--tpu=v5e:4x4", *TRAIN], "--tpu: is a flag for kubernetes, not for slurm"),
        ([*SLURM, *TRAIN[:3]], "--workdir: is required; --help shows an example"),
        ([*ONE, "--nodes=2", *OWN_TEXT[:5], "--budget=20m"], "--budget: 20m sizes a run of one process, and the"),
        ([*ONE, "--nodes=2", *OWN_TEXT[:5]], "--budget: 1h sizes a run of one process"),
        ([*ONE, *OWN_TEXT[:5], "--budget=20"], "--budget: '20' is not a time"),
        ([*SLURM, *TRAIN, "--budget=20m"], "--budget: sizes a run on text files"),
        ([*SLURM, *TRAIN, "--init_from=/a:bst"], "--init_from: /a:bst: there is no such folder"),
        ([*SLURM, *TRAIN, *WATCH, TRAIN[3], "--config.decoding.beam_widht=8"], "did you mean decoding.beam_width?"),
        ([*SLURM, *TRAIN, *WATCH, TRAIN[3], "--config.model.d_ff=8"], "--config.model.d_ff: the run has 2048; only"),
        ([*SLURM, *TRAIN, *WATCH, TRAIN[3], "--average=5"], "--average: --watch scores each checkpoint alone"),
        ([*SLURM, *TRAIN, "--wrkdir=a"], "--wrkdir: unknown flag; did you mean --workdir?"),
        ([*SLURM, *TRAIN, "--config.model.d_f=3"], "model.d_f: unknown key; did you mean model.d_ff?"),
        ([*SLURM, *TRAIN, "--config.mesh.data=4"], "does not use the 16 devices that the launch requests; possible: "),
        ([*SLURM, "--", "sweep", "--sweep=a.py", "--workdir=b"], "--sweep: no file a.py; give a Python file"),
    ):
        assert main([*arguments[:2], f"--output={tmp_path / 'out'}", *arguments[2:]]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_environment_of_the_workers_may_name_the_study(monkeypatch, capsys):
    stored = [*SWEEP[:3], "--workdir=s3://bucket/sweep"]
    assert main([*KUBERNETES, "--gpus_per_node=1", *stored]) == 2
    assert "s3://bucket/sweep: a store cannot hold the study; set TRANSFORMER_JAX_SWEEP" in capsys.readouterr().err
    monkeypatch.setenv("TRANSFORMER_JAX_SWEEP_STORAGE", "postgresql+psycopg://me:hun%40ter2@host/studies")
    assert main([*KUBERNETES, "--gpus_per_node=1", *stored]) == 0
    text = capsys.readouterr().out
    assert "TRANSFORMER_JAX_SWEEP_STORAGE" in text and "own-storage" in text and "ter2" not in text


def test_runs_of_one_name_in_two_folders_are_two_jobs(capsys):
    names = []
    for folder in ("exp1", "exp2"):
        assert main([*SLURM, "--", "train", "--config=small.py", f"--workdir={folder}/base"]) == 0
        names += re.findall("job-name=(.*)", capsys.readouterr().out)
    assert len(set(names)) == 2

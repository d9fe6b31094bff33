import re

import pytest

from transformer_jax.__main__ import main

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
EVALUATE = ["--", "evaluate"]
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


def test_flags_are_read_in_every_form_that_the_command_takes(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("")
    assert main([*KUBERNETES, "--gpus_per_node=2", *TRAIN, "--plugin", "mine.py", "--no_distributed"]) == 0
    text = capsys.readouterr().out
    assert "kind: ConfigMap" in text and "--plugin=/plugins/mine.py" in text and "distributed" not in text
    assert main([*SLURM, "--memory=64Gi", *TRAIN]) == 0
    assert "#SBATCH --mem=64G\n" in capsys.readouterr().out


def test_settings_are_checked_beside_the_sizes_of_a_budget(capsys):
    text = ["--", "train", "--config=text", "--workdir=/a/b", "--config.data.train=/c.tsv", "--budget=2h"]
    for flags in (["--config.tokenizer.joint=false"], ["--config.model.num_heads=3"]):
        assert main([*ONE, *text, *flags]) == 0
        assert flags[0] in capsys.readouterr().out


def test_tokenizing_has_the_settings_of_the_run(tmp_path, capsys):
    flags = ["--config.data.store=s3://b/tokens", "--config.model.d_ff=64"]
    assert main([*SHARDS, "--output=run.sh", *TRAIN, *flags]) == 0
    assert capsys.readouterr().err == "written; start it with: bash run.sh\n"
    commands = re.findall("transformer-jax (tokenize .*)", (tmp_path / "run.sh").read_text())
    cache = "--config.data.cache_directory=/shared/runs/cache"
    command = f"tokenize --config=small.py --output=s3://b/tokens --config.model.d_ff=64 {cache}"
    assert commands == [f"{command} --shard=0/4", command]


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
    assert main([*SLURM, "--output=run.sh", *TRAIN, *EVALUATE, "--workdir=/shared/runs/Small", *SWEEP]) == 0
    assert capsys.readouterr().err == "written; start it with: bash run.sh\n"
    commands = re.findall("transformer-jax (evaluate|sweep) (.*)", (tmp_path / "run.sh").read_text())
    assert commands[0] == ("evaluate", "--workdir=/shared/runs/Small") and commands[1][0] == "sweep"
    assert "#SBATCH --array=0-1\n" in (tmp_path / "run.sh").read_text()


def test_a_mistake_is_told_before_anything_queues(capsys, tmp_path):
    for arguments, message in (
        (SLURM, "'' cannot be launched; write train, sweep or tokenize with its flags after --"),
        ([*SHARDS, *TRAIN], "data.store: is missing; set the store that --tokenize_shards writes"),
        ([*SHARDS, *TRAIN, "--config.data.store=/a", "--init_from=/b"], "init.run: training adopts its tokenizers"),
        ([*SHARDS, *OWN_TEXT], "--config=text chooses tokenizer.vocabulary_size"),
        ([*SLURM, *TRAIN, *TRAIN], "'train' cannot follow a run; write evaluate or sweep with its flags"),
        ([*JOBS, *TOKENIZE, "--output=a/b"], "--output: 'a/b' must be an absolute path or an address, such as /sha"),
        ([*JOBS, *TOKENIZE, "--output=/a", *SWEEP], "--: a second command follows train, not tokenize; launch it by"),
        (
            [*SLURM, *TRAIN, *EVALUATE, "--workdir=/b"],
            "evaluate: --workdir=/b is another run; write --workdir=/shared/r",
        ),
        ([*SLURM, "--tpu=v5e:4x4", *TRAIN], "--tpu: is a flag for kubernetes, not for slurm"),
        ([*SLURM, *TRAIN[:3]], "--workdir: is required; --help shows an example"),
        ([*SLURM, *TRAIN, *EVALUATE, TRAIN[3], "--config.decoding.beam_widht=8"], "did you mean decoding.beam_width?"),
        ([*SLURM, *TRAIN, "--config.mesh.data=4"], "does not use the 16 devices that the launch requests; possible: "),
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

"""Which flags of which commands may name runs in an object store."""

import pytest

from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.mirrored_runs import _RUN, names_addresses, run_on_mirrors
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError

RUN = "s3://bucket/run"


@pytest.mark.parametrize(
    ("name", "arguments", "is_found"),
    [
        ("train", ["--config=quickstart", "--workdir=s3://b/a"], True),
        ("train", ["--config=quickstart", "--workdir=runs/a"], False),
        ("train", ["--config=quickstart", "--workdir=runs/a", "--init_from=s3://b/a:best"], True),
        ("train", ["--config=quickstart", "--workdir=runs/a", "--config.data.directory=s3://b/a"], False),
        ("report", ["runs/a", "s3://b/a"], True),
        ("evaluate", ["s3://b/a"], True),
        ("evaluate", ["runs/a", "--ensemble=runs/b,s3://b/a"], True),
        ("launch", ["slurm", "--", "train", "--workdir=s3://b/a"], False),
    ],
)
def test_which_commands_are_given_a_copy(name, arguments, is_found):
    assert names_addresses(name, parse_flags(load_command(name).define_flags, arguments)) == is_found


@pytest.mark.parametrize(
    ("text", "address", "rest"),
    [
        ("s3://b/a:best", "s3://b/a", ":best"),
        ("hdfs://host:8020/a:12", "hdfs://host:8020/a", ":12"),
        ("s3://b/a/evaluation-test-1.txt", "s3://b/a", "/evaluation-test-1.txt"),
        ("s3://b/a/", "s3://b/a", None),
    ],
)
def test_an_address_may_be_followed_by_a_checkpoint_or_a_file(text, address, rest):
    found = _RUN.fullmatch(text)
    assert found is not None
    assert (found["address"], found["rest"]) == (address, rest)


def test_what_is_no_address_of_a_run_does_not_become_a_folder():
    values = parse_flags(load_command("report").define_flags, ["s3://key:secret@b/a:1:2"])
    with pytest.raises(ConfigError, match=r"s3://key:\*\*\*@b/a:1:2: not the address of a run"):
        run_on_mirrors("report", lambda given: 0, values)


def test_several_processes_need_a_folder_that_all_see():
    values = parse_flags(load_command("train").define_flags, ["--config=a", f"--workdir={RUN}", "--distributed"])
    with pytest.raises(ConfigError, match="mount the store"):
        run_on_mirrors("train", lambda given: 0, values)

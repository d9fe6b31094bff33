"""Which flags of which commands may name runs in an object store."""

import pytest

from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.mirrored_runs import names_addresses, run_on_mirrors
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


def test_several_processes_need_a_folder_that_all_see():
    values = parse_flags(load_command("train").define_flags, ["--config=a", f"--workdir={RUN}", "--distributed"])
    with pytest.raises(ConfigError, match="mount the store"):
        run_on_mirrors("train", lambda given: 0, values)

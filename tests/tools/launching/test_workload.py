import pytest
from tools.launching.workloads import training

from transformer_jax.config import ConfigError
from transformer_jax.tools.launching import logs_of, name_of_workdir, require_name
from transformer_jax.tools.launching.kubernetes import hosts_of_slice


def test_the_launcher_sets_distributed():
    plain = ["transformer-jax", "train", "--config=a.py", "--workdir=/shared/runs/base"]
    for flags in ([], ["--distributed"], ["--nodistributed"], ["--distributed=false"]):
        assert training(*flags).command(1) == plain
        assert training(*flags).command(2) == [*plain[:2], "--distributed", *plain[2:]]


def test_a_mesh_and_a_batch_must_fit_the_devices():
    training(fsdp=4).require_fits(32)
    training(rows=8, tensor=4).require_fits(32)
    with pytest.raises(ConfigError, match=r"data=3, .* the 32 devices that the launch requests; possible: "):
        training(rows=3, data=3).require_fits(32)
    with pytest.raises(ConfigError, match="batching.row_multiple: 8 is not a multiple of 32"):
        training(rows=8).require_fits(32)


def test_logs_lie_beside_the_run_where_sbatch_can_write_that():
    found = [logs_of(each) for each in ("/shared/runs/base/", "~/runs/base", "runs/base", "/a b/base")]
    assert found == ["/shared/runs/logs", "logs", "logs", "logs"]


def test_names():
    assert name_of_workdir("/shared/runs/Base_v2.1/") == "base-v2-1"
    assert name_of_workdir("2026_" + "a" * 50) == "a" * 40
    with pytest.raises(ConfigError, match="--name: is missing, and /runs/7 gives none"):
        name_of_workdir("/runs/7")
    for name in ("Base", "4x8", "a_b", "a-", "", "a" * 41, "a\n"):
        with pytest.raises(ConfigError, match="--name"):
            require_name(name)


@pytest.mark.parametrize(
    ("text", "chips", "hosts"),
    [("v5e:1x1", 1, 1), ("v5e:2x4", 8, 1), ("v6e:16x16", 256, 64), ("v4:2x2x1", 4, 1), ("v5p:2x2x2", 8, 2)],
)
def test_slices_as_google_counts_them(text, chips, hosts):
    found = hosts_of_slice(text)
    assert (found.number * found.devices_of_each, found.number) == (chips, hosts)


def test_unknown_slices():
    with pytest.raises(ConfigError, match="kinds: v4, v5e, v5p, v6e"):
        hosts_of_slice("v5litepod-16")
    with pytest.raises(ConfigError, match="--tpu: v5e has no slice '3x4'; slices: 1x1, 2x2, 2x4, 4x4"):
        hosts_of_slice("v5e:3x4")

import pytest
from tools.launching.workloads import sweep, training

from transformer_jax.config import ConfigError
from transformer_jax.tools.launching.field_formats import name_of_workdir, require_memory, require_name, slurm_seconds
from transformer_jax.tools.launching.tpu_slices import parse_slice


def test_distributed_is_the_launchers_to_say():
    plain = ["transformer-jax", "train", "--config=a.py", "--workdir=/shared/runs/base"]
    spread = ["transformer-jax", "train", "--distributed", "--config=a.py", "--workdir=/shared/runs/base"]
    for flags in ([], ["--distributed"], ["--nodistributed"], ["--distributed=false"]):
        assert training(*flags).command(1) == plain
        assert training(*flags).command(2) == spread


def test_what_does_not_fit_the_devices_is_told_what_does():
    training(fsdp=4).require_fits(32)
    with pytest.raises(
        ConfigError, match=r"data=3, .* the 32 devices that the launch asks for; meshes that fit: --config.mesh=data=32"
    ):
        training(rows=3, data=3).require_fits(32)
    with pytest.raises(
        ConfigError, match="batching.row_multiple: 8 rows do not divide into 32 parts .* a multiple of 32"
    ):
        training(rows=8).require_fits(32)
    training(rows=8, tensor=4).require_fits(32)


@pytest.mark.parametrize(
    "storage",
    [
        "postgresql://me:secret@host/name",
        "mysql+pymysql://host/name",
        "/shared/a.journal",
    ],
)
def test_workers_meet_in_a_database_or_in_a_journal_on_a_shared_disk(storage):
    assert sweep(2, storage).command() == [
        *[
            "transformer-jax",
            "sweep",
            "--sweep=sweep.py",
            "--workdir=/shared/sweep",
            f"--storage={storage}",
            "--workers=1",
        ]
    ]


def test_a_study_that_only_one_machine_sees_is_refused():
    with pytest.raises(ConfigError, match="--storage: 'study.journal' is not an absolute path"):
        sweep(2, "study.journal")
    with pytest.raises(ConfigError, match="--storage: 'runs/a' is not an absolute path"):
        sweep(2, "", workdir="runs/a")
    assert sweep(1, "study.journal").command()[-1] == "--workers=1"
    assert "--storage" not in " ".join(sweep(2, "", workdir="/shared/a").command())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60),
        ("2:30", 150),
        ("24:00:00", 86_400),
        ("1-0", 86_400),
        ("1-2:30", 86_400 + 9000),
        ("1-2:30:15", 86_400 + 9015),
    ],
)
def test_time_limits_as_sbatch_reads_them(text, seconds):
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1d", "24h", "1:2:3:4", "-1", "1-", "12:00\n"])
def test_what_is_no_time_limit(text):
    with pytest.raises(ConfigError, match="--time: .* write HH:MM:SS"):
        slurm_seconds(text)


@pytest.mark.parametrize("name", ["Base", "4x8", "a_b", "-a", "a-", "", "a" * 41, "a\n"])
def test_names_that_kubernetes_would_refuse(name):
    with pytest.raises(ConfigError, match="--name"):
        require_name(name)


def test_a_name_after_the_folder():
    assert name_of_workdir("/shared/runs/Base_v2.1/") == "base-v2-1"
    assert name_of_workdir("2026_" + "a" * 50) == "a" * 40
    with pytest.raises(ConfigError, match="--name: is needed, as --workdir=/runs/7 does not give one"):
        name_of_workdir("/runs/7")


def test_memory_is_a_number_with_a_unit():
    assert require_memory("64G", "M|G") == "64G"
    for text in ("64", "64GB", "0G", "6.5G", "G"):
        with pytest.raises(ConfigError, match=f"--memory: '{text}'"):
            require_memory(text, "M|G")


@pytest.mark.parametrize(
    ("text", "chips", "hosts"),
    [
        ("v5e:1x1", 1, 1),
        ("v5e:2x4", 8, 1),
        ("v5e:4x4", 16, 4),
        ("v6e:16x16", 256, 64),
        ("v4:2x2x1", 4, 1),
        ("v5p:2x2x2", 8, 2),
        ("v5p:4x4x4", 64, 16),
    ],
)
def test_slices_as_google_counts_them(text, chips, hosts):
    tpu = parse_slice(text)
    assert (tpu.num_chips, tpu.num_hosts) == (chips, hosts)


def test_slices_that_there_are_not():
    with pytest.raises(ConfigError, match="kinds: v4, v5e, v5p, v6e"):
        parse_slice("v5litepod-16")
    with pytest.raises(ConfigError, match="--tpu: v5e has no slice '3x4'; slices: 1x1, 2x2, 2x4, 4x4"):
        parse_slice("v5e:3x4")

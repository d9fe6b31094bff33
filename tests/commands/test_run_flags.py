"""How a command line names a checkpoint of a run."""

import pytest

from transformer_jax.commands.run_flags import split_checkpoint
from transformer_jax.config import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", ("a", None)),
        ("a:5", ("a", "5")),
        ("nowhere/a:last", ("nowhere/a", "last")),
        ("b:5", ("b:5", None)),
        ("b:5:best", ("b:5", "best")),
        ("c:d", ("c:d", None)),
        ("s3://b/a", ("s3://b/a", None)),
        ("s3://b/a:5", ("s3://b/a", "5")),
    ],
)
def test_a_folder_of_the_whole_name_comes_first(text, found, tmp_path, monkeypatch):
    for name in ("a", "b:5", "c:d"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert split_checkpoint(text, "--init_from") == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--init_from: the name of a run is empty"),
        (":last", "--init_from: the name of a run is empty"),
        ("a:bst", "--init_from: a:bst: there is no such folder, and 'bst' is not a checkpoint: best, last or"),
        ("a:", "--init_from: a:: there is no such folder, and '' is not a checkpoint"),
    ],
)
def test_what_names_no_checkpoint_is_told(text, message, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        split_checkpoint(text, "--init_from")

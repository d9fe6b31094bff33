"""Tables 2 and 3 of the paper: rows that resolve, sizes, directions of effects, and the tables, on
made-up figures."""

from pathlib import Path

import pytest

from transformer_jax.tools.study.sweeps import load_sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    """Where recipes are found."""
    monkeypatch.chdir(ROOT)


def sweep_of(table: str, scale: str, rows: tuple[str, ...] = ()):
    return load_sweep(f"{ROOT / 'experiments' / table / 'sweep.py'}:{scale}", [], rows)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_of_table_3_is_possible_and_is_another_model_or_loss(script, scale):
    sweep = sweep_of("paper_table3", scale)
    assert list(sweep.rows) == list(script("rows", "paper_table3").FOUND)
    settings = [sweep.settings({"row": name}) for name in sweep.rows]
    assert len(set(settings)) == len(settings)
    assert len({config.batching for config in settings}) == len({config.tokenizer for config in settings}) == 1


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_row_of_table_2_keeps_the_checkpoints_that_it_averages(script, scale):
    average_of = script("run", "paper_table2", "paper_table3").average_of
    sweep = sweep_of("paper_table2", scale)
    assert list(sweep.rows) == list(script("reported", "paper_table2", "paper_table3").FOUND)
    for name in sweep.rows:
        config = sweep.settings({"row": name})
        assert config.data.target_language == name[-2:].lower()
        assert config.training.keep_last == average_of(scale, name)
        assert config.training.num_updates // config.training.checkpoint_every >= average_of(scale, name)
        if scale == "paper":
            assert config.data.name.endswith(f"{name[-2:].lower()}-en")

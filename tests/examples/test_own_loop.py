"""The pieces of the package work in a script without the trainer."""

import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from transformer_jax.config.language_model import DecoderOnlyConfig
from transformer_jax.models.build import build_decoder_only, init_decoder_only

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_loop.py"


@pytest.mark.slow
def test_an_own_loop_trains_searches_and_attends(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    names = runpy.run_path(str(EXAMPLE))
    assert "reversed correctly: 100% of the sequences" in capsys.readouterr().out
    np.testing.assert_allclose(names["weights"].sum(-1), 1, rtol=1e-5)
    assert not np.triu(names["weights"][0, 0], 1).any(), "causal"
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


def test_the_page_names_how_a_language_model_is_made():
    page = (EXAMPLE.parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    assert "`DecoderOnlyConfig` in `transformer_jax.config.language_model`" in page
    assert "`init_decoder_only(model, key)`" in page
    config = DecoderOnlyConfig(8, 8, 2, num_layers=1)
    params = init_decoder_only(build_decoder_only(config, 9), jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}

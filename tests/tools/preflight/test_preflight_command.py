"""``transformer-jax preflight`` with fake devices in place of a TPU slice: what it prints, and its
exit status."""

from types import SimpleNamespace

import jax
import pytest
from tools.preflight.small_settings import SETTINGS

from transformer_jax.__main__ import main
from transformer_jax.tools.preflight import chips
from transformer_jax.tools.preflight import compiled_program as program
from transformer_jax.tools.preflight import preflight_report as report
from transformer_jax.tools.preflight.chips import CHIPS, Topology

PREFLIGHT = ["preflight", "--config=small.py"]


@pytest.fixture(autouse=True)
def slices(tmp_path, monkeypatch):
    """A recipe, and slices of two devices each: of v5e, of one with room for little, and of unknown
    speed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(f"def get_config(): return {SETTINGS}")
    topologies = {"v5e:1x2": CHIPS["v5e"], "small:2": CHIPS["v5e"]._replace(memory=10_000), "cpu:2": None}
    monkeypatch.setattr(chips, "open_topology", lambda name: Topology(name, jax.devices()[:2], topologies[name]))


@pytest.mark.parametrize("fits", [True, False])
def test_what_does_not_fit_sets_the_exit_status(fits, monkeypatch, capsys):
    """The compiler is replaced; test_program.py has its report."""
    monkeypatch.setattr(program, "compile_program", lambda *arguments: SimpleNamespace(fits=fits))
    monkeypatch.setattr(report, "report", lambda *arguments: "the report")
    assert main([*PREFLIGHT, "--topology=small:2"]) == (0 if fits else 1)
    assert capsys.readouterr().out == "the report\n"

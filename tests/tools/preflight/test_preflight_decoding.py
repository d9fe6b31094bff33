"""Decoding compiled and not run: a step, and a search as the sum of its steps."""

from dataclasses import replace

import jax
import pytest
from tools.preflight.small_settings import SETTINGS

from transformer_jax.config import MeshConfig, from_dict
from transformer_jax.tools.preflight import decoding
from transformer_jax.tools.preflight.chips import CHIPS, Topology
from transformer_jax.tools.preflight.compiled_program import Compiled
from transformer_jax.tools.preflight.decoding import compile_decoding
from transformer_jax.tools.preflight.preflight_report import report

CONFIG = from_dict(SETTINGS | {"decoding": {"beam_width": 3, "batch_tokens": 70, "max_extra_tokens": 134}})


@pytest.mark.slow
def test_one_step(monkeypatch):
    topology = Topology("v5e:1x1", jax.devices()[:1], CHIPS["v5e"])
    program = compile_decoding(CONFIG, topology, 0, is_search=False)
    # Four rows of 16 are 64 of 70 positions.
    assert (program.rows, program.width, program.positions) == (4, 16, 4)
    # Keys and values of each side, float32; of the target of every beam, at each of 16 + 134
    # tokens.
    cache = 2 * 4 * 16 * 4 * (16 + 3 * 150)
    assert cache < program.state_bytes < 1.5 * cache
    assert program.traffic > program.parameter_bytes
    assert {"attention", "search"} <= set(program.traffic_kinds)
    text = report(program, topology, CONFIG)
    assert "decode_step: 4 rows of 16 positions" in text
    assert "state of the search" in text
    # Adam's two moments, the step and the key; the search reads the parameters of the state.
    assert 2 * 4 * program.parameters <= program.training_bytes < 2.1 * 4 * program.parameters
    split = replace(CONFIG, mesh=MeshConfig(fsdp=2))
    monkeypatch.setattr(decoding, "compile_for", lambda *arguments: Compiled(0, 1e9, True, [], {}, []))
    program = compile_decoding(split, Topology("v5e:1x2", jax.devices()[:2], CHIPS["v5e"]), 0, is_search=False)
    assert program.training_bytes > 1.4 * 4 * program.parameters, "half of the state, beside parameters of the search"
    assert f"total beside the state of a run  {(program.total + program.training_bytes) / 2**30:8.3f}" in text


def test_a_search_is_its_start_and_all_its_steps(monkeypatch):
    traffic = iter([{"attention": 7}, {"attention": 1, "search": 100}, {"search": 200}, {"search": 1000}])

    def compiled(lowered, mesh, chip, argument_bytes):
        return Compiled(argument_bytes, 1e9, True, [], next(traffic), [])

    monkeypatch.setattr(decoding, "compile_for", compiled)
    program = compile_decoding(CONFIG, Topology("cpu:1", jax.devices()[:1], None), 0, is_search=True)
    # Room for 32 tokens, for 64, for all 150.
    assert program.traffic_kinds == {"search": 32 * 100 + 32 * 200 + 86 * 1000, "attention": 7 + 32}
    assert program.positions == 4 * 150
    # Of the last room.
    assert program.temporaries == program.parameter_bytes + program.state_bytes


@pytest.mark.parametrize(("temporaries", "parts"), [([9_000_000, 1, 2, 3], 4), ([2_000_000_000], 1)])
def test_the_memory_of_a_search_is_of_its_largest_part(temporaries, parts, monkeypatch):
    calls = []

    def compiled(lowered, mesh, chip, argument_bytes):
        calls.append(argument_bytes)
        return Compiled(temporaries[len(calls) - 1], 1e9, temporaries[len(calls) - 1] < 1e9, [], {}, [])

    monkeypatch.setattr(decoding, "compile_for", compiled)
    topology = Topology("cpu:1", jax.devices()[:1], None)
    program = compile_decoding(CONFIG, topology, 0, is_search=True)
    assert len(calls) == parts and program.fits == (parts > 1)
    # The start has the state of the first room.
    assert program.temporaries == temporaries[0]
    assert program.state_bytes == calls[0] - program.parameter_bytes > 0
    if not program.fits:
        text = report(program, topology, CONFIG)
        assert "--config.decoding.beam_width" in text and "--config.model.rematerialize" not in text

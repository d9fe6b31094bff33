"""Memory traffic of the paper's training step on chips that are not here, counted in the weekly
job: at most 5 % more."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from process_environment import ROOT

GIB = 2**30
ALLOWED = 1.05
COUNTED = {
    # Recipe, chip, width of rows and layers: GiB of a step, and of its attention.
    ("transformer_base", "h100:1", 256, 6): (60.4, 5.95),
    ("transformer_base", "h100:1", 128, 6): (60.4, 5.95),
    ("transformer_base:big", "h100:1", 256, 6): (110.6, 11.9),
    ("transformer_base", "v5e:2x2", 256, 1): (8.54, 0.75),
}
"""With jaxlib 0.12.0.1, its CUDA plugin and libtpu 0.0.52. When a change moves fewer bytes, or a
compiler counts otherwise: ``transformer-jax preflight --config=RECIPE --topology=CHIP
--length=WIDTH``."""
PLUGINS = {"h100": "jax_cuda13_plugin", "v5e": "libtpu"}


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "chip", "width", "layers"), COUNTED)
def test_a_step_moves_no_more_bytes_than_counted(recipe, chip, width, layers):
    plugin = PLUGINS[chip.partition(":")[0]]
    if importlib.util.find_spec(plugin) is None:
        pytest.skip(f"needs {plugin}: pip install 'transformer_jax[preflight,preflight-gpu]'")
    # Tests compile without most optimizations.
    not_here = "XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"
    environment = {name: value for name, value in os.environ.items() if name not in not_here}
    depth = [f"--config.model.num_{stack}_layers={layers}" for stack in ("encoder", "decoder")]
    flags = f"--config={recipe}", f"--topology={chip}", f"--length={width}", "--json", *depth
    command = [sys.executable, "-m", "transformer_jax", "preflight", *flags]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    program = json.loads(result.stdout)
    traffic, attention = COUNTED[recipe, chip, width, layers]
    assert program["traffic"] / GIB <= ALLOWED * traffic, program["traffic_kinds"]
    assert program["traffic_kinds"]["attention"] / GIB <= ALLOWED * attention

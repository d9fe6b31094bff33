"""StableHLO programs, here and in a process that has jax alone."""

import os
import shutil
import subprocess
import sys

import pytest
from tools.interop.small_models import TEXTS, code_of, opened, small_model

from transformer_jax.config import DataError
from transformer_jax.tools.interop import stablehlo
from transformer_jax.tools.interop.formats import open_counterpart
from transformer_jax.tools.interop.parity import compare


@pytest.fixture(scope="module")
def model():
    return opened(small_model())


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    stablehlo.export(model, folder, batch_size=2, source_length=48)
    return folder


@pytest.mark.slow
def test_steps_compute_the_same(model, folder):
    found = compare(model, open_counterpart(folder, model), [*TEXTS, "the dog " * 40])
    assert found.holds, found.rows()
    # The text that is too long was left out.
    assert (found.sentences, found.left_out) == (3, 1)
    assert found.checks == (("hidden states", 3, 3), ("beam search", 3, 3))


def test_every_program_is_loaded_and_another_model_is_refused(model, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    other = opened(small_model(d_ff=32))
    with pytest.raises(DataError, match=r"parameters.npz: \S+ has shape .*, expected"):
        open_counterpart(copy, other)
    (copy / "encode.bin").write_bytes((folder / "encode.bin").read_bytes()[:-100])
    with pytest.raises(DataError, match="programs are missing or damaged"):
        open_counterpart(copy, model)
    (copy / "stablehlo.json").write_text("{}")
    with pytest.raises(DataError, match="stablehlo.json: has no batch_size"):
        open_counterpart(copy, model)


@pytest.mark.slow
def test_the_documented_script_translates_with_jax_alone(model, folder):
    examples = model.examples(TEXTS)
    lines = "".join(" ".join(map(str, example.source)) + "\n" for example in examples)
    program = code_of("StableHLO with jax alone") + "assert 'transformer_jax' not in sys.modules\n"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-c", program, str(folder)]
    found = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, cwd=folder)
    assert found.returncode == 0, found.stderr
    ids = [[int(token) for token in line.split()] for line in found.stdout.splitlines()]
    best = model.translator(model.config.decoding).translate_ids(model.params, [each.source for each in examples])
    assert ids == [each[0].token_ids for each in best]

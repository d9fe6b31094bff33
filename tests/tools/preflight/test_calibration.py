"""Measured speeds: measured here, written, read, and used in place of a data sheet's."""

import jax
import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight import calibration
from transformer_jax.tools.preflight.calibration import Calibration, calibrated, load_calibration, measure, to_json
from transformer_jax.tools.preflight.chips import CHIPS, Topology

MEASURED = Calibration("cpu", 2, {"bfloat16": 3e12, "float32": 2e12}, 5e9, {"x": 7e8}, "0.10")
HERE = Topology("cpu:2", jax.devices()[:2], None)


def test_what_is_measured_is_written_and_read(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "SMALL", calibration.Sizes(matrix=16, copied=4096, summed=1024))
    file = tmp_path / "measured.json"
    assert main(["calibrate", f"--output={file}"]) == 0
    loaded = load_calibration(file)
    assert (loaded.device, loaded.devices, set(loaded.links)) == ("cpu", 8, {"x"})
    assert min(*loaded.matmul_flops.values(), *loaded.links.values(), loaded.memory_bandwidth) > 0


def test_bytes_and_operations_over_seconds(monkeypatch):
    monkeypatch.setattr(calibration, "_seconds", lambda function, *arguments: 0.5)
    measured = measure(jax.devices()[:1], calibration.Sizes(matrix=10, copied=4000, summed=400))
    assert measured.matmul_flops == {"bfloat16": 4000.0, "float32": 4000.0}
    assert measured.memory_bandwidth == 16_000.0
    assert measured.links == {}, "one device sends nothing; of four each sends 3/4 twice"
    assert calibration.link_bandwidths(jax.devices()[:4], 400) == {"x": 2 * 3 / 4 * 400 / 0.5}


def test_measured_speeds_replace_those_of_the_data_sheet():
    chip = calibrated(HERE._replace(chip=CHIPS["v5e"]), MEASURED).chip
    # The two devices of cpu:2 share what one had alone.
    assert (chip.peak("bfloat16"), chip.peak("float32"), chip.memory_bandwidth) == (1.5e12, 1e12, 2.5e9)
    assert calibrated(HERE._replace(devices=HERE.devices[:1]), MEASURED).chip.peak("float32") == 2e12
    assert (chip.links, chip.memory) == ({"x": 7e8}, CHIPS["v5e"].memory)
    assert calibrated(HERE, MEASURED).chip.name == "cpu (measured)"
    # An axis that was not measured keeps its figure.
    assert calibrated(HERE._replace(chip=CHIPS["v5e"]), MEASURED._replace(links={})).chip.links == {"x": 100e9}
    with pytest.raises(ConfigError, match="measured on 'NVIDIA H100', but cpu:2 is 'cpu'"):
        calibrated(HERE, MEASURED._replace(device="NVIDIA H100"))


def test_a_tpu_or_gpu_has_one_name_and_a_bad_file_is_refused(tmp_path):
    names = {"TPU v5": "TPU v5p", "TPU v5 lite": "TPU v5e", "CUDA NVIDIA H200": "NVIDIA H200"}
    assert {name: calibration._one_name(name) for name in names} == names
    file = tmp_path / "measured.json"
    for content in ("{", '{"device": "cpu"}', to_json(MEASURED._replace(memory_bandwidth=0.0))):
        file.write_text(content)
        with pytest.raises(ConfigError, match="measured.json"):
            load_calibration(file)

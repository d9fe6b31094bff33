"""The programs of docs/interop.md, run as they are printed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.interop.small_models import small_model

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "interop.md"


def code_of(section):
    """The program in a section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def test_programs_are_short_and_do_without_this_package():
    for section, lines in (("An archive without this package", 30), ("StableHLO with jax alone", 20)):
        program = code_of(section)
        assert "transformer_jax" not in program
        assert len([line for line in program.splitlines() if line.strip()]) <= lines


def test_an_archive_is_read_and_checked(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    named = small_model().named
    command = [sys.executable, "-I", "-c", code_of("An archive without this package"), str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == [f"model {len(named)} tensors", "golden 9 tensors"]
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    # Without assertions too.
    command.insert(1, "-O")
    damaged = subprocess.run(command, capture_output=True, text=True)
    assert damaged.returncode == 1 and "model.safetensors is damaged" in damaged.stderr

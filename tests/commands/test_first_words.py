"""A command that translates again needs neither the model nor its library."""

import subprocess
import sys
from functools import partial

from process_environment import process_environment

TRANSLATE = """
import sys
from transformer_jax.__main__ import main
status = main(sys.argv[1:])
print("flax" in sys.modules, file=sys.stderr)
sys.exit(status)
"""


def test_the_second_translation_imports_no_model(run, tmp_path):
    (tmp_path / "lines").write_text("b c\n\nc b b c\n")
    environment = process_environment(TRANSFORMER_JAX_PROGRAMS="", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    command = [sys.executable, "-c", TRANSLATE, "translate", str(run), f"--source={tmp_path / 'lines'}", "--n_best=2"]
    translate = partial(subprocess.run, command, capture_output=True, text=True, env=environment, check=True)
    results = [translate(), translate()]
    assert [result.stderr.splitlines()[-1] for result in results] == ["True", "False"]
    assert len({result.stdout for result in results}) == 1
    assert results[0].stdout
    assert any((tmp_path / "cache" / "programs").iterdir())

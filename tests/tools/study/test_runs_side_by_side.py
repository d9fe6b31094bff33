"""Compare runs, and look after their checkpoints, through the command line."""

import json
import re
import shutil

import numpy as np
import pytest
from run_steps import read_parameters
from shared_run import few_devices

from transformer_jax.__main__ import main
from transformer_jax.commands.run_flags import split_to_try
from transformer_jax.config import DataError, from_dict, load_run_config
from transformer_jax.tools.study import translation_comparison

__all__ = ["few_devices"]


@pytest.mark.slow
def test_an_average_of_checkpoints_is_translated_once_and_found_again(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("evaluation-*"))
    config = load_run_config(copy)
    side = translation_comparison.choose_run(copy, config, "validation", "last", average=3)
    assert side.saved is None
    evaluation = translation_comparison.translated(side).evaluation
    assert evaluation.report["averaged_checkpoints"] == 3
    assert evaluation.stem == copy / "evaluation-validation-30-average3"
    again = translation_comparison.choose_run(copy, config, "validation", "last", average=3)
    assert again.evaluation.hypotheses == evaluation.hypotheses
    with pytest.raises(DataError, match="4 checkpoints to average"):
        translation_comparison.choose_run(copy, config, "validation", "last", average=4)


def test_an_average_is_a_run_whose_parameters_are_the_mean(run, tmp_path, capsys):
    average = tmp_path / "average"
    assert main(["checkpoint", "average", str(run), "--count=3", f"--output={average}"]) == 0
    assert "--split=test" in capsys.readouterr().out
    without_test = {"source": "text", "train": "a.en,a.de", "validation": "b.en,b.de"}
    assert split_to_try(from_dict({"data": without_test})) == "validation"
    assert main(["report", str(average), f"--output={tmp_path / 'report'}"]) == 0
    assert "records were lost" not in capsys.readouterr().out
    means = read_parameters(average, "best")
    parts = [read_parameters(run, step) for step in ("10", "20", "30")]
    for name, mean in means.items():
        np.testing.assert_allclose(mean, sum(part[name] for part in parts) / 3, rtol=1e-5, atol=1e-7)
    (tmp_path / "in.txt").write_text("a b c\n")
    files = [f"--source={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out.txt'}"]
    assert main(["translate", f"--workdir={average}", *files]) == 0
    averaged = (tmp_path / "out.txt").read_text()
    assert main(["translate", f"--workdir={run}", "--checkpoint=last", "--average=3", *files]) == 0
    assert (tmp_path / "out.txt").read_text() == averaged
    assert (average / "data.json").read_bytes() == (run / "data.json").read_bytes()
    assert json.loads((average / "run.json").read_text())[0]["average_of"] == {"run": str(run), "steps": [10, 20, 30]}
    capsys.readouterr()
    assert main(["train", f"--config={average}", f"--workdir={average}"]) == 2
    assert f"--init_from={average}" in capsys.readouterr().err
    assert main(["checkpoint", "info", str(average)]) == 0
    short = capsys.readouterr().out
    assert re.search("optimizer state +none", short) and "\n  " not in short and "counters" not in short
    assert main(["checkpoint", "info", str(average), "--all"]) == 0
    whole = capsys.readouterr().out
    assert "\n  " in whole and re.search("counters +best ", whole) and len(whole) > 2 * len(short)

"""The command that continues prompts, on a run directory that is written here."""

import json

import pytest
from tasks.language_model_settings import untrained_run

from transformer_jax.__main__ import main
from transformer_jax.config import ExperimentConfig, to_json


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("lm"), tokenizer={"kind": "bpe", "vocabulary_size": 320})


def generated(capsys, workdir, *flags):
    assert main(["generate", f"--workdir={workdir}", *flags]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_prompt_and_a_file_of_prompts(workdir, tmp_path, capsys):
    flags = ["--temperature=0.9", "--top_k=50", "--max_new_tokens=5", "--seed=2"]
    alone = generated(capsys, workdir, "--prompt=The dog", *flags)
    (tmp_path / "prompts.txt").write_text("The dog\nThe cat\n")
    first, second, end = generated(capsys, workdir, f"--prompts={tmp_path}/prompts.txt", *flags).split("\n")
    assert alone.startswith("The dog") and first == alone.removesuffix("\n").replace("\n", " ")
    assert second.startswith("The cat") and end == ""


def test_beam_search_after_the_end_of_a_long_prompt(workdir, capsys):
    prompt = "wug " * 40
    assert main(["generate", f"--workdir={workdir}", "--beam_width=2", "--max_new_tokens=4", f"--prompt={prompt}"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith(prompt) and error.endswith("leave the model the last 28\n")


def test_what_cannot_be_is_told(workdir, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    for run, flags, message in (
        (workdir, ["--prompt=a", "--prompts=b"], "--prompt: give one prompt, or a file of them"),
        (workdir, ["--top_p=0"], "decoding.top_p: 0.0 must be above 0"),
        (workdir, ["--beam_width=2", "--top_k=3"], "--top_k: beam_width=2 is beam search, which"),
        (tmp_path, ["--top_k=3"], "is a run of task=translation; this command takes task=language_model"),
    ):
        assert main(["generate", f"--workdir={run}", *flags]) == 2
        assert message in capsys.readouterr().err

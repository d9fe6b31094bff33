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


def test_a_prompt_and_a_file_of_prompts(workdir, tmp_path, capsys):
    flags = ["--temperature=0.9", "--top_k=50", "--max_new_tokens=5"]
    alone = generated(capsys, workdir, "--prompt=The dog", "--seed=2", *flags)
    assert alone.startswith("The dog")
    assert alone != generated(capsys, workdir, "--prompt=The dog", "--seed=3", *flags)
    (tmp_path / "prompts.txt").write_text("The dog\nThe cat\n")
    several = generated(capsys, workdir, f"--prompts={tmp_path}/prompts.txt", "--seed=2", *flags).split("\n")
    assert several[0] == alone.removesuffix("\n").replace("\n", " ")
    assert several[1].startswith("The cat")
    assert len(several) == 3


def test_beam_search_after_the_end_of_a_long_prompt(workdir, capsys):
    prompt = "wug " * 40
    assert main(["generate", f"--workdir={workdir}", "--beam_width=2", "--max_new_tokens=4", f"--prompt={prompt}"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith(prompt)
    assert error.startswith("--prompt: has ") and error.endswith("leave the model the last 28\n")


def test_what_cannot_be_is_told(workdir, tmp_path, capsys):
    other = tmp_path / "translation"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    cases = [
        ([f"--workdir={workdir}", "--prompt=a", "--prompts=b"], "--prompt: give one prompt, or a file of them"),
        ([f"--workdir={workdir}", "--top_p=0"], "decoding.top_p: 0.0 must be above 0"),
        ([f"--workdir={workdir}", "--beam_width=2", "--top_k=3"], "--top_k: beam_width=2 is beam search, which"),
        ([f"--workdir={other}"], "is a run of task=translation; this command takes task=language_model"),
        ([f"--workdir={other}", "--top_k=3"], "this command takes task=language_model"),
    ]
    for flags, message in cases:
        assert main(["generate", *flags]) == 2
        assert message in capsys.readouterr().err

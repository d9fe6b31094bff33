"""Texts of one's own that a trained language model is given: scored, evaluated, looked at."""

import json
import math

import numpy as np
import pytest
from tasks.language_model_settings import untrained_run

import transformer_jax
from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.corpora import require_readable
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask, window_starts
from transformer_jax.tasks.remarks import TrainingInput

# Characters of one to four bytes.
LINES = [f"Zeile {number}: Kätzchen 雨が降る \U0001f600" for number in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    lines = [f"{line}\n" for line in LINES]
    (folder / "all.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def workdir(folder):
    return untrained_run(folder, data={"source": "text", "train": str(folder / "all.txt"), "held_out": 0.2})


@pytest.fixture(scope="module")
def run(workdir):
    return transformer_jax.load(workdir)


def printed(capsys, *arguments):
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def test_the_held_out_file_has_the_figures_of_the_validation_split(workdir, folder, capsys):
    split = json.loads(printed(capsys, "evaluate", workdir, "--split=validation", "--json"))
    text = "".join(f"{line}\n" for line in LINES[-split["documents"] :])
    (folder / "book.txt").write_text(text, encoding="utf-8")
    result = json.loads(printed(capsys, "evaluate", workdir, f"--source={folder}/book.txt", "--json"))
    assert result["split"].startswith("text-book.txt-")
    assert result["num_bytes"] == len(text.encode()) == split["num_bytes"] > len(text)
    same = ("bits_per_byte", "perplexity", "tokens", "documents", "nll")
    assert [result[name] for name in same] == [split[name] for name in same]


def test_evaluate_tells_what_a_language_model_never_saw(workdir, folder, monkeypatch, capsys):
    seen = TrainingInput(99, np.arange(260) < 128)
    monkeypatch.setattr(TrainingInput, "of_run", lambda run: seen)
    (folder / "unseen.txt").write_text("Zeile\nZeile \U0001f408\n", encoding="utf-8")
    assert main(["evaluate", str(workdir), f"--source={folder}/unseen.txt"]) == 0
    told = (
        "1 of 2 documents has characters or words that the model never saw in training (first: document 2): \U0001f408"
    )
    assert f"{folder}/unseen.txt: {told}\n" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="never saw in training"):
        transformer_jax.load(workdir).evaluate(source=folder / "unseen.txt")


def test_a_text_of_which_nothing_can_be_held_out_is_refused_before_it_is_tokenized(tmp_path):
    novels = tmp_path / "novels.txt"
    for lines, remedy in (
        (10, r"begins in its last 5.0%; set --config.data.held_out=0.1 \(the last line has 10.0% of the text\)"),
        (3, r"set --config.data.held_out=0.334 "),
        (1, "is one line, of which no part can be held out for the split 'validation'; name a text for it"),
    ):
        novels.write_text("a whole novel in a line\n" * lines)
        config = from_dict(
            {"task": "language_model", "data": {"source": "text", "train": str(novels), "held_out": 0.05}}
        )
        require_readable(config, "train")
        for check in (require_readable, LanguageModelTask.require_split):
            with pytest.raises(DataError, match=remedy):
                check(config, "validation")
    # 0.29 of 100 bytes are 28, rounded as the split is cut.
    novels.write_text("a" * 70 + "\n" + "b" * 28 + "\n")
    with pytest.raises(DataError, match="set --config.data.held_out=0.291 "):
        require_readable(config, "validation")
    novels.write_text("a whole novel in a line\n" * 10)
    require_readable(
        from_dict({"task": "language_model", "data": {"source": "text", "train": str(novels), "held_out": 0.1}}),
        "validation",
    )


def test_scores_of_lines_add_up_to_the_bits_and_windows_hide_nothing(run, workdir, folder, capsys):
    (folder / "two.txt").write_text("ab\nü雨\n", encoding="utf-8")
    rows = [line.split("\t") for line in printed(capsys, "score", workdir, f"--source={folder}/two.txt").splitlines()]
    assert [int(tokens) for _, tokens, _ in rows] == [3, 6]
    for row, text in zip(rows, ("ab", "ü雨"), strict=True):
        assert float(row[0]) == pytest.approx(sum(map(float, row[2].split())), abs=1e-3)
        assert float(row[0]) == pytest.approx(run.score(text).log_prob, abs=1e-3)
    # As in rows of training, a document follows the end of another: here of an empty one.
    nll = []
    for text in ("\n", "\nü雨\n"):
        (folder / "one.txt").write_text(text, encoding="utf-8")
        nll.append(json.loads(printed(capsys, "evaluate", workdir, f"--source={folder}/one.txt", "--json"))["nll"])
    programs = run._trained.task._log_probs._cache_size()
    assert nll[1] - nll[0] == pytest.approx(-run.score("ü雨").log_prob, rel=1e-4)
    assert run._trained.task._log_probs._cache_size() == programs > 0
    # Up to the context of 32 a longer text is scored as its beginning, and each token of it has a
    # score.
    short, long = run.score(["x" * 20, "x" * 100])
    assert len(long.log_probs) == 101 and all(math.isfinite(log_prob) and log_prob < 0 for log_prob in long.log_probs)
    np.testing.assert_allclose(long.log_probs[:20], short.log_probs[:20], rtol=1e-4)


@pytest.mark.parametrize("number", [1, 31, 32, 33, 48, 49, 100])
def test_windows_reach_the_end_and_overlap_by_half(number):
    starts = window_starts(number, 32)
    assert starts[-1] < number <= starts[-1] + 32
    assert starts[0] == 0 and starts.step == 16


def test_attention_is_that_of_the_text(run, workdir, capsys):
    out = printed(capsys, "attention", workdir, "--text=a dog", "--layer=1")
    assert out.splitlines()[0] == "a dog" and out.strip().endswith("attention-decoder.png")
    (layer,) = run.attention("a dog")
    assert (layer.kind, layer.weights.shape, layer.queries[-1], layer.keys[0]) == ("decoder", (2, 6, 6), "</s>", "<s>")
    np.testing.assert_allclose(layer.weights.sum(axis=-1), 1, rtol=1e-5)
    assert np.triu(layer.mean, 1).max() == 0
    with pytest.raises(DataError, match="40 tokens and EOS exceed the context of 32"):
        run.attention("x" * 40)


def test_a_seed_is_refused_where_it_does_nothing(workdir):
    for settings, seed, message in (
        ({}, 2**32, "^seed: 4294967296 must be from 0 to 4,294,967,295"),
        ({}, 1.5, "^seed: 1.5 must be a whole number"),
        ({"decoding.beam_width": 2}, 1, "^seed: beam search has no random numbers"),
    ):
        with pytest.raises(ConfigError, match=message):
            transformer_jax.load(workdir, settings=settings).generate("a", seed=seed)


def test_a_model_without_attention_is_refused(tmp_path):
    run = transformer_jax.load(untrained_run(tmp_path, model={"mixers": "ssru"}))
    with pytest.raises(ConfigError, match=r"run: the model has no attention$"):
        run.attention("a dog")


def test_mistakes_are_told_before_the_model_is_opened(run, workdir, folder, capsys):
    (folder / "empty.txt").write_text("")
    cases = [
        (["evaluate", f"--source={folder}/none.txt"], f"--source: '{folder}/none.txt' is not a file; give a text"),
        (["evaluate", f"--source={folder}/empty.txt"], "empty.txt is empty"),
        (["evaluate", f"--source={folder}/all.txt", "--references=a"], "--references: a language model is scored on"),
        (["score", f"--source={folder}/all.txt", "--target=a"], "--target: this task reads one text"),
        (["attention", "--text=a", "--kind=cross"], "this model has no attention of kind cross"),
        (["attention", "--text=a", "--layer=2"], "layer 2 has no attention of kind decoder; layers with it: 1"),
    ]
    for (command, *flags), message in cases:
        assert main([command, workdir, *flags]) == 2
        error = capsys.readouterr().err
        assert message in error and "restoring" not in error
    with pytest.raises(ConfigError, match="^target: this task reads one text"):
        run.score("a", "b")

"""The package as a library: train, translate, look and score in a few lines."""

import json
import math

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

import transformer_jax
from transformer_jax import Callback, ConfigError, TokenScores
from transformer_jax.__main__ import main
from transformer_jax.config import DataError, from_dict


class Seen(Callback):
    def __init__(self, stops_at: int) -> None:
        self.stops_at, self.calls = stops_at, []

    def on_log(self, step, metrics):
        self.calls.append(("log", step, "train/loss" in metrics))

    def on_validation(self, step, metrics):
        self.calls.append(("validation", step, "validation/bleu" in metrics))
        return step >= self.stops_at

    def on_checkpoint(self, step, folder):
        self.calls.append(("checkpoint", step, folder.name == str(step)))


@pytest.fixture(scope="module")
def trained(run):
    return transformer_jax.load(run, "last")


@pytest.mark.slow
def test_callbacks_see_logs_validations_and_checkpoints_and_can_end_the_run(tmp_path, capfd):
    seen = Seen(stops_at=6)
    settings = tiny_settings(tmp_path / "cache", log_every=3) | {"mesh": {"data": 8}}
    run = transformer_jax.train(settings, tmp_path / "run", [seen], settings={"seed": 3})
    steps = {kind: [step for each, step, _ in seen.calls if each == kind] for kind, *_ in seen.calls}
    assert steps == {"checkpoint": [0, 3, 6], "log": [3, 6], "validation": [6]}
    assert all(is_right for *_, is_right in seen.calls)
    assert json.loads((run.path / "outcome.json").read_text())["reason"] == "stopped"
    assert "update 6: the callback Seen ends the run" in capfd.readouterr().err
    assert (run.config.seed, run.steps) == (3, (6,))
    assert [record["step"] for record in run.metrics if "train/loss" in record] == [3, 6]


def test_attention_is_arrays_with_named_axes(trained, tmp_path):
    attention = trained.attention("a b", "b a c")
    shapes = {(each.kind, each.layer): each.weights.shape for each in attention}
    assert shapes == {("cross", 1): (2, 4, 3), ("encoder", 1): (2, 3, 3), ("decoder", 1): (2, 4, 4)}
    (cross,) = attention.of("cross")
    assert (cross.queries[-1], cross.keys[-1]) == ("</s>", "</s>")
    np.testing.assert_allclose(cross.mean.sum(axis=-1), 1, rtol=1e-5)
    assert attention.draw(tmp_path / "cross.png").read_bytes() == attention._repr_png_()
    with pytest.raises(ConfigError, match="'self' is not one of cross, encoder, decoder"):
        attention.of("self")


def test_notebooks_show_results_as_html_with_every_text_escaped(trained):
    script = "<script>alert('a')</script>"
    scores = TokenScores([script, "b"], [-0.5, -0.25])
    assert TokenScores(["a"], [-1e6]).perplexity == math.inf
    evaluation = trained.evaluate("validation", limit=2)
    assert evaluation.rows()[0] == ("split", "validation", "the first 2 of 40 sentences")
    assert "perplexity" not in TokenScores([], [])._repr_html_()
    shown = [each._repr_html_() for each in (scores, evaluation, trained, trained.config)]
    assert [each for each in shown if "<script" in each] == []
    assert "-0.750" in shown[0] and "BLEU" in shown[1] and str(trained.path) in shown[2] and "model.d_model" in shown[3]


def test_scores_are_the_log_probabilities_that_evaluation_sums(trained):
    pairs = [trained.score(*pair) for pair in (("a b", "a b"), ("c", "d e"))]
    together = trained.score(["a b", "c"], ["a b", "d e"])
    np.testing.assert_allclose([pair.log_prob for pair in pairs], [each.log_prob for each in together], rtol=1e-5)
    assert [len(pair.pieces) for pair in pairs] == [3, 3]
    assert pairs[0].log_prob == pytest.approx(sum(pairs[0].log_probs), rel=1e-5)
    programs = trained._trained.task.scorer._score._cache_size()
    assert trained.score("a b", "a b").log_probs == pairs[0].log_probs
    assert trained._trained.task.scorer._score._cache_size() == programs
    evaluator = trained._trained.task.evaluator
    split = evaluator.pairs("validation", 8)
    scored = trained.score([pair.source for pair in split], [pair.target for pair in split])
    sums = evaluator.sums_over(trained.params, evaluator.store("validation"), 8, 0)
    assert -sum(each.log_prob for each in scored) == pytest.approx(float(sums.nll), rel=1e-4)
    loss = trained.evaluate("validation", limit=8).metrics["loss"]
    assert loss == pytest.approx(float(sums.nll / sums.tokens), rel=1e-4)


def test_the_loss_of_a_text_counts_blank_sources_and_is_not_a_number_if_the_model_is_none(trained):
    scorer, pairs = trained._trained.task.scorer, (["a b", ""], ["a b", "d e"])
    scores = trained.score(*pairs)
    assert [math.isinf(each.log_prob) for each in scores] == [False, True]
    nll, tokens = scorer.nll(trained.params, *pairs)
    assert tokens == sum(len(each.pieces) for each in scores) == 6
    assert math.isfinite(nll) and nll > -scores[0].log_prob
    broken = jax.tree.map(lambda leaf: leaf * np.nan, trained.params)
    assert math.isnan(scorer.nll(broken, *pairs)[0])


@pytest.mark.slow
def test_translations_have_the_options_of_the_command(trained):
    sentences = ["a b c", "", "d e f"]
    best = trained.translate(sentences, n_best=2)
    assert [each[0].text for each in best] == trained.translate(sentences)
    assert [len(each) for each in best] == [2, 1, 2] and best[0][0].score >= best[0][1].score
    begun = trained.translate(sentences[0], n_best=2, prefix="d c")
    assert all(each.text.startswith("d c") for each in begun)
    samples = trained.translate(sentences[0], n_best=3, temperature=1.5, seed=3)
    assert len({sample.text for sample in samples}) > 1
    assert trained.translate([sentences[0]], temperature=1.5, seed=3) == [samples[0].text]
    assert trained._sampler.cache_info().currsize == 1


def test_an_evaluation_prints_as_the_command_prints_it(trained, tmp_path, capsys):
    for name, lines in (("in.en", "a b\nc d\n"), ("one", "a b c d e b a\nx\n"), ("two", "y\na b c d e d c\n")):
        (tmp_path / name).write_text(lines)
    source, references = tmp_path / "in.en", [tmp_path / "one", tmp_path / "two"]
    shown = repr(trained.evaluate(source=source, references=references))
    files = [f"--source={source}", *(f"--references={reference}" for reference in references), f"--output={tmp_path}"]
    assert main(["evaluate", str(trained.path), "--checkpoint=last", "--examples=0", *files]) == 0
    in_python, printed = (
        [line for line in text.splitlines() if not line.startswith("tokens/s")]
        for text in (shown, capsys.readouterr().out)
    )
    assert printed[: len(in_python) + 1] == [*in_python, ""]
    assert printed[len(in_python) + 2] == "  checkpoint   30" and "2 references each" in shown


def test_settings_are_those_of_the_command_line(trained, tmp_path):
    assert transformer_jax.load(trained.path, settings={"mesh": "data=-1,fsdp=4"}).config.mesh.fsdp == 4
    config = from_dict({"model": {"attention": "grouped_query"}, "data": {"source": "text", "train": "/none"}})
    settings = {"mesh": "data=1,fsdp=1", "model.attention": "multi_head"}
    with pytest.raises(transformer_jax.DataError, match="/none"):
        transformer_jax.train(config, tmp_path / "run", settings=settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a \ud83d b", "{}: U.D83D at index 2 is half of a character; decode the text as UTF-8"),
        (["a", "\udc80"], "{} 2: U.DC80 at index 0 is half of a character"),
        (b"a", "{}: expected a str or several, not bytes"),
        (["a", b"b"], "{} 2: expected a str, not bytes"),
        ([3], "{}: expected a str, not int"),
    ],
)
def test_text_is_what_a_file_can_have(trained, text, message):
    with pytest.raises(DataError, match="^" + message.format("text")):
        trained.translate(text)
    with pytest.raises(DataError, match="^" + message.format("target")):
        trained.score("a" if isinstance(text, str) else ["a", "b"], text)
    if isinstance(text, str):
        with pytest.raises(DataError, match="^" + message.format("translation")):
            trained.attention("a", text)


def test_errors_speak_python(trained, tmp_path):
    for call, message in (
        (lambda: transformer_jax.load(tmp_path / "none"), "^path: .*none does not exist"),
        (lambda: transformer_jax.load(trained.path, 5), "no checkpoint '5'"),
        (lambda: transformer_jax.load(trained.path, average=0), "^average: 0 must be at least 1"),
        (lambda: transformer_jax.load(trained.path, settings={"model.d_ff": 8}), "^model.d_ff: the run has"),
        (lambda: trained.generate("a"), r"generate\(\) takes task=language_model"),
        (lambda: trained.score("a", ["a"]), "^target: give one sentence for one source"),
        (lambda: trained.translate("a", n_best=9), "^n_best: 9 is more than decoding.beam_width=2"),
        (lambda: trained.translate("a", n_best=0), "^n_best: 0 must be from 1"),
        (lambda: trained.translate("a", seed=3), "^seed: beam search has no random numbers"),
        (lambda: trained.translate("a", top_k=3, prefix="b"), "^prefix: beam search continues a prefix"),
        (lambda: trained.translate("a", top_p=0.0), "^top_p: 0.0 must be from 1e-06 to 1"),
        (lambda: trained.translate("a", temperature=-1), "^temperature: -1 must be at least 0.001"),
        (lambda: trained.parse("a"), r"parse\(\) takes task=parsing"),
        (lambda: trained.evaluate(limit=-1), "^limit: -1 must be at least 0"),
        (lambda: trained.evaluate(references="a"), "^references: source and references belong together"),
        (lambda: trained.evaluate("test", source="a", references="b"), "^split: source is another text"),
        (lambda: trained.evaluate(source=""), "^references: source and references belong together"),
        (lambda: trained.translate("a", n_best=2.5), "^n_best: 2.5 must be a whole number"),
    ):
        with pytest.raises((ConfigError, transformer_jax.DataError), match=message) as raised:
            call()
        assert "--" not in str(raised.value)

"""Score given translations with a trained run, through the command line."""

import json
import math

import pytest

from transformer_jax.__main__ import main


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "source").write_text("a b c\nd e f g\n")
    return folder


def scored(run, pairs, capsys, *flags):
    files = f"--source={pairs / 'source'}", f"--target={pairs / 'target'}"
    assert main(["score", f"--workdir={run}", "--checkpoint=last", *files, *flags]) == 0
    return capsys.readouterr().out.splitlines()


def test_what_beam_search_finds_has_the_log_probability_that_it_says(run, pairs, capsys):
    beam = f"--input={pairs / 'source'}", f"--output={pairs / 'n_best'}", "--n_best=2"
    assert main(["translate", f"--workdir={run}", "--checkpoint=last", *beam]) == 0
    rows = [line.split("\t") for line in (pairs / "n_best").read_text().splitlines()]
    (pairs / "target").write_text("".join(f"{row[2]}\n" for row in rows))
    sources = (pairs / "source").read_text().splitlines()
    (pairs / "source").write_text("".join(f"{sources[int(row[0]) - 1]}\n" for row in rows))
    capsys.readouterr()
    lines = [line.split("\t") for line in scored(run, pairs, capsys)]
    assert len(lines) == 4
    for (log_prob, tokens, of_tokens), (_, score, _) in zip(lines, rows, strict=True):
        each = [float(number) for number in of_tokens.split(" ")]
        assert len(each) == int(tokens) and sum(each) == pytest.approx(float(log_prob), abs=1e-3)
        # Length penalty 0.6 (Wu et al. 2016, equation 14).
        assert float(log_prob) / ((5 + int(tokens)) / 6) ** 0.6 == pytest.approx(float(score), abs=1e-2)

    together = scored(run, pairs, capsys, "--json", f"--ensemble={run}")
    for line, (log_prob, tokens, _) in zip(together, lines, strict=True):
        record = json.loads(line)
        assert math.isclose(record["log_prob"], float(log_prob), abs_tol=1e-3)
        assert len(record["tokens"]) == len(record["token_log_probs"]) == int(tokens) and record["tokens"][-1] == "</s>"


def test_pairs_that_do_not_match_are_refused(run, pairs, capsys):
    (pairs / "target").write_text("a\n")
    files = f"--source={pairs / 'source'}", f"--target={pairs / 'target'}"
    assert main(["score", f"--workdir={run}", *files]) != 0
    assert "1 target sentences; line i of each is a pair" in capsys.readouterr().err

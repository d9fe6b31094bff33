"""What a new user types: a run by position, own text to score, pictures in any format; mistakes are found before JAX starts."""

import gzip
import json
import subprocess
import sys

import pytest

from transformer_jax.__main__ import main
from transformer_jax.commands import evaluate
from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.run_flags import define_run_flags
from transformer_jax.commands.translate import define_flags
from transformer_jax.config import ConfigError


def test_the_first_argument_is_the_run():
    assert parse_flags(define_run_flags, ["runs/a b", "--checkpoint", "last"]).workdir == "runs/a b"
    values = parse_flags(define_flags, ["--input", "text", "runs/a", "--n-best", "2"])
    assert (values.workdir, values.input, values.n_best) == ("runs/a", "text", 2)
    for arguments in (["runs/a", "runs/b"], ["--workdir=runs/a", "runs/b"], ["--workdir", "runs/a", "runs/b"]):
        with pytest.raises(ConfigError, match="unexpected argument 'runs/b'"):
            parse_flags(define_run_flags, arguments)
    for arguments in (["runs/a", "--references", "one", "two"], ["--references=one", "two", "--workdir=runs/a"]):
        values = parse_flags(evaluate.define_flags, [*arguments, "--examples", "0"])
        assert (values.workdir, values.references, values.examples) == ("runs/a", ["one", "two"], 0)


def test_any_text_is_scored_against_several_references(run, tmp_path, capsys):
    for name, lines in (("in.en", "a b\nc d\n"), ("one", "a b c d e b a\nx\n"), ("two", "y\na b c d e d c\n")):
        (tmp_path / name).write_text(lines)
    files = [f"--source={tmp_path}/in.en", f"--references={tmp_path}/one", f"--references={tmp_path}/two"]
    assert main(["evaluate", str(run), *files, f"--output={tmp_path}", "--json", "--checkpoint=30"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["scores"]["num_references"], report["num_sentences"]) == (2, 2)
    assert report["loss"] > 0
    assert report["references"] == [["a b c d e b a", "x"], ["y", "a b c d e d c"]]
    (text,) = tmp_path.glob("evaluation-text-in.en-*-30.txt")
    assert text.read_text().count("\n") == 2


def test_output_that_ends_in_gz_is_compressed(run, tmp_path):
    (tmp_path / "in").write_text("a b\n")
    assert main(["translate", str(run), f"--input={tmp_path}/in", f"--output={tmp_path}/out.gz"]) == 0
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).count(b"\n") == 1


@pytest.mark.parametrize("ending", ["pdf", "svg"])
def test_pictures_are_also_drawn_as_lines(run, tmp_path, ending):
    assert main(["attention", str(run), "--text=a b", f"--output={tmp_path}/a.{ending}"]) == 0
    assert (tmp_path / f"a.{ending}").read_bytes()[:5] in (b"%PDF-", b"<?xml")


WITHOUT_JAX = """
import sys
from transformer_jax.__main__ import main
for arguments in {}:
    assert main(arguments) == 2
assert "jax" not in sys.modules
"""


def test_mistakes_are_found_before_jax_starts(run, tmp_path):
    (tmp_path / "bad").write_bytes(b"good\n\xff\n")
    (tmp_path / "good").write_text("a\nb\n")
    (tmp_path / "one").write_text("a\n")
    mistakes = [
        (["evaluate", str(run), "--split=tset"], "no split 'tset'"),
        (["evaluate", str(run), "--checkpoint=400"], "no checkpoint '400'; kept are 0, 10, 20, 30 (best "),
        (["translate", str(run), f"--input={tmp_path}/none"], "none: cannot be read: No such file"),
        (["translate", str(run), f"--output={tmp_path}/bad/out"], "bad/out cannot be written: Not a directory"),
        (["translate", str(run), f"--output={tmp_path}"], "is a folder; give a file"),
        (["translate", str(run), f"--input={tmp_path}/bad"], "bad, line 2: invalid UTF-8"),
        (["align", str(run), f"--source={tmp_path}/good", f"--target={tmp_path}/one"], "good has 2 lines but"),
        (["attention", str(run), "--text=a", "--layer=9"], "--layer: 9 is more than the 1 of the model"),
        (["attention", str(run), "--text=a", "--head=9"], "--head: 9 is more than the 2 heads of a layer"),
        (
            ["train", "--config=quickstart", "--config.training.trackers=absent", f"--workdir={tmp_path}/t"],
            "training.trackers: 'absent' is not one of",
        ),
        (["align", str(run), f"--source={tmp_path}/bad", f"--target={tmp_path}/good"], "bad, line 2: invalid UTF-8"),
        (["attention", str(run), "--text=a", "--output=a.gif"], "--output: must end in .png, .pdf, .svg (got a.gif)"),
        (
            ["train", "--config=text", f"--config.data.train={tmp_path}/good,{tmp_path}/none", str(tmp_path)],
            "none is not a file",
        ),
        (["train", "--config=quickstart", f"--workdir={tmp_path}/bad"], "bad is a file"),
    ]
    program = WITHOUT_JAX.format([arguments for arguments, _ in mistakes])
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    for line, (_, message) in zip(found.stderr.splitlines(), mistakes, strict=True):
        assert message in line

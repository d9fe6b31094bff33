"""The frontier of quality against cost: which processes run, and their numbers."""

import sys

import pytest


def test_commands_are_measured_and_compared_with_the_first(script, tmp_path):
    frontier = script("frontier", "students", "benchmarks", "roofline")
    source, references = tmp_path / "in", tmp_path / "references"
    source.write_text("a b c d e\nf g h i j\n")
    references.write_text("a b c d e\nf g h i k\n")
    (tmp_path / "copy_lines.py").write_text(
        "import sys\nflags = dict(each.split('=') for each in sys.argv[1:])\n"
        "open(flags['--output'], 'w').write(open(flags['--input']).read().replace('j', flags['--letter']))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        commands = {"wrong": "copy_lines --letter=j", "right": "copy_lines --letter=k"}
        result = frontier.measure(commands, source, references, 1)
        with pytest.raises(RuntimeError, match="ended with status"):
            frontier.cpu_seconds([sys.executable, "-c", "raise SystemExit(3)"])
    right = result["systems"]["right"]
    assert right["bleu"][0] == pytest.approx(100) and right["difference"][0] > 0 and len(right["cpu_seconds"]) == 1
    assert frontier.per_thousand({"cpu_seconds": [1.0, 2.0, 9.0]}, 500) == 4.0
    assert "| right |" in frontier.table(result)
    frontier.draw(result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000

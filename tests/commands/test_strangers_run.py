"""A run of somebody else, whose settings and records name files elsewhere: no command opens more
than the training text."""

import json
import shutil
import sys

import pytest

from transformer_jax.__main__ import main

PATHS = {"directory": "text", "train": "a.en,a.de", "validation": "b.en,b.de", "test": "c.en,c.de", "store": "tokens"}
COMMANDS = (
    ("translate", "--workdir={run}", "--source={text}"),
    ("score", "--workdir={run}", "--source={text}", "--target={text}"),
    ("attention", "--workdir={run}", "--text=a b c", "--output={out}/heads.png"),
    ("explore", "--workdir={run}", "--text=a b c", "--output={out}/page.html"),
    ("report", "{run}", "--output={out}"),
    ("checkpoint", "info", "{run}"),
)
OPENED, WATCHED = list[str](), list[str]()


def watch(event: str, arguments: tuple) -> None:
    if WATCHED and event in ("open", "os.listdir", "os.scandir", "import", "os.remove", "os.rename"):
        OPENED.extend(
            str(argument) for argument in arguments if isinstance(argument, str) and argument.startswith(WATCHED[0])
        )


@pytest.fixture
def opened(tmp_path):
    """The paths below ``tmp_path / "elsewhere"`` that are opened; an audit hook cannot be removed,
    only stopped."""
    if not any(hook is watch for hook in getattr(sys, "_watches_of_tests", ())):
        sys.addaudithook(watch)
        sys._watches_of_tests = [watch]
    OPENED.clear()
    WATCHED[:] = [str(tmp_path / "elsewhere")]
    yield OPENED
    WATCHED.clear()


def test_nothing_elsewhere_is_opened(run, tmp_path, opened, capfd):
    stranger, elsewhere = shutil.copytree(run, tmp_path / "stranger"), tmp_path / "elsewhere"
    (elsewhere / "text").mkdir(parents=True)
    plugin = elsewhere / "plugin.py"
    plugin.write_text("raise SystemExit('executed')")
    for name in ("a", "b", "c", "text/train", "text/validation", "text/test"):
        for language in ("en", "de"):
            (elsewhere / f"{name}.{language}").write_text("x y\n" * 50)

    def pointing_elsewhere(content: dict) -> dict:
        data = content["config"]["data"]
        data |= {key: ",".join(f"{elsewhere}/{each}" for each in text.split(",")) for key, text in PATHS.items()}
        data["cache_directory"] = str(elsewhere / "cache")
        content["config"]["init"] |= {"run": str(elsewhere / "run")}
        content.pop("crc32", None)
        return content

    config = stranger / "config.json"
    config.write_text(json.dumps(pointing_elsewhere(json.loads(config.read_text()))))
    for progress in stranger.glob("checkpoints/*/progress/metadata"):
        content = json.loads(progress.read_text())
        progress.write_text(json.dumps(content | {"config": pointing_elsewhere(content["config"])}))
        (progress.parents[1] / "digests.json").unlink()
    starts = stranger / "run.json"
    (start, *_) = json.loads(starts.read_text())
    start.pop("crc32", None)
    starts.write_text(json.dumps([start | {"plugins": {str(plugin): "0" * 64}}]))
    (tmp_path / "text").write_text("a b c\n")
    opened.clear()
    names = {"run": stranger, "text": tmp_path / "text", "out": tmp_path / "out"}
    for command in COMMANDS:
        assert main([word.format(**names) for word in command]) == 0, (command, capfd.readouterr().err)
        # A pair of files is compared with the training text.
        may_open = {str(elsewhere / f"a.{language}") for language in ("en", "de") if command[0] == "score"}
        assert set(opened) <= may_open, (command, opened)
        opened.clear()
    (elsewhere / "a.en").read_text()
    assert opened, "the hook watches"

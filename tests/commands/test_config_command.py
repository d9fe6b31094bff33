import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from transformer_jax.__main__ import main
from transformer_jax.commands.flag_parsing import define_arguments, parse_flags
from transformer_jax.commands.registry import COMMANDS
from transformer_jax.config import ConfigError, ExperimentConfig, from_json, to_json

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "def get_config(): return {'model': {'d_ff': 64}}"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(RECIPE)
    return "small.py"


def started(*arguments: str, watched: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """``transformer-jax`` in a process of its own; standard output ends with those of ``watched`` that were imported."""
    program = (
        "import sys; from transformer_jax.__main__ import main; status = main(sys.argv[1:]);"
        f"print('imported:', *(name for name in {watched!r} if name in sys.modules)); sys.exit(status)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=60
    )


def test_prints_every_setting_sorted_and_aligned(recipe, capsys):
    assert main(["config", f"--config={recipe}", "--config.optimizer.learning_rate=2e-3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed = 0"
    assert "model.d_ff               = 64" in lines
    assert "optimizer.learning_rate  = 0.002" in lines
    assert "data.directory         = ''" in lines
    keys = [line.partition(" ")[0] for line in lines if "." in line.partition(" ")[0]]
    assert keys == sorted(keys)


def test_json_reads_back(recipe, capsys):
    assert main(["config", f"--config={recipe}", "--json"]) == 0
    config = from_json(json.loads(capsys.readouterr().out))
    assert config.model.d_ff == 64


def test_difference_from_a_run_directory(recipe, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    assert main(["config", "--config=small.py", "--config.tokenizer.vocabulary_size=500", f"--against={run}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"2 settings differ, {run} -> small.py:",
        "model.d_ff                = 2048 -> 64",
        "tokenizer.vocabulary_size = 8000 -> 500",
    ]
    assert main(["config", "--config=small.py", "--against=small.py"]) == 0
    assert capsys.readouterr().out == "No difference between small.py and small.py.\n"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--config.tokenizer.joint"], "tokenizer.joint              = True"),
        (["--noconfig.tokenizer.joint", "--config.model.tying=none"], "tokenizer.joint              = False"),
        (["--config.model.d_ff", "32"], "model.d_ff               = 32"),
        (["-config.model.d_ff=31"], "model.d_ff               = 31"),
        (["--config.data.directory=a=b"], "data.directory         = a=b"),
    ],
)
def test_the_spellings_of_an_override(recipe, capsys, arguments, shown):
    assert main(["config", *arguments, f"--config={recipe}"]) == 0
    assert shown in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["confg"], "'confg' is not a command; did you mean config?"),
        (["zzz"], f"'zzz' is not a command; commands are {', '.join(COMMANDS)}"),
        (["config"], "--config: is required; --help shows an example"),
        (["config", "--confg=x"], "--confg: unknown flag; did you mean --config?"),
        (["config", "--zzz"], "--zzz: unknown flag; --help lists the flags"),
        (["config", "--config=small.py", "stray"], "unexpected argument 'stray'; flags are written --name=value"),
        (
            ["config", "--config=small.py", "--config.model.num_head=2"],
            "model.num_head: unknown key; did you mean model.num_heads?",
        ),
        (
            ["config", "--config=small.py", "--config.model.d_ff"],
            "--config.model.d_ff: a value is missing; write --config.model.d_ff=VALUE",
        ),
        (
            ["config", "--config=small.py", "--noconfig.model.d_ff"],
            "--noconfig.model.d_ff: only a setting that is True or False can be negated; write --config.model.d_ff=VALUE",
        ),
        (
            ["config", "--config=small.py", "--config.model.num_heads=7"],
            "model.num_heads: d_model=512 is not divisible by num_heads=7; change one or set model.d_key",
        ),
    ],
)
def test_a_mistake_is_one_message_and_status_2(recipe, capsys, arguments, message):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"transformer-jax: {message}\n"


def define_some_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_integer("n_best", 1, "how many", flag_values=values)
    flags.DEFINE_enum("kind", "a", ["a", "b"], "which", flag_values=values)


def test_a_hyphen_serves_for_an_underscore_and_commands_do_not_share_flags():
    assert parse_flags(define_some_flags, ["--n-best=3"]).n_best == 3
    assert parse_flags(define_some_flags, ["--n-best", "3"]).n_best == 3
    assert parse_flags(define_some_flags, []).n_best == 1
    assert "n_best" not in flags.FLAGS


def define_arguments_too(values):
    define_some_flags(values)
    define_arguments(values, "RUN ...", "folders of runs")


def test_arguments_that_are_not_flags_may_stand_anywhere():
    values = parse_flags(define_arguments_too, ["runs/a", "--n_best=3", "runs/b"])
    assert (values.arguments, values.n_best) == (["runs/a", "runs/b"], 3)
    assert parse_flags(define_arguments_too, []).arguments == []
    with pytest.raises(ConfigError, match="unexpected argument 'runs/a'"):
        parse_flags(define_some_flags, ["runs/a"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--n_best=many", "--n_best=many: invalid literal for int() with base 10: 'many'"),
        ("--kind=c", "--kind=c: value should be one of <a|b>"),
        ("--config.model.d_ff=3", "--config.model.d_ff: this command takes no settings; --help lists its flags"),
    ],
)
def test_a_flag_that_does_not_fit_is_named(argument, message):
    with pytest.raises(ConfigError) as raised:
        parse_flags(define_some_flags, [argument])
    assert str(raised.value) == message


def test_alone_it_lists_the_commands(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"{name}  " in text
        assert command.summary in text


def test_help_of_a_command_has_an_example_and_the_flags(capsys):
    assert main(["config", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:\n    transformer-jax config --config=" in text
    assert "--config.KEY=VALUE" in text
    assert "--[no]json" in text
    assert "config_override" not in text


HEAVY = ("jax", "flax", "optax", "orbax", "tensorflow", "sacrebleu", "matplotlib", "sentencepiece")


def test_a_mistake_is_told_before_anything_heavy_is_imported(recipe):
    result = started("config", f"--config={recipe}", "--config.model.d_fff=3", watched=HEAVY)
    assert result.returncode == 2
    assert result.stderr == "transformer-jax: model.d_fff: unknown key; did you mean model.d_ff?\n"
    assert result.stdout == "imported:\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if (ROOT / f"transformer_jax/commands/{name}.py").exists()])
def test_help_comes_without_anything_heavy(name):
    result = started(name, "--help", watched=HEAVY)
    assert result.returncode == 0, result.stderr
    assert f"    transformer-jax {name} " in result.stdout
    assert result.stdout.splitlines()[-1] == "imported:"


def test_the_module_runs_and_a_closed_pipe_is_no_traceback(recipe):
    command = f"{sys.executable} -m transformer_jax config --config={recipe} | head -n 0"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, timeout=60)
    assert result.stderr == ""

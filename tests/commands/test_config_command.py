"""Flags and settings of a command line, and the help."""

import json
import subprocess
import sys

import pytest
from process_environment import process_environment

from transformer_jax.__main__ import main
from transformer_jax.commands import flags
from transformer_jax.commands.evaluate import evaluate
from transformer_jax.commands.run_flags import run_flags, split_checkpoint
from transformer_jax.commands.translate import translate
from transformer_jax.config import ConfigError, ExperimentConfig, from_json, to_json
from transformer_jax.registry.index import commands

RECIPE = "def get_config(): return {'model': {'d_ff': 64}}"
SMALL = ["config", "--config=small.py"]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(RECIPE)
    return "small.py"


def test_prints_every_setting_sorted_and_aligned_or_as_json(recipe, capsys):
    arguments = ["config", f"--config={recipe}", "--config.optimizer.learning_rate=2e-3", "--config.data.directory=a=b"]
    assert main([*arguments, "--config.model.d_model", "32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed = 0"
    expected = {"model.d_ff               = 64", "model.d_model            = 32", "optimizer.learning_rate  = 0.002"}
    assert expected | {"data.directory         = a=b", "data.train             = ''"} <= set(lines)
    keys = [line.partition(" ")[0] for line in lines if "." in line.partition(" ")[0]]
    assert keys == sorted(keys)
    assert main(["config", f"--config={recipe}", "--json"]) == 0
    assert from_json(json.loads(capsys.readouterr().out)).model.d_ff == 64


def test_difference_from_a_run_directory(recipe, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    assert main([*SMALL, "--config.tokenizer.vocabulary_size=500", "--against=run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 settings differ, run -> small.py:",
        "model.d_ff                = 2048 -> 64",
        "tokenizer.vocabulary_size = 8000 -> 500",
    ]
    assert main([*SMALL, "--against=small.py"]) == 0
    assert capsys.readouterr().out == "No setting differs between small.py and small.py.\n"
    assert main(["config", "--config=run", "--against=text"]) == 0
    out, error = capsys.readouterr()
    assert (
        "text -> run:" in out and "data.source" in out and error.startswith("transformer-jax: text: data.directory: ")
    )


def test_a_mistake_is_one_message_and_status_2(recipe, capsys):
    for arguments, message in (
        (["config", "--confg=x"], "--confg: unknown flag; did you mean --config?"),
        (["config", "--explain"], "--explain: a value is missing; write --explain=VALUE, a setting, for example"),
        (["translate", "runs/a", "runs/b"], "unexpected argument 'runs/b'; flags are written --name=value\n"),
        ([*SMALL, "--config.model.num_head=2"], "model.num_head: unknown key; did you mean model."),
        (["config", "--config.model.d_ff", "--config=small.py"], "--config.model.d_ff: a value is missing; write "),
        ([*SMALL, "--config.model.num_heads=7"], "model.num_heads: d_model=512 is not divisible"),
        (["recipes", "--json=perhaps"], "--json: unknown flag; --help lists the flags"),
        (["config", "--json=perhaps"], "--json: expected true or false, found 'perhaps'"),
        (["translate", "runs/a", "--n_best=x"], "--n_best: expected a whole number, found 'x'"),
        (["translate", "runs/a", "--top_k", "--json"], "--top_k: a value is missing; write --top_k=VALUE, sample"),
        (["export", "--format=onxn"], "--format: 'onxn' is not one of "),
        (["data", "check", "--config=text"], "--config: this command takes no recipe; write --config.KEY=VALUE"),
        (["report", "--config.model.d_ff=3"], "--config.model.d_ff: this command takes no settings; --help lists its"),
    ):
        assert main(arguments) == 2
        out, error = capsys.readouterr()
        assert out == "" and error.startswith(f"transformer-jax: {message}") and error.count("\n") == 1


def test_the_name_of_a_flag_in_the_release_before_works_with_a_warning(capsys):
    renamed = flags.repeated("translation", [], "translations", also=("target",))
    assert flags.parse([renamed], ["--target=a b", "--translation", "c"]).translation == ["a b", "c"]
    assert flags.parse(translate.flags, ["runs/a", "--input=in.txt"]).source == "in.txt"
    warnings = "transformer-jax: --target is --translation now\ntransformer-jax: --input is --source now\n"
    assert capsys.readouterr().err == warnings


@pytest.mark.parametrize("written", ["learning-rate", "LR", "Learning_Rate", "--config.optimizer.learning-rate"])
def test_an_explanation_takes_other_spellings(written, capsys):
    assert main(["config", f"--explain={written}"]) == 0
    assert "optimizer.learning_rate " in capsys.readouterr().out


def test_a_model_of_another_kind_names_a_recipe(capsys):
    assert main(["config", "--config=quickstart", "--config.model.kind=rnn"]) == 2
    assert capsys.readouterr().err.endswith("; --config=seq2seq is a recipe for rnn\n")


def test_two_letters_are_not_searched_in_meanings(capsys):
    assert main(["config", "--explain=b1"]) == 0
    assert main(["config", "--explain=zz"]) == 2
    assert main(["config", "--explain=is"]) == 0
    assert all("is" in line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  parts."))


def test_a_list_is_that_of_the_task_of_the_recipe(capsys):
    assert main(["config", "--list", "--config=language_model"]) == 0
    assert "These are the settings of task=language_model" in capsys.readouterr().out


def test_a_recipe_that_waits_for_text_is_compared_from_both_sides(recipe, capsys):
    assert main(["config", "--config=small.py", "--against=text"]) == 0
    there = capsys.readouterr().out.splitlines()[1:]
    assert main(["config", "--config=text", "--against=small.py"]) == 0
    back = capsys.readouterr().out.splitlines()[1:]
    pairs = [line.partition(" = ")[2].partition(" -> ") for line in back]
    assert [line.partition(" = ")[2].partition(" -> ")[::2] for line in there] == [pair[2::-2] for pair in pairs] != []


TRAIN = ["train", "--config=quickstart"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [*TRAIN, "optimizer.learning_rate=1e-3"],
            "optimizer.learning_rate=1e-3: is not a flag; did you mean --config.optimizer.learning_rate=1e-3?",
        ),
        ([*TRAIN, "--workdir=a", "lr=3"], "lr=3: is not a flag; did you mean --config.lr=3?"),
        ([*TRAIN, "config.seed=3"], "config.seed=3: is not a flag; did you mean --config.seed=3?"),
        ([*TRAIN, "workdir=a"], "workdir=a: is not a flag; did you mean --workdir=a?"),
        ([*TRAIN, "mesh=data=2"], "mesh=data=2: is not a flag; did you mean --config.mesh=data=2?"),
        (["translate", "--trust_config", "false"], "false: is not a flag; write --trust_config=false"),
        ([*TRAIN, "--distributed", "False"], "False: is not a flag; write --distributed=False"),
        ([*TRAIN, "--nodistributed=true"], "--nodistributed: takes no value; write --distributed=true or"),
        ([*TRAIN, "-"], "-: is not the folder of a run"),
        ([*TRAIN, "--config.decoding.beam_width", "=", "5"], "--config.decoding.beam_width: no spaces around =; write"),
        ([*TRAIN, "a", "--config.seed", "=5"], "--config.seed: no spaces around =; write --config.seed=VALUE"),
        ([*TRAIN, "seed", "=", "5"], "=: no spaces around =; flags are written --name=value"),
        (["config", "--config.=3", "--config=quickstart"], "--config.: unknown key; the config has task, seed"),
        (["config", "--config=quickstart", "--config=text"], "--config: is both quickstart and text; leave one out"),
        (["translate", "--workdir=a", "-workdir=b"], "--workdir: is both a and b; leave one out"),
        (["translate", "-workdir=a", "b"], "unexpected argument 'b'"),
        (["config", "--list", "--config.data.nothing=3"], "data.nothing: unknown key"),
        (["config", "--list", "--json"], "--json: prints the settings of a recipe or a run; leave out --list"),
        (["config", "--explain=seed", "--json"], "--json: prints the settings of a recipe or a run; leave out"),
        (["config", "--explain="], "--explain: is empty; give a setting, a group or a word"),
        (
            ["config", "--config=quickstart", "--config.model.kind=rnn"],
            "model.d_ff: is set, but only model.kind=transformer has it; rnn has kind, cell",
        ),
        (["train", "quickstart"], "--config: is required; did you mean --config=quickstart?"),
        (["train", "quickstart", "--workdir=a"], "--config: is required; did you mean --config=quickstart?"),
        (["train", "a.yaml"], "config: 'a.yaml' is not a recipe; recipes are Python files; see docs/other_toolkits.md"),
        (["train", "--config=a.yaml", "--workdir=a"], "config: 'a.yaml' is not a recipe; recipes are Python files"),
        (["checkpoint", "ls", "--workdir=a"], "--workdir: the run is an argument of this command; write ACTION RUN"),
        (["translate", "a", "--average=1_0"], "--average: expected a whole number, found '1_0'"),
        (["translate", "a", "--average=\u0663"], "--average: expected a whole number, found '\u0663'"),
        (["translate", "a", "--ensemble=a,,b"], "--ensemble: 'a,,b' has an empty item; remove a comma"),
        ([*SMALL, "--config.model.d_model=1_024"], "model.d_model: expected a whole number (int), found '1_024'"),
        ([*SMALL, "-config.model.d_model=x"], "model.d_model: expected a whole number (int), found 'x'"),
        (["translate", "a", "-b", "3"], "-b: unknown flag; "),
        (["translate", "a", "--n_bes=3"], "--n_bes: unknown flag; did you mean --n_best?"),
        (["translate", "a", "notrust_config"], "unexpected argument 'notrust_config'"),
        (["explore", "a", "--text", "one", "two"], "unexpected argument 'two'"),
    ],
)
def test_a_wrong_command_line_is_refused(recipe, capsys, arguments, message):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"transformer-jax: {message}")


def test_a_run_is_the_folder_of_that_name(recipe, tmp_path):
    (tmp_path / "seed=1").mkdir()
    with pytest.raises(ConfigError, match="A folder of this name is --workdir=seed=1"):
        flags.parse([run_flags], ["seed=1"])
    assert flags.parse([run_flags], ["runs/seed=1"]).workdir == "runs/seed=1"
    assert flags.parse([run_flags], ["a", "-config.seed=3"]).config_override == ["seed=3"]
    for more in ([], ["--average=3", "--workdir=a"]):
        assert flags.parse([run_flags], ["--workdir=a", "--average=2", *more]).workdir == "a"
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="to join runs write --ensemble=b"):
        flags.parse(translate.flags, ["a", "b"])


WITH_ARGUMENTS = (flags.integer("n_best", 1, "how many"), flags.arguments("RUN ...", "folders of runs"))


def test_flags_and_arguments_may_stand_anywhere(tmp_path):
    for given in (["--n-best=3"], ["--n-best", "3"]):
        assert flags.parse(WITH_ARGUMENTS, given).n_best == 3
    values = flags.parse(WITH_ARGUMENTS, ["runs/a", "--n_best=3", "runs/b"])
    assert (values.arguments, values.n_best) == (["runs/a", "runs/b"], 3)
    (plugin := tmp_path / "plugin.py").touch()
    values = flags.parse(WITH_ARGUMENTS, [f"--plugin={plugin}", "runs/a", "--plugin", str(plugin), "runs/b"])
    assert (values.plugin, values.arguments) == ([str(plugin)] * 2, ["runs/a", "runs/b"])
    after = ["train", "--n-best=4", "--config.model.d_ff", "--", "--x"]
    values = flags.parse(WITH_ARGUMENTS, ["a", "--n-best=3", "--", *after])
    assert (values.n_best, values.arguments) == (3, ["a", *after])


def test_the_flags_that_are_present_are_the_arguments_of_another_process():
    defined = (
        flags.config,
        flags.string("name", None, ""),
        flags.strings("metrics", [], ""),
        flags.boolean("search", True, ""),
        flags.repeated("text", [], ""),
        flags.arguments("RUN ...", ""),
    )
    given = ["--config=quickstart", "--config.seed=3", "--config.data.train=a b=c", "--name=x y", "--nosearch"]
    given += ["--metrics=a,b", "--metrics=c", "--text=one", "--text=--two", "c", "d"]
    values = flags.parse(defined, given)
    assert (values.metrics, values.text) == (["a", "b", "c"], ["one", "--two"])
    again = flags.parse(defined, values.as_arguments())
    assert vars(again) == vars(values) and not again.search
    assert flags.parse(defined, ["--config=a"]).as_arguments() == ["--config=a"]


def test_the_first_argument_or_the_folder_is_the_run(tmp_path):
    assert flags.parse([run_flags], ["runs/a b", "--checkpoint", "last"]).workdir == "runs/a b"
    values = flags.parse(translate.flags, ["--source", "text", "runs/a", "--n-best", "2"])
    assert (values.workdir, values.source, values.n_best) == ("runs/a", "text", 2)
    for arguments in (["runs/a", "runs/b"], ["--workdir=runs/a", "runs/b"], ["--workdir", "runs/a", "runs/b"]):
        with pytest.raises(ConfigError, match="unexpected argument 'runs/b'"):
            flags.parse([run_flags], arguments)
    orders = (["--references", "one", "runs/a", "two"], ["--references=one", "two", "--workdir=runs/a"])
    for arguments in (["runs/a", "--references", "one", "two"], *orders):
        values = flags.parse(evaluate.flags, [*arguments, "--examples", "0"])
        assert (values.workdir, values.references, values.examples) == ("runs/a", ["one", "two"], 0)
    values = flags.parse(evaluate.flags, ["--references", "one", "two", str(tmp_path)])
    assert (values.workdir, values.references) == (str(tmp_path), ["one", "two"])


def test_a_folder_of_the_whole_name_comes_first(tmp_path, monkeypatch):
    for name in ("a", "b:5"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    texts = {"a": ("a", None), "a:5": ("a", "5"), "nowhere/a:last": ("nowhere/a", "last"), "b:5": ("b:5", None)}
    texts |= {"b:5:best": ("b:5", "best"), "s3://b/a": ("s3://b/a", None), "s3://b/a:5": ("s3://b/a", "5")}
    assert {text: split_checkpoint(text, "--init_from") for text in texts} == texts
    for text in ("", ":last"):
        with pytest.raises(ConfigError, match="--init_from: the name of a run is empty"):
            split_checkpoint(text, "--init_from")
    with pytest.raises(ConfigError, match="a:bst: there is no such folder, and 'bst' is not a checkpoint: best, last"):
        split_checkpoint("a:bst", "--init_from")


def test_alone_it_lists_the_commands_and_help_has_an_example_and_the_flags(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert all(f" {name} {command.summary}" in words for name, command in commands().items())
    assert main([*SMALL, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:\n    transformer-jax config --config=" in text and "config_override" not in text
    assert "--config.KEY=VALUE" in text and "--[no]json" in text
    assert main(["help", "checkpoint"]) == 0
    assert capsys.readouterr().out.startswith("Usage: transformer-jax checkpoint ACTION RUN [--flag=value ...]\n\n")
    assert main(["help", "translate"]) == 0
    assert capsys.readouterr().out.startswith("Usage: transformer-jax translate [RUN] [--flag=value ...]\n\n")


LIGHT = """
import sys, transformer_jax
assert not sys.modules.keys() & {{"jax", "numpy", "absl"}}
from transformer_jax.__main__ import main
assert main([]) == main(["--help"]) == 0
print("for a list of commands:", *(name for name in sys.modules if name.startswith(("transformer_jax.tools.", "yaml"))))
assert main(["config", "--config=small.py", "--config.model.d_fff=3"]) == 2
for name in {}:
    assert main([name, "--help"]) == 0
heavy = "jax", "flax", "optax", "orbax", "tensorflow", "sacrebleu", "matplotlib", "sentencepiece"
print("imported:", *(name for name in heavy if name in sys.modules))
"""


def test_help_and_mistakes_come_without_anything_heavy(recipe):
    command = [sys.executable, "-c", LIGHT.format(list(commands()))]
    result = subprocess.run(command, capture_output=True, text=True, env=process_environment(), timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "transformer-jax: model.d_fff: unknown key; did you mean model.d_ff?\n"
    assert [name for name in commands() if f"    transformer-jax {name} " not in result.stdout] == []
    assert "for a list of commands:\n" in result.stdout
    assert result.stdout.splitlines()[-1] == "imported:"


def test_the_module_runs_and_a_closed_pipe_is_no_traceback(recipe):
    command = f"{sys.executable} -m transformer_jax config --config={recipe} | head -n 0"
    result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, env=process_environment(), timeout=60)
    assert result.stderr == b""


def test_a_setting_of_a_foreign_run_sends_no_escape_sequence(recipe, capsys):
    assert main([*SMALL, "--config.data.directory=\x1b]52;c;\x07"]) == 0
    assert "= <U+001B>]52;c;<U+0007>\n" in capsys.readouterr().out
    assert main(["config", "--config=\x9b2J"]) == 2
    assert "<U+009B>2J" in capsys.readouterr().err


def test_a_full_disk_and_a_small_encoding_are_no_traceback(recipe):
    command = [sys.executable, "-m", "transformer_jax"]
    environment = process_environment(PYTHONIOENCODING="ascii") | {"PYTHONUNBUFFERED": ""}
    options = {"stderr": subprocess.PIPE, "env": environment, "timeout": 60}
    with open("/dev/full", "wb") as full:
        result = subprocess.run([*command, "--version"], stdout=full, **options)
    assert (result.returncode, result.stderr) == (2, b"transformer-jax: No space left on device\n")
    result = subprocess.run([*command, *SMALL, "--config.data.directory=\xe9"], stdout=subprocess.PIPE, **options)
    assert result.returncode == 0 and rb"= \xe9" in result.stdout

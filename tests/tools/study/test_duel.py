import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from process_environment import process_environment
from run_settings import tiny_settings
from tools.study.pretended_training import PretendedTraining

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.config.tasks import TASKS
from transformer_jax.tools.study import duel_command as duel
from transformer_jax.tools.study import duel_plan as planning
from transformer_jax.tools.study import duel_report, worker
from transformer_jax.tools.study.contenders import Contender, read_contenders
from transformer_jax.tools.study.duel_plan import Cost, Plan, Planned, read_plan, require_same_duel, sweep_of
from transformer_jax.tools.study.duel_report import FinishedRun, power_statement, results_of, write_duel_report
from transformer_jax.tools.study.optuna_study import open_study
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, Sweep, TrialRow, check

QUICKSTART = "configs/quickstart.py"
COST = Cost(10, 1e9, 2**20, 0.1)


def read(*ideas):
    return {contender.name: contender.settings for contender in read_contenders(QUICKSTART, [], ideas)}


def test_ideas_become_settings(tmp_path):
    file = tmp_path / "mine.py"
    registration = "register('norm', 'mine')(lambda settings, model, site, *, precision: None)"
    file.write_text(f"from transformer_jax.registry.plugins import register\n{registration}\n")
    settings = read(
        "qk_norm+soft_cap", "rope:base=1e+5;model.dropout=0.2", "schedule:cosine+model.dropout=0.9", str(file)
    )
    assert list(settings.values()) == [
        {},
        {"model.attention": "qk_norm,soft_cap"},
        {"model.positions": "rope", "parts.rope.base": "1e+5", "model.dropout": "0.2"},
        {"optimizer.schedule": "cosine", "model.dropout": "0.9"},
        {"model.norm": "mine"},
    ]
    other = shutil.copy(file, tmp_path / "other.py")
    with pytest.raises(ConfigError, match="both register mine"):
        read(str(file), f"{other}:model.dropout=0.2")


def test_an_idea_from_a_file_is_called_by_its_name_or_its_label(tmp_path):
    text = "from transformer_jax.registry.plugins import register\nregister('norm', {!r})(lambda settings, model, site, *, "
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text((text + "precision: None)\n").format(f"norm_{folder}"))
    first, second = (str(tmp_path / folder / "mine.py") for folder in "ab")
    assert [*read(first, f"other={second}")] == ["base", "mine", "other"]
    assert [*read(f"{first}:model.dropout=0.2", f"rope+{second}")] == ["base", "mine:model.dropout=0.2", "rope+mine"]
    assert read("more=model.dropout=0.2")["more"] == {"model.dropout": "0.2"}
    with pytest.raises(ConfigError, match=r"two ideas are called mine; label one, as in other=FILE\.py"):
        read(first, second)


def test_ideas_replace_parts_of_the_base_with_their_settings():
    overrides = [("model.positions", "rope"), ("parts.rope.base", "5e5")]
    _, alibi = read_contenders(QUICKSTART, overrides, ["alibi"])
    plan = Plan(QUICKSTART, [list(pair) for pair in overrides], "updates", "", "validation/loss")
    sweep = Sweep(QUICKSTART, dict(overrides), rows={"alibi": alibi.settings}, seeds=(0,))
    for config in (plan.config_of(alibi), sweep.settings({"row": "alibi", "seed": 0})):
        assert config.model.positions == "alibi" and not config.parts
    chrf = {**dict(overrides), "evaluation.selection": "chrf"}
    assert Sweep(QUICKSTART, chrf, rows={"alibi": alibi.settings}, seeds=(0,)).metric_key == "validation/chrf"
    with pytest.raises(ConfigError, match="parts.rope: no trial selects this part"):
        check(Sweep(QUICKSTART, {"parts.rope.base": "5e5"}, rows={"alibi": alibi.settings}, seeds=(0,)))
    for idea in ("alibi:parts.rope.base=3", "norm:rmsnorm:parts.muon.beta=0.9"):
        with pytest.raises(ConfigError, match="no setting selects this part"):
            read_contenders(QUICKSTART, overrides, [idea])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ideas=rop"], "there is no part 'rop'; did you mean rope?"),
        (["--ideas=rope+alibi"], "rope and alibi both set model.positions"),
        (["--ideas=dot"], "model.attention is not a setting of this recipe's model"),
        (["--ideas=rope,positions:rope"], "rope and positions:rope have the same settings"),
        (["--ideas=training.num_updates=900"], "a duel sets training.num_updates itself"),
        (
            ["--ideas=rope,tokenizer.vocabulary_size=900", "--metric=loss"],
            "loss is not comparable between runs that differ in tokenizer.vocabulary_size; take validation/bleu",
        ),
        (["--ideas=rope", "--config=text"], "duel: --config=text gets its sizes from a budget in train only"),
    ],
)
def test_what_it_refuses(arguments, message, tmp_path, capsys):
    recipe = [] if any(argument.startswith("--config=") for argument in arguments) else [f"--config={QUICKSTART}"]
    assert main(["duel", *recipe, f"--workdir={tmp_path / 'duel'}", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "duel").exists()


def planned(tmp_path, monkeypatch, equal="flops", budget="", ideas=("rope",), recipe=QUICKSTART):
    """The plan where each update of an idea costs twice the FLOPs and half the time of the base's
    0.5 seconds."""

    def costs(plan, tried, *_):
        return {
            contender.name: Cost(1000, 1e9, 1, 0.5) if contender.name == "base" else Cost(9, 2e9, 1, 0.25)
            for contender in tried
        }

    monkeypatch.setattr(planning, "_costs", costs)
    plan = Plan(recipe, [], equal, budget, "validation/bleu")
    planning.make_plan(plan, read_contenders(recipe, [], ideas), tmp_path, lambda line: None)
    return read_plan(tmp_path)


@pytest.mark.parametrize(
    ("equal", "budget", "updates"),
    [("flops", "", (1100, 550)), ("time", "", (1100, 2200)), ("updates", "20m", (2400, 2400))],
)
def test_budgets_are_equal(equal, budget, updates, tmp_path, monkeypatch):
    plan = planned(tmp_path, monkeypatch, equal, budget)
    assert tuple(plan.planned[name].updates for name in ("base", "rope")) == updates
    sweep = sweep_of(tmp_path, "3")
    points = {(point["row"], point["seed"]): sweep.settings(point) for point in sweep.points()}
    assert list(points) == [(row, seed) for row in ("base", "rope") for seed in (0, 1, 2)]
    for row, length in zip(("base", "rope"), updates, strict=True):
        config = points[row, 1]
        assert (config.training.num_updates, config.seed) == (length, 1)
        # Validations and the warm-up are at the same shares of every run.
        assert config.training.evaluate_every == -(-length // 8)
        assert config.optimizer.warmup_updates == round(200 * length / 1100)
    assert points["rope", 0].model.positions == "rope"


def test_a_duel_grows_by_ideas_and_keeps_its_conditions(tmp_path, monkeypatch):
    before = planned(tmp_path, monkeypatch)
    after = planned(tmp_path, monkeypatch, ideas=("rope", "alibi"))
    assert after.planned.items() > before.planned.items() and "alibi" in after.planned
    with pytest.raises(ConfigError, match="with equal='flops', and this command has 'time'"):
        require_same_duel(after, replace(after, equal="time"), [])
    in_order = [["a", "1"], ["b", "2"]]
    require_same_duel(replace(after, overrides=in_order), replace(after, overrides=in_order[::-1]), [])
    with pytest.raises(ConfigError, match=r"--plugin: mine\.py changed since the duel began"):
        require_same_duel(replace(after, plugins={"mine.py": "1"}), replace(after, plugins={"mine.py": "2"}), [])
    assert read_plan(tmp_path) == after
    plan_file = tmp_path / "duel.json"
    plan_file.write_text(json.dumps(json.loads(plan_file.read_text()) | {"tune": ""}))
    with pytest.raises(ConfigError, match="of an older version; use another folder"):
        read_plan(tmp_path)
    with pytest.raises(ConfigError, match="rope: its file or settings changed"):
        require_same_duel(after, after, [Contender("rope", {"model.positions": "rope"}, {"rope.py": "other"})])


def test_runs_of_another_folder_in_the_same_study_are_refused_and_those_of_a_moved_one_move(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "train_run", PretendedTraining())
    first, second, moved = (tmp_path / name / "duel" for name in "abc")
    for folder in (first, second):
        folder.mkdir(parents=True)
        planned(folder, monkeypatch, ideas=("model.dropout=0.3",))

    def run():
        sweep = sweep_of(first, "1")
        worker.work(open_study(sweep, first, "duel", 60.0), sweep, first, 60.0)

    with monkeypatch.context() as patch:
        patch.setenv(STORAGE_VARIABLE, f"sqlite:///{tmp_path}/study.sqlite3")
        run()
        assert len(duel._trials(first, 1)) == 2
        with pytest.raises(ConfigError, match=f"the study 'duel' has runs in {first}/trials/0000"):
            duel._trials(second, 1)
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    run()
    moved.parent.mkdir()
    first.rename(moved)
    trials = duel._trials(moved, 1)
    assert [duel_report.finished_run(trial, ("validation/bleu",)).error for trial in trials] == ["", ""]
    failed = trials[0]._replace(state="failed", folder="", error="killed before its first line")
    run = duel_report.finished_run(failed, ("validation/bleu",))
    assert (run.error, run.validations, run.folder) == (failed.error, {}, "")


def ended_duel(monkeypatch, ideas, failed=()):
    """The plan, and the results of its contenders, whose BLEU and loss are the same numbers and
    seeds are paired."""
    plan = {name: Planned(Contender(name, settings, {}), COST, 200, {}) for name, settings in ideas.items()}
    plan = Plan(QUICKSTART, [], "flops", "", "validation/bleu", planned=plan)
    values = zip([*ideas][:2] * 3, (0, 0, 1, 1, 2, 2), (30.0, 31.0, 31.0, 32.1, 32.0, 33.2), strict=True)
    trials = [
        TrialRow(0, "complete", value, 200, {"row": row, "seed": seed}, 1.0, "", "", {}) for row, seed, value in values
    ]

    def ended(trial, _):
        measured = {200: {"validation/bleu": trial.value, "validation/loss": trial.value}}
        error = "TrainingDiverged: loss nan" if (trial.point["row"], trial.point["seed"]) in failed else ""
        return FinishedRun(trial.point["seed"], "", error, {} if error else measured, None)

    monkeypatch.setattr(duel_report, "finished_run", ended)
    return plan, *results_of(plan, TASKS["translation"].selection, trials)


def test_failed_runs_are_counted_and_leave_their_pair_out(monkeypatch, tmp_path):
    plan, base, idea = ended_duel(monkeypatch, {"base": {}, "<b>": {}}, {("<b>", 0), ("<b>", 2)})
    assert idea.verdict.startswith("no test, since fewer than two pairs")
    assert idea.verdict.endswith("2 of 3 runs of <b> failed")
    write_duel_report(plan, [base, idea], TASKS["translation"].selection, "", 0, tmp_path)
    lines = csv.DictReader((tmp_path / "report.csv").read_text().splitlines())
    assert [line["failed"] for line in lines] == ["0", "2"]
    assert "<b>" not in (tmp_path / "report.html").read_text()


def test_the_loss_of_another_tokenizer_is_not_compared(monkeypatch, tmp_path):
    ideas = {"base": {}, "small": {"tokenizer.vocabulary_size": "900"}}
    plan, base, small = ended_duel(monkeypatch, ideas)
    assert {key: difference.test.mean for key, difference in small.tests.items()} == {
        "validation/bleu": pytest.approx(1.1)
    }
    write_duel_report(plan, [base, small], TASKS["translation"].selection, "", 0, tmp_path)
    assert "| not comparable |" in (tmp_path / "report.md").read_text()


def test_ideas_without_an_ended_run_are_in_the_correction(monkeypatch):
    plan, base, rope = ended_duel(monkeypatch, {"base": {}, "rope": {}, "alibi": {}, "shaw": {}})
    test, adjusted, _ = rope.tests["validation/bleu"]
    assert adjusted == pytest.approx(3 * test.p)
    assert (base.name, rope.verdict[:5]) == ("base", "helps")
    power = power_statement(plan, [base, rope], 2, TASKS["translation"].selection, 0.0)
    assert " 3 seeds and 3 ideas find a difference" in power, "of the tests, though --seeds=2"


def run_of(seed, values, seconds=1.0, losses=None, **origin):
    losses = losses or dict.fromkeys(values, 1.0)
    validations = {step: {"validation/bleu": value, "validation/loss": losses[step]} for step, value in values.items()}
    return FinishedRun(seed, f"/there/trials/{seed:04d}", "", validations, seconds, origin)


def result_of(name, curve, cost=COST, ends=(0.0, 0.5)):
    runs = [
        run_of(seed, {step: value + end for step, value in curve.items()}, 1.0 + seed, git_commit="abc", cpu_count=2)
        for seed, end in enumerate(ends)
    ]
    return duel_report.Result(Planned(Contender(name, {}, {}), cost, 1100, {}), runs)


def test_a_metric_that_still_rises_is_far_from_its_plateau():
    metric, plan = TASKS["translation"].selection, Plan(QUICKSTART, [], "flops", "", "validation/bleu")
    rising, flat = {1: 0.0, 2: 3.0, 3: 6.0, 4: 9.0}, {1: 0.0, 2: 8.0, 3: 8.8, 4: 9.0}
    assert "went from 6.25 to 9.25" in duel_report.plateau_warning(plan, result_of("base", rising), metric)
    assert duel_report.plateau_warning(plan, result_of("base", flat), metric) == ""
    falling = [run_of(seed, flat, losses={1: 9.0, 2: 7.0, 3: 5.0, 4: 3.0}) for seed in (0, 1)]
    still = result_of("base", flat)._replace(runs=falling)
    assert "loss of the base went from 5.0000 to 3.0000" in duel_report.plateau_warning(plan, still, metric)
    short = result_of("base", flat)
    short = short._replace(planned=replace(short.planned, updates=60))
    assert "has 60 updates, and one of the recipe 1,100" in duel_report.plateau_warning(plan, short, metric)
    # Less than the noise between seeds.
    assert duel_report.plateau_warning(plan, result_of("base", rising, ends=(0.0, 9.0)), metric) == ""


def test_a_report_has_its_conditions_values_by_seed_and_files_for_an_appendix(tmp_path):
    base = result_of("base", {1: 1.0, 2: 2.0})
    plan = Plan(
        QUICKSTART,
        [["training.num_updates", "60"], ["data.directory", "/there/data"]],
        "flops",
        "",
        "validation/bleu",
        {"base": base.planned},
    )
    metric = TASKS["translation"].selection
    _, written = write_duel_report(
        plan, [base], metric, "", 0, tmp_path, command="transformer-jax duel --seeds=2 --workdir=/there/duel"
    )
    page = (tmp_path / "report.md").read_text()
    for words in (
        "transformer-jax duel --seeds=2 --workdir=duel",
        "--config.training.num\\_updates=60",
        "| commit | abc |",
        "| cores | 2 |",
    ):
        assert words.replace("num\\_", "num_") in page
    assert "2.25 ± 0.35" in page and "| base | BLEU | 2.00 | 2.50 |" in page
    assert "1,000.0 |" in page, "milliseconds of the fastest run"
    assert "2.25 $\\pm$ 0.35" in (tmp_path / "report.tex").read_text()
    assert {"curves.png", "curves.svg", "curves.pdf", "report.tex"} <= {file.name for file in written}
    assert "/there/" not in page


def test_paths_are_names_in_a_report_but_addresses_stay():
    text = "duel --ideas=a,/x/y.py+/x/z.py:model.dropout=0.1 --workdir='/home/me/my duel' --config.data.store=gs://b/c"
    expected = "duel --ideas=a,y.py+z.py:model.dropout=0.1 --workdir='my duel' --config.data.store=gs://b/c"
    assert duel_report.without_folders(text) == expected


def test_times_are_left_out_where_pilots_of_equal_flops_disagree():
    base, slow = (
        result_of(name, {1: 1.0}, replace(COST, seconds=seconds)) for name, seconds in (("base", 0.1), ("idea", 0.4))
    )
    assert "base and idea, with equal FLOPs, took 100 and 400 ms" in duel_report.disagreeing_pilots([base, slow])
    other = result_of("idea", {1: 1.0}, replace(COST, flops=2e9, seconds=0.4))
    assert duel_report.disagreeing_pilots([base, other]) == ""


@pytest.mark.slow
def test_a_duel_runs_resumes_and_grows(tmp_path):
    settings = tiny_settings(tmp_path / "cache", num_updates=16)
    (tmp_path / "recipe.py").write_text(f"def get_config():\n    return {settings!r}\n")
    command = [sys.executable, "-m", "transformer_jax", "duel", "--config=recipe.py", "--workdir=out", "--seeds=2"]

    def duel(*ideas):
        arguments = [*command, f"--ideas={','.join(ideas)}", "--metric=loss"]
        options = {"cwd": tmp_path, "env": process_environment(), "capture_output": True, "text": True}
        done = subprocess.run(arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, json.loads((tmp_path / "out/result.json").read_text())

    def ended():
        return [(tmp_path / f"out/trials/000{number}/outcome.json").stat().st_mtime for number in range(4)]

    said, content = duel("model.d_ff=64")
    base, idea = content["contenders"]
    assert "the noise floor is not known yet" in said
    assert "loss, the standard deviation of the base over 2 seeds" in said
    assert base["updates"] == 16 and idea["updates"] == round(16 * base["flops"] / idea["flops"]) < 16
    assert idea["parameters"] == base["parameters"] + 2 * (2 * 16 * 32 + 32)
    assert [len(record["runs"]) for record in (base, idea)] == [2, 2]
    assert all(run["error"] == "" and run["seconds"] > 0 for run in (*base["runs"], *idea["runs"]))
    times = ended()

    _, grown = duel("model.d_ff=64", "training.log_every=2")
    assert ended() == times
    assert [record["idea"] for record in grown["contenders"]] == ["base", "model.d_ff=64", "training.log_every=2"]
    same = grown["contenders"][2]
    assert same["verdict"] == "equal to the base in every run", "paired seeds"

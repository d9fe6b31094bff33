"""What did attention buy? The recurrent encoder-decoders and the Transformer under one budget of
training time.

    python experiments/attention_ancestors/run.py --data=multi30k --runs=runs/ancestors --minutes=12

Trains each model with the same tokenizer and the same batches for as many updates as fit into the
budget, evaluates the best checkpoint on the test split, and writes table.md and pictures to
``--output``. What is finished in ``--runs`` is not done again: the same command resumes after an
interruption, and with more ``--models`` adds them.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from pictures import draw_alignments, draw_lines, draw_totals
from scores import EXAMPLE, bleu_by_length, describe, sentence_alignment, write_table

from transformer_jax.runs.metrics_log import read_metrics

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "configs"
WIDE = {"model.d_embedding": 256, "model.d_hidden": 256, "model.d_attention": 256}
# The rate is the same for every recurrent model, chosen on the one without attention and on
# bahdanau for 700 updates.
RECURRENT = WIDE | {"optimizer.learning_rate": 2e-3, "optimizer.warmup_updates": 400, "optimizer.clip_norm": 1.0}
ANCESTORS: dict[str, tuple[str, dict[str, object]]] = {
    "no attention": ("seq2seq.py:sutskever_multi30k", RECURRENT),
    # The same cells and encoder as "general": this pair differs in the attention and what feeds on
    # it alone.
    "general without attention": ("seq2seq.py:luong_general_multi30k", RECURRENT | {"model.attention": "none"}),
    "additive": ("seq2seq.py:bahdanau_multi30k", RECURRENT),
    "general": ("seq2seq.py:luong_general_multi30k", RECURRENT),
    "location-sensitive": ("seq2seq.py:location_sensitive_multi30k", RECURRENT),
    "Transformer": ("multi30k.py:tiny_hour", {}),
    "dot": ("seq2seq.py:luong_dot_multi30k", RECURRENT),
    "concat": ("seq2seq.py:luong_concat_multi30k", RECURRENT),
    "local-p": ("seq2seq.py:luong_local_p_multi30k", RECURRENT),
}
# The choices of the paper and of two early re-implementations, at one size and with one schedule
# and amount of dropout: what differs is the model, its vocabulary and its loss. At their own sizes
# they would learn next to nothing in minutes.
SMALL = {
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "model.d_model": 256,
    "model.d_ff": 512,
    "model.num_heads": 4,
    "model.compute_dtype": "bfloat16",
    "optimizer.schedule": "cosine",
    "optimizer.learning_rate": 1.5e-3,
    "optimizer.warmup_updates": 400,
    "model.dropout": 0.1,
    "model.embedding_dropout": 0.1,
    "model.attention_dropout": 0.1,
    "batching.tokens_per_update": 2048,
}
RE_IMPLEMENTATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "the paper": ("multi30k.py:tiny_hour", SMALL),
    "keras_en2de": ("multi30k.py:keras_en2de", SMALL),
    "tf_demo": ("multi30k.py:tf_demo", SMALL),
}
MODELS = ANCESTORS | RE_IMPLEMENTATIONS
WITHOUT_ATTENTION = "no attention", "general without attention"
CALIBRATION_UPDATES = 120
EVALUATIONS = 6


def main() -> None:
    """Trains what is not trained yet, and writes the results of all that is asked for."""
    arguments = parse_arguments()
    names = [name.strip() for name in arguments.models.split(",")]
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        sys.exit(f"--models: {', '.join(unknown)} not among {', '.join(MODELS)}")
    # All speeds first and together, so that they are measured under the same load.
    budgets = {name: budget_of(name, arguments) for name in names}
    results = {name: finished_model(name, budgets[name], arguments) for name in names}
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_table(results, arguments.minutes, arguments.output / "table.md")
    draw_lines(
        {name: result["bleu_by_length"] for name, result in results.items()}, arguments.output / "bleu_by_length.png"
    )
    draw_totals(results, arguments.output / "totals.png")
    attentive = [name for name in names if name not in WITHOUT_ATTENTION]
    panels = [(name, *sentence_alignment(workdir(name, arguments), EXAMPLE)) for name in attentive]
    if panels:
        draw_alignments(panels, arguments.output / "alignments.png")
    print((arguments.output / "table.md").read_text())


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with train, val and test_2016 of Multi30k, .en and .de")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the run directories")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="training time of each model, evaluations not counted"
    )
    parser.add_argument("--models", default=",".join(ANCESTORS), help=f"separated by commas, of: {', '.join(MODELS)}")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    return parser.parse_args()


def workdir(name: str, arguments: argparse.Namespace) -> Path:
    """The run directory of a model."""
    return arguments.runs / name.replace(" ", "_")


def budget_of(name: str, arguments: argparse.Namespace) -> dict:
    """How many updates the model gets, measured unless that was done."""
    file = arguments.runs / f"{workdir(name, arguments).name}.budget.json"
    if not file.is_file():
        arguments.runs.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(measured_budget(name, arguments)) + "\n")
    budget = json.loads(file.read_text())
    if budget["minutes"] != arguments.minutes:
        sys.exit(f"{file} is of {budget['minutes']} minutes, not {arguments.minutes}; use other --runs")
    return budget


def finished_model(name: str, budget: dict, arguments: argparse.Namespace) -> dict:
    """Trains and evaluates a model unless that was done; what was found."""
    run = workdir(name, arguments)
    every = math.ceil(budget["updates"] / EVALUATIONS)
    settings = {"training.num_updates": budget["updates"], "training.evaluate_every": every}
    settings |= {"training.validation_sentences": 0, "training.validation_beam_width": 0}
    train(name, run, arguments, settings | {"training.checkpoint_every": every})
    reports = sorted(run.glob("evaluation-test_2016-*.json"), key=modified)
    if not reports or modified(reports[-1]) < modified(run / "checkpoints"):
        command("evaluate", f"--workdir={run}", "--split=test", "--examples=0", f"--output={run}")
    report = max(run.glob("evaluation-test_2016-*.json"), key=modified)
    return describe(run, json.loads(report.read_text()), budget) | {
        "bleu_by_length": bleu_by_length(run, report.with_suffix(".txt"))
    }


def modified(path: Path) -> float:
    """When it was written."""
    return path.stat().st_mtime


def measured_budget(name: str, arguments: argparse.Namespace) -> dict:
    """How many updates fit into the budget, at the speed of a short training that is then thrown
    away.

    The learning rate follows a cosine that ends with the last update, so their number has to be
    known before.
    """
    trial = arguments.runs / f"{workdir(name, arguments).name}.trial"
    settings = {"training.num_updates": CALIBRATION_UPDATES, "training.evaluate_every": CALIBRATION_UPDATES}
    settings |= {"training.validation_sentences": 8, "training.log_every": 20, "optimizer.warmup_updates": 20}
    train(name, trial, arguments, settings)
    losses = [record for record in read_metrics(trial / "metrics.jsonl") if "train/target_tokens" in record]
    # The first lines of the log hold the compilation of every shape.
    speeds = sorted(record["speed/target_tokens_per_second"] for record in losses[2:])
    speed = speeds[len(speeds) // 2]
    tokens_per_update = losses[-1]["train/target_tokens"] / losses[-1]["step"]
    updates = round(arguments.minutes * 60 * speed / tokens_per_update)
    return {"updates": updates, "target_tokens_per_second": speed, "minutes": arguments.minutes}


def train(name: str, run: Path, arguments: argparse.Namespace, settings: dict[str, object]) -> None:
    """The ``train`` command with the model's recipe and settings of the experiment."""
    recipe, own = MODELS[name]
    overrides = {"data.directory": arguments.data} | own | settings
    command(
        "train",
        f"--config={CONFIGS / recipe}",
        f"--workdir={run}",
        *(f"--config.{key}={value}" for key, value in overrides.items()),
    )


def command(*arguments: str) -> None:
    """Runs ``transformer-jax``; what it prints goes to standard error."""
    print("transformer-jax", *arguments, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "transformer_jax", *arguments], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()

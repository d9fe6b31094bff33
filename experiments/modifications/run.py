"""Which modifications help? Three duels: a Transformer and an LSTM that translate Multi30k, and a
language model.

    python experiments/modifications/run.py --data=multi30k --text=enwiki.txt.xz --workdir=runs/modifications --workers=2

The same command resumes; ``--only`` names the duels to run. Writes results.md to ``--output``: a
table of all differences, beside published ones. ``--draw`` only draws the tests in results/*.csv.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.__main__ import main as transformer_jax
from transformer_jax.files.terminal import text_table
from transformer_jax.tools.study.duel_report import LOSS, Difference, Differences, draw_differences
from transformer_jax.tools.study.seed_statistics import PairedTest

HERE = Path(__file__).resolve().parent


class Study(NamedTuple):
    """A duel: recipe, metric, settings, and ideas."""

    recipe: str
    metric: str
    settings: tuple[str, ...]
    ideas: tuple[str, ...]


ENCODER_DECODER = "post", "shaw", "ssru"
LAYERS = (
    *("rmsnorm", "sandwich", "rezero", "residual:deepnorm+initialization:deepnorm", "swiglu", "relu_squared"),
    *("rmsnorm+swiglu+rope", "load_balance+mixture_of_experts", "rope", "alibi", "t5"),
    *("grouped_query:key_value_heads=2", "qk_norm", "soft_cap", "talking_heads"),
)
TRAINING = (
    *("muon", "lion:optimizer.learning_rate=2e-4", "ema:decay=0.98", "schedule_free:optimizer.schedule=constant"),
    *("wsd", "z_loss"),
)
STUDIES = {
    "transformer": Study(
        "multi30k:tiny_minutes",
        "bleu",
        (
            *("model.num_encoder_layers=2", "model.num_decoder_layers=2", "model.normalization=pre"),
            *(
                "batching.kind=packed",
                "batching.count=tokens",
                "batching.packed_length=64",
                "batching.width_multiple=8",
            ),
            *("batching.tokens_per_update=768", "data.max_source_tokens=63", "data.max_target_tokens=63"),
            *("training.num_updates=500", "training.evaluate_every=125", "training.validation_sentences=500"),
            *("optimizer.warmup_updates=100", "optimizer.learning_rate=2.5e-3"),
        ),
        (*LAYERS, *ENCODER_DECODER, *TRAINING, "r_drop", "unigram_smoothing:training.label_smoothing=0"),
    ),
    "lstm": Study(
        "seq2seq:luong_general_multi30k",
        "bleu",
        (
            *("training.num_updates=500", "training.evaluate_every=125", "training.validation_sentences=500"),
            *("optimizer.warmup_updates=100", "optimizer.clip_norm=1", "batching.tokens_per_update=1024"),
        ),
        (*TRAINING, "r_drop"),
    ),
    "language_model": Study(
        "language_model:enwiki",
        "loss",
        (
            *(
                "model.num_layers=2",
                "model.d_model=128",
                "model.d_ff=512",
                "model.num_heads=4",
                "model.max_positions=128",
            ),
            *("batching.tokens_per_update=1024", "batching.context_length=128", "tokenizer.vocabulary_size=4096"),
            *("training.num_updates=600", "training.evaluate_every=150", "training.validation_sentences=200"),
            "optimizer.warmup_updates=100",
        ),
        (*LAYERS, *TRAINING),
    ),
}
PUBLISHED = {"base": (26.62, 1.838), "rmsnorm": (27.14, 1.821), "swiglu": (27.02, 1.789)}
"""WMT BLEU and loss of Narang et al. 2021."""
FLOORS = {"transformer": (0.76, 0.032), "lstm": (1.87, 0.084), "language_model": (None, 0.016)}
"""Standard deviations of the base between seeds, of BLEU and of the loss."""


def main() -> None:
    if sys.argv[1:] == ["--draw"]:
        for name in STUDIES:
            draw(name)
        return
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        study = STUDIES[name]
        data = f"data.train={arguments.text}" if name == "language_model" else f"data.directory={arguments.data}"
        flags = [f"--config={study.recipe}", *(f"--config.{each}" for each in (data, *study.settings))]
        flags += [f"--ideas={arguments.ideas or ','.join(study.ideas)}", f"--metric={study.metric}"]
        flags += [f"--seeds={arguments.seeds}", f"--workers={arguments.workers}"]
        status = transformer_jax(["duel", *flags, f"--workdir={arguments.workdir / name}"])
        if status:
            sys.exit(status)
    results = {name: arguments.workdir / name / "result.json" for name in STUDIES}
    found = {name: json.loads(file.read_text()) for name, file in results.items() if file.is_file()}
    (arguments.output / "results.md").write_text(table(found), encoding="utf-8")


def draw(name: str) -> None:
    """Draw results/NAME.png from the tests in results/NAME.csv."""
    with (HERE / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        _, *rows = csv.DictReader(lines)  # The first is the base.
    columns = []
    for key, label, floor in zip(("validation/bleu", LOSS), ("BLEU", "loss"), FLOORS[name], strict=True):
        if f"{key} mean" in rows[0]:
            tests = {
                row["idea"]: PairedTest(*(float(row[f"{key} {field}"]) for field in PairedTest._fields)) for row in rows
            }
            ideas = {row["idea"]: Difference(tests[row["idea"]], float(row[f"{key} p_holm"])) for row in rows}
            columns.append(Differences(label, label == "BLEU", floor, ideas))
    draw_differences(columns, HERE / "results" / f"{name}.png")


def table(found: dict[str, dict[str, Any]]) -> str:
    """A line for each idea: the difference in loss of each duel with its 95 % interval, starred if
    significant."""
    ideas = dict.fromkeys(each["idea"] for content in found.values() for each in content["contenders"])
    rows = [("idea", *found, "Narang et al.: BLEU", "loss"), ("---", *("---" for _ in found), "---:", "---:")]
    for idea in ideas:
        cells = [
            cell(next((each for each in content["contenders"] if each["idea"] == idea), None))
            for content in found.values()
        ]
        published = PUBLISHED.get(idea)
        rows.append((idea, *cells, *(map(str, published) if published else ("", ""))))
    return (
        text_table([("|", *sum(((each, "|") for each in row), ())) for row in rows], "l" * (2 * len(rows[0]) + 1))
        + "\n"
    )


def cell(contender: dict[str, Any] | None) -> str:
    if contender is None:
        return ""
    mean, low, high = (contender[f"validation/loss {name}"] for name in ("mean", "low", "high"))
    failed = f" ({contender['failed']} failed)" if contender["failed"] else ""
    if mean is None:
        return f"base{failed}" if contender["idea"] == "base" else f"no test{failed}"
    star = "*" if contender["validation/loss p_holm"] < 0.05 else ""
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]{star}{failed}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of Multi30k, for the duels of translation")
    parser.add_argument("--text", type=Path, help="text of the language model, a paragraph a line")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=[*STUDIES])
    parser.add_argument("--ideas", default="", help="ideas separated by commas, instead of those of the study")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE)
    arguments = parser.parse_args()
    if arguments.text is None and "language_model" in arguments.only:
        parser.error("--text: needed by the duel language_model")
    if arguments.data is None and {*arguments.only} != {"language_model"}:
        parser.error("--data: needed by the duels of translation")
    return arguments


if __name__ == "__main__":
    main()

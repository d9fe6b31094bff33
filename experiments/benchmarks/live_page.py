"""Equality and speed of the explorer's live model: captions translated by Python in float32 and by
the worker in Node.

    python experiments/benchmarks/live_page.py --run=runs/m30k --texts=multi30k/val.en.gz

A translation that differs is searched for again in Python with the rounded parameters of the page:
if the results are equal, rounding is the cause, else a rule of the search differs. Needs Node.
Times are CPU time of a whole answer: search, teacher-forced pass, attention, norms and rollout.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from transformer_jax.config import config_for_use
from transformer_jax.data.text_files import read_lines
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.explorer.live import live_model, logits_error, pack_parameters
from transformer_jax.tools.explorer.live_settings import require_live
from transformer_jax.tools.explorer.readers import TranslationReader

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from tools.explorer.node_worker import timed_answers

READINGS = 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    texts = list(islice(read_lines(options.texts), options.count))
    config = config_for_use(options.run, {})
    config = replace(config, model=replace(config.model, compute_dtype="float32"))
    require_live(config)
    beam, penalty = config.decoding.beam_width, config.decoding.length_penalty
    results: dict = {"run": Path(options.run).name, "texts": len(texts)}
    different: dict[str, list[tuple]] = {}
    for width in (beam, 1):
        decoding = replace(config.decoding, beam_width=width)
        trained = open_trained(ChosenRun(options.run, replace(config, decoding=decoding), options.checkpoint))
        expected = [each[0] for each in trained.task.translator.translate(trained.params, texts)]
        if width == beam:
            model = live_model(trained)
            _, _, stored = pack_parameters(trained.params)
            read = [(text, each.text) for text, each in zip(texts, expected[:READINGS], strict=False)]
            error = logits_error(trained, read)
        search = {"beamWidth": width, "lengthPenalty": penalty, "temperature": 1}
        asked = [{"action": "read", "text": text, "edits": [], "search": search, "forced": []} for text in texts]
        told = timed_answers(model, *asked)
        answers, times = [each["result"] for each in told], [each["milliseconds"] for each in told]
        differs = [
            (text, each, found)
            for text, each, found in zip(texts, expected, answers, strict=True)
            if list(each.token_ids) != found["targetIds"]
        ]
        rounded = trained.task.translator.translate(stored, [text for text, *_ in differs]) if differs else []
        different[f"beam {width}"] = [
            (
                text,
                f"{each.text}, {each.score:.2f}",
                f"{found['translation']}, {found['score']:.2f}",
                list(other[0].token_ids) == found["targetIds"],
            )
            for (text, each, found), other in zip(differs, rounded, strict=True)
        ]
        lengths = [len(found["tokens"]["source"]) for found in answers]
        results[f"beam {width}, ms"] = f"{statistics.median(times):.0f} ({max(times):.0f})"
        results["median source tokens"] = statistics.median(lengths)
        results[f"beam {width}, other translations"] = len(differs)
    reader, worst = TranslationReader(trained), 0.0
    for text, found in zip(texts[:READINGS], answers, strict=False):
        reading = reader.read(text, found["translation"], with_gradients=False)
        # The tokenizer may write a translation in other pieces than the search did.
        if reading.tokens == found["tokens"]:
            worst = max(worst, float(np.abs(np.subtract(reading.log_probs, found["logProbs"])).max()))
    heads = [
        f"{kind}.{layer}.head.{head + 1}"
        for kind, (layers, count) in config.model.attention_layers.items()
        for layer in layers
        for head in range(count)
    ]
    asked = {"action": "effects", "text": texts[0], "targetIds": answers[0]["targetIds"], "edits": [], "names": heads}
    (effects,) = timed_answers(model, asked)
    results |= {
        "parameter bytes": len(model.parameters),
        "largest difference of a logit": error,
        "largest difference of a log-probability": worst,
        "all heads switched off in turn, ms": effects["milliseconds"],
    }
    print("| | |\n|---|---:|")
    for name, value in results.items():
        print(f"| {name} | {value} |")
    print(
        "\n| search | source | Python, score | page, score | the page's with rounded parameters |\n|---|---|---|---|---|"
    )
    for search, rows in different.items():
        for row in rows:
            print(f"| {search} | {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()

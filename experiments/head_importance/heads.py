"""BLEU and loss of a run without each of its heads, one at a time (Michel et al. 2019, section 3.2).

    python experiments/head_importance/heads.py --workdir=runs/m30k

Translates the first 200 sentences of the test split greedily, once for every head. Draws a map for each kind of attention.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config import load_run_config
from transformer_jax.models.inspection import head_counts, layer_number, layers_by_kind, without_head
from transformer_jax.runs.run_directory import ChosenRun
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tools.pictures.panels import MatrixPanel, Panel, draw_panels

# Kinds of attention, and their titles.
KINDS = {"encoder": "encoder self", "decoder": "decoder self", "cross": "decoder cross"}
FORMATS = {"bleu": ".1f", "loss": ".2f"}


def main() -> None:
    """Draws the maps and prints the most important heads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--output", default="heads.png")
    arguments = parser.parse_args()
    config = load_run_config(arguments.workdir)
    config = replace(config, decoding=replace(config.decoding, beam_width=1))
    whole, changes = head_importance(open_trained(ChosenRun(arguments.workdir, config)), arguments.limit)
    title = f"Without one head; with all: BLEU {whole[0]:.2f}, loss {whole[1]:.3f}"
    draw_panels(panels(changes), arguments.output, title=title)
    bleu = {
        f"{KINDS[kind]}, layer {layer_number(path)}, head {head + 1}": change
        for kind, layers in changes.items()
        for path, heads in layers.items()
        for head, (change, _) in enumerate(heads)
    }
    lines = [f"  without {name}: {bleu[name]:+.2f} BLEU" for name in sorted(bleu, key=bleu.__getitem__)[:3]]
    spare = sum(change > -0.2 for change in bleu.values())
    print("\n".join([title, *lines, f"  {spare} of {len(bleu)} cost less than 0.2 BLEU, one at a time"]))


def head_importance(trained: TrainedRun, limit: int) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
    """BLEU and loss of the whole model, and their changes [H, 2] without each head, by kind and path of its attention."""
    config = replace(trained.config, evaluation=replace(trained.config.evaluation, metrics="bleu"))
    task = type(trained.task)(config, trained.tokenizers, trained.mesh)

    def evaluate(params: PyTree) -> np.ndarray:
        metrics = task.evaluate(params, "test", limit=limit).metrics
        return np.array([metrics[name] for name in FORMATS])

    params, layers = trained.params, trained.config.model.attention_layers
    counts = layers_by_kind(head_counts(params)).items()
    # A mixer has no attention heads.
    heads = {path: n for kind, each in counts for path, n in each.items() if layer_number(path) in layers[kind][0]}
    whole = evaluate(params)
    changes = {
        path: np.stack([evaluate(without_head(params, path, head)) - whole for head in range(count)])
        for path, count in heads.items()
    }
    return whole, layers_by_kind(changes)


def panels(changes: Mapping[str, Mapping[str, np.ndarray]]) -> list[Panel]:
    """A map of layers and heads for each score and kind of attention."""
    maps: list[Panel] = []
    for index, (metric, numbers) in enumerate(FORMATS.items()):
        matrices = {kind: np.stack([*layers.values()])[:, :, index] for kind, layers in changes.items()}
        limit = max(float(np.abs(matrix).max()) for matrix in matrices.values())
        for kind, matrix in matrices.items():
            rows = [f"layer {layer_number(path)}" for path in changes[kind]]
            columns = [f"head {head + 1}" for head in range(matrix.shape[1])]
            title = f"{KINDS[kind]}: change of {metric}"
            maps.append(MatrixPanel(title, matrix, "", "", rows, columns, is_signed=True, numbers=numbers, limit=limit))
    return maps


if __name__ == "__main__":
    main()

"""BLEU and loss of a run without each of its heads, one at a time (Michel et al. 2019, section
3.2).

    python experiments/head_importance/heads.py --workdir=runs/m30k

Translates the first 200 sentences of the test split greedily, once for every head. Draws a map for
each kind of attention.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from transformer_jax.array_types import PyTree
from transformer_jax.config import load_run_config
from transformer_jax.models.inspection import head_counts, layer_number, layers_by_kind, without_head
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.tasks.trained_run import TrainedRun, open_trained

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
    draw(changes, title, arguments.output)
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
    """BLEU and loss of the whole model, and their changes [H, 2] without each head, by kind and
    path of its attention."""
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


def draw(changes: Mapping[str, Mapping[str, np.ndarray]], title: str, file: str) -> None:
    """Draws a map of layers and heads for each score and kind of attention."""
    figure = Figure(figsize=(4.5 * len(changes), 7), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(len(FORMATS), len(changes), squeeze=False)
    for index, (metric, numbers) in enumerate(FORMATS.items()):
        matrices = {kind: np.stack([*layers.values()])[:, :, index] for kind, layers in changes.items()}
        limit = max(float(np.abs(matrix).max()) for matrix in matrices.values()) or 1.0
        for axes, (kind, matrix) in zip(panels[index], matrices.items(), strict=True):
            axes.imshow(matrix, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
            axes.set(title=f"{KINDS[kind]}: change of {metric}", xlabel="head", ylabel="layer")
            axes.set_xticks(range(matrix.shape[1]), labels=range(1, matrix.shape[1] + 1))
            axes.set_yticks(range(len(matrix)), labels=map(layer_number, changes[kind]))
            for (layer, head), value in np.ndenumerate(matrix):
                color = "white" if abs(value) > 0.6 * limit else "black"
                axes.text(head, layer, format(value, f"z{numbers}"), ha="center", va="center", color=color)
    figure.savefig(file, dpi=160)


if __name__ == "__main__":
    main()

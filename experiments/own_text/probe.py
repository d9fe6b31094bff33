"""How much the layers of a run know of its source words, checkpoint by checkpoint.

    python experiments/own_text/probe.py RUN [RUN ...]

Of 64 validation pairs: ``token share`` is the part of the mean square of an encoder layer's output
that differs between the positions of one sentence (0: every position holds the same vector),
``sentence share`` the part of the mean over positions that differs between sentences;
``score deviation`` is the standard deviation of the cross-attention logits of a query, ``entropy``
the lowest over the heads as a share of ln n. Writes probe.csv into each run.
"""

import csv
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import transformer_jax
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.tasks.translation.evaluator import sharpest_entropy
from transformer_jax.tasks.translation.pairs import encode_pairs

PAIRS = 64


def shares(hidden: jax.Array, is_token: jax.Array) -> tuple[float, float]:
    """Token share and sentence share of hidden states [B, S, D]."""
    weights = is_token[..., None] / is_token.sum(axis=1)[:, None, None]
    means = (hidden * weights).sum(axis=1)
    square = ((hidden**2).sum(-1) * weights[..., 0]).sum(axis=1).mean()
    within = 1 - (means**2).sum(-1).mean() / square
    between = ((means - means.mean(axis=0)) ** 2).sum(-1).mean() / (means**2).sum(-1).mean()
    return float(within), float(between)


def probe(folder: str) -> list[dict[str, float]]:
    """A row for each checkpoint of a run."""
    rows = []
    steps = sorted(int(path.name) for path in (Path(folder) / "checkpoints").glob("[0-9]*"))
    for step in steps:
        trained = transformer_jax.load(folder, step)._trained
        pairs = trained.task.evaluator.pairs(trained.config.data.split_name("validation"), PAIRS)
        encoded = encode_pairs(trained.tokenizers, [p.source for p in pairs], [p.target for p in pairs], 200, None)
        _, batch = next(iter(encoded.batches(2048, 1, None)))
        _, sown = trained.model.apply(
            {"params": trained.params}, *batch, train=False, capture_intermediates=True, mutable=["intermediates"]
        )
        found = sown["intermediates"]
        is_token = jnp.asarray(batch.source.ids) != 0
        row = {"update": step, "entropy": float(sharpest_entropy(trained.model, trained.params, batch))}
        for name in sorted(name for name in found if name.startswith("encoder_layers")):
            within, between = shares(found[name]["__call__"][0].astype(jnp.float32), is_token)
            row[f"{name} token share"], row[f"{name} sentence share"] = within, between
        cross = layers_by_kind(attention_maps(trained.model, trained.params, *batch))["cross"]
        for path, weights in cross.items():
            seen = jnp.where(is_token[:, None, None], weights, 1.0)
            logs = jnp.where(is_token[:, None, None], jnp.log(jnp.maximum(seen, 1e-30)), jnp.nan)
            row[f"{path.split('/')[0]} score deviation"] = float(np.nanmean(np.nanstd(np.asarray(logs), axis=-1)))
        rows.append(row)
    return rows


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        table = probe(folder)
        with open(Path(folder) / "probe.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
        for row in table:
            print(folder, {name: round(value, 3) for name, value in row.items()}, flush=True)

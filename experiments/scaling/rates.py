"""Loss against learning rate at four widths, in the standard parametrization and in muP (Yang et
al. 2022, figure 1).

transformer-jax sweep --sweep=experiments/scaling/sweep.py:rates --workdir=runs/rates
--config.data.train=enwiki.txt.xz python experiments/scaling/rates.py runs/rates/trials rates.png
"""

import sys

from transformer_jax.tools.pictures.curves import read_series
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.study.run_summary import find_runs, summarize


def main() -> None:
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for folder in find_runs([sys.argv[1]]):
        config = summarize(folder, folder.name).config
        name = "muP" if config.optimizer.name == "mup" else "standard"
        loss = read_series(folder / "metrics.jsonl", ["validation/loss"])["validation/loss"][1][-1]
        found.setdefault((name, config.model.d_model), []).append((config.optimizer.learning_rate, loss))
    panels = [
        LinePanel(
            f"{name} parametrization" if name == "standard" else name,
            {
                f"width {width}": list(zip(*sorted(found[name, width]), strict=True))
                for kind, width in sorted(found)
                if kind == name
            },
            "learning rate",
            "validation loss, nats a token",
            x_scale="log2",
        )
        for name in ("standard", "muP")
    ]
    draw_panels(panels, sys.argv[2], title="Learning rates")
    for (name, width), points in sorted(found.items()):
        rate, loss = min(points, key=lambda point: point[1])
        print(f"{name:>8}  width {width:>4}  best rate {rate:g}  loss {loss:.3f}")


if __name__ == "__main__":
    main()

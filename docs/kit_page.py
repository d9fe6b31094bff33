"""Writes docs/kit.md, the table of the kit, from its registry.

python docs/kit_page.py
"""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from transformer_jax.config import TransformerConfig
from transformer_jax.config.checks import declared
from transformer_jax.config.plugins import EXTENSIONS, registered, settings_class
from transformer_jax.kit import KIT
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.site import Site

PAGE = Path(__file__).with_name("kit.md")
INTRODUCTION = """# The kit

Parts of published models and optimizers, each in one file of [`transformer_jax/kit/`](../transformer_jax/kit/__init__.py).
No file of the core names them; they are registered as [your own parts](extending.md) are. The setting above a table selects
a part, for example `--config.model.positions=rope`; its [settings](settings.md#parts-settings-of-parts-of-the-kit) are at
`parts.NAME.FIELD`, for example `--config.parts.rope.base=5e5`. `transformer-jax conform NAME` checks a part, and counts its
parameters, operations and memory beside the model without it. `conform load_balance` needs
`--config.model.feed_forward=mixture_of_experts`, `conform gradient_noise` needs `--config.batching.accumulation_steps=2`.
`conform optimizer:mup` checks one part of muP; `attention:mup` and `initialization:mup` need `--config.optimizer.name=mup`,
the latter also `--config.model.tying=none`.

Backends: "blockwise for scores" are parts that einsum and blockwise attention compute; cuDNN and TPU kernels leave them to
blockwise attention, with a line in the log ([table of backends](architecture.md)). "Einsum" needs all weights at once.

`python docs/kit_page.py` writes this page.
"""
WITH_BACKENDS = ("attention", "positions")


def page() -> str:
    """The whole page: a table for each kind of part."""
    kinds = [kind for kind in EXTENSIONS if any(owner == kind for owner, _ in KIT)]
    return "\n".join([INTRODUCTION, *(table(kind) for kind in kinds)])


def table(kind: str) -> str:
    """The parts of a kind, under the setting that selects them."""
    titles = ["name", "idea", "paper", "settings", *(["backends"] if kind in WITH_BACKENDS else [])]
    lines = [f"## {re.split('[: ]', EXTENSIONS[kind])[0]}\n", row(titles), row(["---"] * len(titles))]
    for name in (name for owner, name in KIT if owner == kind):
        made = registered(kind)[name]
        columns = [
            f"[`{name}`](../transformer_jax/kit/{KIT[kind, name]}.py)",
            idea(made),
            paper(made),
            settings(kind, name),
        ]
        lines.append(row([*columns, *([backends(kind, name, made)] if kind in WITH_BACKENDS else [])]))
    return "\n".join(lines) + "\n"


def row(columns: list[str]) -> str:
    return f"| {' | '.join(column.replace('|', chr(92) + '|') for column in columns)} |"


def idea(made: Any) -> str:
    """The first line of the docstring, without its citation."""
    return re.sub(r" \([A-Z][^()]*\d{4}[^()]*\)(?=[.]$)", "", (inspect.getdoc(made) or "").partition("\n")[0])


def paper(made: Any) -> str:
    """The citation in parentheses at the end of the first line of the module's docstring; raises ValueError without one."""
    line = (inspect.getdoc(sys.modules[made.__module__]) or "").partition("\n")[0]
    found = re.search(r"\(([^()]*\d{4}[^()]*)\)\.$", line)
    if not found:
        raise ValueError(
            f"{made.__module__}: its docstring begins with a line that ends in a paper, (Name et al. 2024)."
        )
    return found[1]


def settings(kind: str, name: str) -> str:
    block = settings_class(kind, name)
    fields = declared(block).items() if block else ()
    return " ".join(f"`{key}={each.default}`" for key, each in fields)


def backends(kind: str, name: str, made: Any) -> str:
    """The backends that compute an ``AttentionChange``, by the methods that its class overrides."""
    change = made
    if kind == "positions":
        block = settings_class(kind, name)
        found = made(block() if block else None, TransformerConfig(), Site("decoder", "self", 1, True, 0))
        if found is None:
            return "all"
        change = type(found)
    overridden = [
        each for each in vars(AttentionChange) if getattr(change, each, None) is not vars(AttentionChange)[each]
    ]
    if "weights_mod" in overridden:
        return "einsum"
    if "score_mod" in overridden:
        return "blockwise for scores"
    return "all; cuDNN with windows to the left" if "mask_mod" in overridden else "all"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Writes docs/kit.md, the table of the kit, from its registry, and docs/internals/conform.md from
docs/conform.jsonl.

python docs/kit_page.py [--conform]

--conform checks all parts, of the core too, that have no line in docs/conform.jsonl, for minutes
each.
"""

import csv
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.config import TransformerConfig
from transformer_jax.config.checks import declared
from transformer_jax.layers.attention_backends import added_bias
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.site import Site
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.kinds import KINDS
from transformer_jax.registry.plugins import registered, setting_of, settings_class

PAGE = Path(__file__).with_name("kit.md")
CONFORM_PAGE = Path(__file__).parent / "internals" / "conform.md"
RESULTS = Path(__file__).with_name("conform.jsonl")
INTRODUCTION = """# The kit: parts of published models

Which published ideas are ready to use? Each is a part in one file of
[`transformer_jax/kit/`](../transformer_jax/kit/__init__.py). Select it with the setting above its
table, for example rotary positions and RMSNorm:

    transformer-jax train --config=quickstart --config.model.positions=rope \\
        --config.model.norm=rmsnorm --config.parts.rope.base=5e5 --workdir=runs/rope

Its [settings](settings.md#parts-settings-of-parts-of-the-kit) are at `parts.NAME.FIELD`.
`transformer-jax conform rope` checks a part and counts its parameters, FLOPs and memory
([results](internals/conform.md)). Parts are registered as [your own](extending.md) are.

[Which parts helped](../experiments/modifications/README.md) in short runs: in translation {}
lowered the loss beyond chance, in a language model {}. A [duel](duel.md) tests a part in your
setting.

![Differences in loss of 21 ideas from a language model without them](../experiments/modifications/results/language_model.png)

The column "backends": einsum and blockwise attention compute "blockwise for scores", cuDNN and TPU
kernels leave it to blockwise attention with a line in the log. The same holds for the denominator
and for values of another shape. Parts marked "einsum" compute all weights at once
([table of backends](internals/attention_backends.md)).
"""
CONFORM = """# Properties of the parts

    transformer-jax conform rope

The table counts the properties that hold for each part of the kit and the core. Each part is tested
alone, in a small encoder-decoder, language model or recurrent model on a CPU. Parameters, KV cache,
activations of loss and gradient, and optimizer state are multiples of the values of the model
without the part (language models have learned positions). A cell is empty if both are equal.

Optimizers, averages and schedules are checked in an encoder-decoder only. The three parts of muP
are checked together: the updates by `conform optimizer:mup`, the model by `conform attention:mup`.
`conform positions:ngpt` checks the five parts of nGPT together. One part fails, as it should:
`acausal` has no causal mask. `transformer-jax conform parsing` (or another task, or the file of
one) checks a task.

`python docs/kit_page.py --conform` checks parts that have no line in docs/conform.jsonl.

Optimizers come from optax 0.2.8 and `optax.contrib` if these have them. They lack SOAP, so the kit
has its own. Shampoo, which SOAP improves, is not in the kit. Cosine attention and the confidence
penalty of earlier versions are gone: no recipe or experiment used them, `qk_norm` and `ngpt` bound
scores too, and the penalty is a loss term of one line.
"""
KIT = {part: listed.module for part, listed in own_parts().items() if listed.owner.is_kit}
COSTS = ("parameters", "cache_bytes", "activation_bytes", "state_bytes")
WITH_BACKENDS = ("attention", "positions")


def pages() -> dict[Path, str]:
    """Return the content of both pages."""
    return {PAGE: kit_page(), CONFORM_PAGE: conform_table()}


def kit_page() -> str:
    """Return the page of the kit: a table for each kind of part."""
    kinds = [kind for kind in KINDS if any(owner == kind for owner, _ in KIT)]
    introduction = INTRODUCTION.format(*map(helpful, ("transformer", "language_model")))
    return "\n".join([introduction, *(table(kind) for kind in kinds)]).rstrip("\n") + "\n"


def helpful(model: str) -> str:
    """How many of the ideas in experiments/modifications lowered the loss of a model beyond chance:
    ``4 of 25``.
    """
    file = RESULTS.parents[1] / "experiments" / "modifications" / "results" / f"{model}.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        _, *rows = csv.DictReader(lines)  # The first is the base.
    lower = [float(row["validation/loss mean"]) < 0 and float(row["validation/loss p_holm"]) < 0.05 for row in rows]
    return f"{sum(lower)} of {len(rows)}"


def table(kind: str) -> str:
    """Return the parts of a kind, under the setting that selects them."""
    titles = ["name", "idea", "settings", *(["backends"] if kind in WITH_BACKENDS else [])]
    lines = [f"## {setting_of(kind)}\n", row(titles), row(["---"] * len(titles))]
    for name in (name for owner, name in KIT if owner == kind):
        made = registered(kind)[name]
        columns = [
            f"[`{name}`](../{KIT[kind, name].replace('.', '/')}.py)",
            f"{idea(made)}<br>*{paper(made)}*",
            settings(kind, name),
        ]
        lines.append(row([*columns, *([backends(kind, name, made)] if kind in WITH_BACKENDS else [])]))
    return "\n".join(lines) + "\n"


def row(columns: list[str]) -> str:
    return f"| {' | '.join(column.replace('|', chr(92) + '|') for column in columns)} |"


def idea(made: Any) -> str:
    """Return the first line of the docstring, without its citation."""
    return re.sub(r" \([A-Z][^()]*\d{4}[^()]*\)(?=[.]$)", "", (inspect.getdoc(made) or "").partition("\n")[0])


def paper(made: Any) -> str:
    """Return the citation in parentheses at the end of the first line of the module's docstring; of
    the part's, if another work.

    Raises ValueError if the module has none.
    """
    lines = [(inspect.getdoc(each) or "").partition("\n")[0] for each in (made, sys.modules[made.__module__])]
    found = [re.search(r"\(([^()]*\d{4}[^()]*)\)\.$", line) for line in lines]
    own, of_module = (each[1] if each else "" for each in found)
    if not of_module:
        raise ValueError(
            f"{made.__module__}: its docstring begins with a line that ends in a paper, (Name et al. 2024)."
        )
    return of_module if own.partition(",")[0] in of_module else own


def settings(kind: str, name: str) -> str:
    block = settings_class(kind, name)
    fields = declared(block).items() if block else ()
    return " ".join(f"`{key}={each.default}`" for key, each in fields)


def backends(kind: str, name: str, made: Any) -> str:
    """Return the backends that compute an ``AttentionChange``, by the methods that its class
    overrides.
    """
    block, config, site = settings_class(kind, name), TransformerConfig(), Site("decoder", "self", 1, True, 0)
    sites = [site, site.of("embedding")] if kind == "positions" else [site]
    found = [getattr(made, "of", made)(block() if block else None, config, each) for each in sites]
    change = next((each for each in found if each is not None), None)
    overridden = [
        each for each, of_base in vars(AttentionChange).items() if getattr(type(change), each, of_base) is not of_base
    ]
    if "weights_mod" in overridden:
        return "einsum"
    if "score_mod" in overridden:
        queries = jnp.zeros((1, config.num_heads, 4, config.head_key_size))
        is_bias, _ = change.init_with_output(
            jax.random.key(0), method=lambda change: added_bias(change.score_mod(), queries, 4) is not None
        )
        return "blockwise for scores; cuDNN takes a bias" if is_bias else "blockwise for scores"
    if "denominator_mod" in overridden:
        denominator, _ = change.init_with_output(jax.random.key(0), method="denominator_mod")
        return "blockwise for the denominator" + ("; TPU kernels" if denominator.terms is None else "")
    if "values" in overridden:
        return "blockwise for the values"
    return "all; cuDNN with windows to the left" if "mask_mod" in overridden else "all"


def conform_table() -> str:
    """Return the results in docs/conform.jsonl, one line for each part."""
    titles = ["part", "holds", *(name.split("_")[0] for name in COSTS), "remarks"]
    lines = [CONFORM, row(titles), row(["---"] * len(titles))]
    results = [*map(json.loads, RESULTS.read_text("utf-8").splitlines())]
    kinds = [*dict.fromkeys(result["kind"] for result in results)]
    for result in sorted(results, key=lambda result: kinds.index(result["kind"])):
        models = result["models"].values()
        holds, fails = sum(each["holds"] for each in models), [problem for each in models for problem in each["fails"]]
        shown = f"{holds} of {holds + len(fails)}" if fails else f"all {holds}"
        remarks = [f"fails: {problem}" for problem in dict.fromkeys(each.partition(":")[0] for each in fails)]
        remarks += dict.fromkeys(remark.partition(":")[0] for each in models for remark in each["remarks"])
        costs = [*models][-1]["costs"]
        shares = [f"{costs[name]:.2f}" if abs(costs.get(name, 1) - 1) >= 0.005 else "" for name in COSTS]
        lines.append(row([f"{result['kind']} `{result['name']}`", shown, *shares, "; ".join(remarks)]))
    return "\n".join(lines) + "\n"


def conform(kind: str, name: str) -> dict[str, Any]:
    """Return the results of a part: for each model the number of properties that hold, and
    multiples of the costs without it.
    """
    from transformer_jax.tools.conform.conformity import findings
    from transformer_jax.tools.conform.costs import costs_of
    from transformer_jax.tools.conform.ideas import KINDS, Idea
    from transformer_jax.tools.conform.trials import Trial, trial_config

    idea, models = Idea(kind, name), {}
    for model in KINDS[kind].models:
        found = list(findings(model, idea))
        values = idea.settings({}), idea.settings_without({})
        both = zip(*(costs_of(Trial(trial_config(model, each)))._asdict().items() for each in values), strict=True)
        models[model] = {
            "holds": sum(each.holds for each in found),
            "fails": [f"{each.name}: {each.detail}" for each in found if not each.holds],
            "remarks": [remark for each in found for remark in re.findall("not linear.*|scan refused", each.detail)],
            "costs": {name: round(value / base, 3) for (name, value), (_, base) in both if base},
        }
    return {"kind": kind, "name": name, "models": models}


def add_results() -> None:
    """Check the parts that have no line yet."""
    from transformer_jax.tools.conform.conform_command import DEVICES
    from transformer_jax.tools.conform.ideas import KINDS, names

    jax.config.update("jax_num_cpu_devices", DEVICES)
    parts = [part for part in KIT if part[0] in KINDS]
    parts += [
        (kind, name)
        for kind in KINDS
        if kind != "task"
        for name in names(kind)
        if name != "none" and (kind, name) not in KIT
    ]
    known = {(each["kind"], each["name"]) for each in map(json.loads, RESULTS.read_text("utf-8").splitlines())}
    # Those of training are checked in one model only.
    for kind, name in sorted(parts, key=lambda part: len(KINDS[part[0]].models)):
        if (kind, name) not in known:
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(conform(kind, name)) + "\n")


if __name__ == "__main__":
    if "--conform" in sys.argv:
        add_results()
    for file, content in pages().items():
        file.write_text(content, encoding="utf-8")

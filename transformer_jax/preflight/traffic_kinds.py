"""Memory traffic by the part of the model, the update or the search that causes it, from the names of instructions."""

import re
from collections import defaultdict

from transformer_jax.preflight.hlo_text import Instruction, calls_of, computations_of
from transformer_jax.preflight.memory_traffic import moves_of

OTHER = "other"
# The first pattern that is found in the name of an instruction (its scopes, its primitive at the end) decides. A fusion has the
# name of the last operation in it.
KINDS: tuple[tuple[str, str], ...] = (
    ("embeddings", r"_embed/|embed/|sum_dropout"),
    ("attention", r"attention_residual/dynamic_update_slice$"),
    ("norms, residuals, dropout", r"/norm/|_dropout/|_residual/[a-z_]+$"),
    ("products of layers", r"(_in_heads|_merged|feed_forward)/.*dot_general"),
    ("casts, biases, activations", r"_in_heads|_merged|feed_forward/"),
    ("attention", r"attention"),
    ("logits and loss", r"jvp\(\)|jvp\(jit|logits"),
    ("norms, residuals, dropout", r"jvp\("),
    ("optimizer", r"^jit\(train_step\)/|^state\."),
    ("search", r"^jit\((start|step|<lambda>)\)/"),
)

_NAME = re.compile(r'op_name="([^"]*)"')


def kind_of(name: str) -> str:
    """The kind of an instruction; ``other`` where its name says nothing."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), OTHER)


def traffic_by_kind(program: str) -> dict[str, int]:
    """Bytes that the instructions of each kind read and write, most first; their sum is ``memory_traffic``."""
    computations = computations_of(program)
    found: dict[str, int] = defaultdict(int)
    for instruction, moved in moves_of(program):
        found[kind_of(_name_of(instruction, computations))] += moved
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _name_of(instruction: Instruction, computations: dict[str, list[str]]) -> str:
    """Its own, or that of the last operation with a name in a fusion without one."""
    inside = [line for _, callee in calls_of(instruction.line) for line in computations.get(callee, [])]
    names = [match[1] for line in (*inside, instruction.line) if (match := _NAME.search(line))]
    return names[-1] if names else ""

"""Memory traffic by the part of the model, the update or the search that causes it, from the names of instructions."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from transformer_jax.tools.preflight.hlo_text import Instruction, calls_of, computations_of, instruction_of
from transformer_jax.tools.preflight.memory_traffic import moves_of

OTHER = "other"
# The first pattern that is found in the name of an instruction (its scopes, its primitive at the end) decides. A fusion has the
# name of the last operation in it.
KINDS: tuple[tuple[str, str], ...] = (
    ("scores of pairs", r"row_loss"),
    ("embeddings", r"embed/|sum_dropout"),
    ("norms, residuals, dropout", r"/norm/|_dropout/|_residual\.[a-z]+/[a-z_]+$"),
    ("products of layers", r"(project_heads|merge_heads|feed_forward)/.*dot_general"),
    ("casts, biases, activations", r"project_heads|merge_heads|feed_forward/"),
    ("attention", r"attention"),
    ("logits and loss", r"jvp\(\)|jvp\(jit|logits"),
    ("norms, residuals, dropout", r"jvp\("),
    ("rows of the tables", r"^jit\(train_step\)/while/body/.*(gather|scatter)"),
    ("optimizer", r"^jit\(train_step\)/|^state\."),
    ("search", r"^jit\((start|step|<lambda>)\)/"),
)

HOPS = 4
"""A copy, its end, and another copy may stand between an instruction and a user with a name."""

_NAME = re.compile(r'op_name="([^"]*)"')


def kind_of(name: str) -> str:
    """The kind of an instruction; ``other`` where its name says nothing."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), OTHER)


def traffic_by_kind(program: str) -> dict[str, int]:
    """Bytes that the instructions of each kind read and write, most first; their sum is ``memory_traffic``.

    An instruction without a name, as a copy that the compiler adds, is of the kind of its user, or of what makes its operand.
    """
    names = _Names(computations_of(program))
    found: dict[str, int] = defaultdict(int)
    for instruction, moved in moves_of(program):
        found[kind_of(names.of(instruction))] += moved
    return dict(sorted(found.items(), key=lambda item: -item[1]))


class _Names:
    """Names of the instructions of a program."""

    def __init__(self, computations: dict[str, list[str]]) -> None:
        self._computations = computations
        self._made: dict[str, Instruction] = {}
        self._first_users: dict[str, Instruction] = {}
        for lines in computations.values():
            for instruction in filter(None, map(instruction_of, lines)):
                self._made[instruction.name] = instruction
                for operand in instruction.operands:
                    self._first_users.setdefault(operand, instruction)

    def of(self, instruction: Instruction) -> str:
        """Its own, or that of what uses its result, or that of what makes its operand; empty if there is none."""
        return next(filter(None, (*self._along(instruction, self._user), *self._along(instruction, self._maker))), "")

    def _along(self, instruction: Instruction, following: Callable[[Instruction], Instruction | None]) -> Iterator[str]:
        """The names, empty ones too, of an instruction and the next few."""
        each: Instruction | None = instruction
        for _ in range(HOPS):
            if each:
                yield self._own(each)
                each = following(each)

    def _own(self, instruction: Instruction) -> str:
        """That of an instruction, or of the last operation with a name in a fusion without one."""
        inside = [line for _, callee in calls_of(instruction.line) for line in self._computations.get(callee, [])]
        names = [match[1] for line in (*inside, instruction.line) if (match := _NAME.search(line))]
        return names[-1] if names else ""

    def _user(self, instruction: Instruction) -> Instruction | None:
        return self._first_users.get(instruction.name)

    def _maker(self, instruction: Instruction) -> Instruction | None:
        return self._made.get(instruction.operands[0]) if instruction.operands else None

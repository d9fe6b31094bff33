"""The attentions of a model by kind: encoder, decoder and cross attention, the first layer first."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from transformer_jax.config.errors import natural_order

Value = TypeVar("Value")


class AttentionKind(NamedTuple):
    """How the paths of its modules begin and end; ``rows`` (queries) and ``columns`` (keys) are token axes.

    The axis ``input`` is ``target`` shifted right: what the decoder reads.
    """

    prefix: str
    suffix: str
    rows: str
    columns: str

    def matches(self, path: str) -> bool:
        """Whether the module at ``path`` is of this kind."""
        return path.startswith(self.prefix) and path.endswith(self.suffix)


KINDS = {
    "encoder": AttentionKind("encoder", "self_attention", "source", "source"),
    "decoder": AttentionKind("decoder", "self_attention", "target", "input"),
    "cross": AttentionKind("decoder", "cross_attention", "target", "source"),
}


def layers_by_kind(values: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Values by the path of their attention, as ``{kind: {path: value}}``; kinds that are not there are left out.

    Layer 10 comes after layer 9 whatever the order of ``values``: a dictionary that ``jax.jit`` returns is sorted as text.
    """
    ordered = sorted(values, key=natural_order)
    found = {name: {path: values[path] for path in ordered if kind.matches(path)} for name, kind in KINDS.items()}
    return {name: layers for name, layers in found.items() if layers}

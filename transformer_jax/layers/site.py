"""The location of a part in a model, passed to its maker."""

from dataclasses import dataclass, replace
from typing import Literal

from transformer_jax.config import ConfigError

SiteKind = Literal["self", "cross", "feed_forward", "embedding", "projection"]


@dataclass(frozen=True)
class Site:
    """The stack of a part, its kind of sublayer, and whether it sees only earlier positions.

    ``index`` is the number of the layer, None if the part belongs to no layer. All scanned layers
    compute as the first one, so only initial values may depend on ``index``. Other code reads
    ``layer``. ``part`` is the name of the part in messages.
    """

    stack: Literal["encoder", "decoder"]
    kind: SiteKind
    depth: int
    is_causal: bool
    index: int | None = None
    is_scanned: bool = False
    part: str = "a part"

    @property
    def layer(self) -> int:
        """The number of the layer, from 0.

        Raises ConfigError if one compiled layer stands for all, or the part has no layer.
        """
        if self.index is None or self.is_scanned:
            remedy = "use scan_layers=False (final norms and embeddings have no layer: there site.index is None)"
            raise ConfigError("model.scan_layers", f"{self.part} depends on its layer", remedy)
        return self.index

    def of(self, kind: SiteKind) -> "Site":
        return replace(self, kind=kind, is_causal=self.is_causal and kind != "cross")

    def named(self, part: str) -> "Site":
        return replace(self, part=part)

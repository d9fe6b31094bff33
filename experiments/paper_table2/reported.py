"""What table 2 of Vaswani et al. 2017 reports: its own models, and the systems of others as it
quotes them."""

from typing import NamedTuple


class Reported(NamedTuple):
    """BLEU on newstest2014, and floating-point operations of the training as the paper estimates
    them."""

    bleu: float
    flops: float | None


# En-Fr of big: 41.8 in the later versions of the paper, 41.0 in the first.
FOUND = {
    "base En-De": Reported(27.3, 3.3e18),
    "big En-De": Reported(28.4, 2.3e19),
    "base En-Fr": Reported(38.1, 3.3e18),
    "big En-Fr": Reported(41.8, 2.3e19),
}

# English-German, English-French.
OTHERS: dict[str, tuple[Reported | None, Reported | None]] = {
    "ByteNet": (Reported(23.75, None), None),
    "Deep-Att + PosUnk": (None, Reported(39.2, 1.0e20)),
    "GNMT + RL": (Reported(24.6, 2.3e19), Reported(39.92, 1.4e20)),
    "ConvS2S": (Reported(25.16, 9.6e18), Reported(40.46, 1.5e20)),
    "MoE": (Reported(26.03, 2.0e19), Reported(40.56, 1.2e20)),
    "Deep-Att + PosUnk, ensemble": (None, Reported(40.4, 8.0e20)),
    "GNMT + RL, ensemble": (Reported(26.30, 1.8e20), Reported(41.16, 1.1e21)),
    "ConvS2S, ensemble": (Reported(26.36, 7.7e19), Reported(41.29, 1.2e21)),
}
# Section 6.1: of how many checkpoints the parameters are the mean.
AVERAGED = {"base": 5, "big": 20}


def base_of(name: str) -> str:
    """The base model of the same language: ``big En-Fr`` is compared with ``base En-Fr``."""
    return f"base {name.partition(' ')[2]}"

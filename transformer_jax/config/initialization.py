"""Settings of the initial parameters of a new run."""

import re
from dataclasses import dataclass, replace

from transformer_jax.config.addresses import absolute_path, absolute_place, unasked
from transformer_jax.config.checks import require, require_choice, require_pattern
from transformer_jax.config.errors import ConfigError

ARROW, SEPARATOR = "=>", ";"
TOKENIZERS_OF_A_START = ("adopt", "new")


@dataclass(frozen=True)
class InitConfig:
    """Whether a new run draws its parameters, or takes them from a checkpoint of another run; a resumed run does neither.

    ``run``: the folder of the other run, empty to draw them. ``checkpoint``: ``best``, ``last`` or the number of an update.
    ``rename``: ``old=>new; ...``, regular expressions that turn names in the checkpoint into names of this model, one after
    the other, each as ``re.sub`` does. ``leave_out``: what stays randomly initialized, a regular expression that is found
    in names of this model.
    ``tokenizer``: ``adopt`` those of the other run, or train ``new`` ones, whose embeddings must then be left out.
    ``embeddings``: a file of word vectors from which the embedding tables start, in place of ``run``; the rest is drawn.
    """

    run: str = ""
    checkpoint: str = "best"
    rename: str = ""
    leave_out: str = ""
    tokenizer: str = "adopt"
    embeddings: str = ""

    def __post_init__(self) -> None:
        for name in ("rename", "leave_out"):
            problem = "there is nothing to take, since init.run is empty; set it, or --init_from"
            require(bool(self.run) or not getattr(self, name), f"init.{name}", problem)
        both = "the parameters, the embeddings among them, come from init.run; give one of the two"
        require(not (self.run and self.embeddings), "init.embeddings", both)
        is_known = self.checkpoint in ("best", "last") or re.fullmatch("[0-9]{1,18}", self.checkpoint) is not None
        require(is_known, "init.checkpoint", f"{self.checkpoint!r} is not best, last or the number of an update")
        require_choice("init.tokenizer", self.tokenizer, TOKENIZERS_OF_A_START)
        require_pattern("init.leave_out", self.leave_out)
        renamings(self.rename)

    def of_a_run(self) -> "InitConfig":
        """The same out of a run directory, which may be somebody else's: a run at an address is not opened."""
        return replace(self, run=unasked(self.run))

    def absolute(self) -> "InitConfig":
        """The same from wherever it is read."""
        embeddings = absolute_path(self.embeddings, "init.embeddings")
        return replace(self, run=absolute_place(self.run), embeddings=embeddings)


def renamings(text: str) -> list[tuple[re.Pattern[str], str]]:
    r"""``"^encoder/=>; layer_(\d)=>layers_\1"`` as pairs of what to search for and what to put there.

    Raises ConfigError when one is not ``old=>new``, or not a regular expression.
    """
    found = []
    for rule in filter(str.strip, text.split(SEPARATOR)):
        old, arrow, new = (part.strip() for part in rule.partition(ARROW))
        require(bool(arrow and old), "init.rename", f"{rule.strip()!r} is not of the form old{ARROW}new")
        require_pattern("init.rename", old)
        pattern = re.compile(old)
        try:
            pattern.sub(new, "")
        except (re.error, IndexError) as error:
            raise ConfigError(f"init.rename: {new!r} cannot stand for {old!r}: {error}") from None
        found.append((pattern, new))
    return found

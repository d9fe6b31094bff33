"""The parameters that a new run takes from a checkpoint of another."""

import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints, on_host
from transformer_jax.checkpoints.selection import chosen_step
from transformer_jax.config import ConfigError, InitConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.distributed import from_first
from transformer_jax.runtime.object_store import local_run
from transformer_jax.training.parameter_matching import Match, describe_match, match_parameters
from transformer_jax.training.parameter_names import named_leaves
from transformer_jax.training.sharding import path_of

# Rows of these stand for the pieces of a vocabulary.
OF_A_VOCABULARY = re.compile(r"(embedding|projection)/table$")


@dataclass(frozen=True)
class InitialParameters:
    """Parameters to take from checkpoint ``step`` of the run that ``settings`` name."""

    settings: InitConfig
    step: int
    match: Match

    def put_into(self, params: PyTree) -> PyTree:
        """``params`` with what is taken in its place, each array where the one that it replaces lives.

        Raises CheckpointError when the checkpoint cannot be read.
        """
        here = named_leaves(params)
        new_name = {old: new for new, old in self.match.taken.items()}
        with closing(_checkpoints(self.settings)) as checkpoints:

            def like(path: tuple, leaf: jax.ShapeDtypeStruct) -> Any:
                # What is not taken is read all the same, since Orbax reads whole trees, but goes to no device.
                name = new_name.get(path_of(path))
                return on_host(leaf) if name is None else here[name]

            shapes = checkpoints.shapes(self.step)
            saved = checkpoints.restore_params(self.step, jax.tree_util.tree_map_with_path(like, shapes))
        found = named_leaves(saved)

        def replaced(path: tuple, leaf: Any) -> Any:
            old = self.match.taken.get(path_of(path))
            return leaf if old is None else found[old]

        return jax.tree_util.tree_map_with_path(replaced, params)

    def report(self) -> str:
        """One line on the parameters taken and not taken."""
        return f"parameters of {self.settings.run}, checkpoint {self.step}: {describe_match(self.match)}"

    def to_json(self) -> dict[str, Any]:
        """For ``run.json``."""
        names = self.match._asdict() | {"taken": len(self.match.taken)}
        return {"run": self.settings.run, "step": self.step, **names}


def find_initial_parameters(init: InitConfig, like: PyTree, tokenizers: TokenizerPair) -> InitialParameters:
    """Decides what is taken, from the description of the checkpoint alone; ``like`` are the parameters of the model, or shapes.

    Raises ConfigError when ``init.run`` is not a run, when names or shapes do not fit, or when embeddings would be taken that
    belong to other tokenizers; CheckpointError when there is no such checkpoint.
    """
    source = RunDirectory(local_run(init.run))
    source.require_run("init.run")
    # One process chooses for all: a run may be adding checkpoints.
    step = from_first(lambda: chosen_step(source, init.checkpoint))
    with closing(_checkpoints(init)) as checkpoints:
        saved = {name: leaf.shape for name, leaf in named_leaves(checkpoints.shapes(step)).items()}
        data = checkpoints.progress(step)["data"]
    match = match_parameters(saved, {name: leaf.shape for name, leaf in named_leaves(like).items()}, init)
    # Tasks with one side have one tokenizer, for both.
    theirs = tuple(data.get(f"{side} tokenizer", data.get("tokenizer")) for side in ("source", "target"))
    _require_same_tokenizers(match, theirs, (tokenizers.source.fingerprint(), tokenizers.target.fingerprint()))
    return InitialParameters(init, step, match)


def _require_same_tokenizers(match: Match, theirs: tuple[str | None, ...], ours: tuple[str, ...]) -> None:
    tables = [name for name in match.taken if OF_A_VOCABULARY.search(name)]
    if tables and theirs != ours:
        raise ConfigError(
            f"init.tokenizer: {', '.join(tables)} would be taken from a run with other tokenizers, where each row stands for "
            f"another piece of text; leave them out, --config.init.leave_out='{OF_A_VOCABULARY.pattern}', or adopt the "
            "tokenizers of that run, --config.init.tokenizer=adopt"
        )


def _checkpoints(init: InitConfig) -> Checkpoints:
    return Checkpoints(RunDirectory(local_run(init.run)).checkpoints, read_only=True)

"""The first state: restored, random, or with parameters of another run or of word vectors."""

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.reader import CheckpointReader, on_host
from transformer_jax.config import ConfigError, ExperimentConfig, InitConfig, difference, load_run_config, migration
from transformer_jax.config.conversion import from_json, listed
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.run_directory.layout import RunDirectory, require_run_to_start_from
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.runs.metrics_log import LogContents
from transformer_jax.runs.run import Counters, Position, hyperparameters_of_length
from transformer_jax.runtime.distributed import from_first
from transformer_jax.tasks.task import Task
from transformer_jax.training.parameters import Match, match_parameters, named_leaves
from transformer_jax.training.sharding import path_of
from transformer_jax.training.update import Update

# A change of the learning rate by a smaller share is not logged.
SMALL_CHANGE = 0.2
# Parameters with a row, or a number, for each piece of a vocabulary.
OF_A_VOCABULARY = re.compile(r"(embedding|projection)/(table|logits_bias)$")


def restored_position(
    checkpoints: Checkpoints, update: Update, task: Task, directory: RunDirectory
) -> tuple[Position, LogContents, list[str]]:
    """Return the position of the newest readable checkpoint, its log, and notes on damaged ones.

    Without checkpoints the ``state`` is None. Raises ConfigError when the data changed since the
    checkpoint was written, and CheckpointError when no checkpoint can be read.
    """
    config, length = task.config, task.config.training.num_updates
    if not checkpoints.steps():
        return Position(None, 0, Counters(num_updates=length)), LogContents(), []
    state, progress, notes = checkpoints.restore_newest(update.state_shapes)
    for name, digest in task.identity.items():
        saved = progress["data"][name]
        if saved != digest and saved != migration.earlier_digest(config, task.open_source):
            before = load_run_config(directory.path)
            if bool(before.data.store) != bool(config.data.store):
                begun = "with" if before.data.store else "without"
                problem = f"the run {directory.path} was started {begun} data.store"
                raise ConfigError("data.store", problem, "resume it the same way")
            raise ConfigError(
                "--workdir",
                f"{directory.path}: the {name} changed since its checkpoints were written",
                "use another folder, or the data they were trained on"
                f"{listed(change for change in difference(before, config) if change[0].startswith('data.'))}",
            )
    number = int(state.step)
    counters = Counters(**migration.counters(progress["counters"], number, config.training.evaluate_every))
    settings_of_length = attrgetter("num_updates", "budget_seconds", "budget_policy")
    # Earlier versions wrote 0 for a run that was not shortened. Other settings give another length.
    if not counters.num_updates or (
        settings_of_length(from_json(progress["config"]).training) != settings_of_length(config.training)
    ):
        notes += note_on_rate(update, config, number, counters.num_updates, length)
        counters.num_updates = length
    position = Position(state, number, counters, progress.get("is_validation_due", False))
    if not position.is_validation_due:
        position.stop_if_over(config)
    return position, LogContents(progress.get("num_records", 0), progress.get("log_digest", "")), notes


def note_on_rate(update: Update, config: ExperimentConfig, number: int, before: int, length: int) -> list[str]:
    """Return a note if the learning rate jumps since the run had ``before`` updates, if any."""
    if not before or number >= length:
        return []
    lengths = ((before, number), (length, number + 1))
    was, now = (float(update.schedule(hyperparameters_of_length(config, size))(step)) for size, step in lengths)
    if abs(now - was) <= SMALL_CHANGE * max(now, was):
        return []
    why = f"the run had {before:,} updates and now has {length:,}"
    return [f"the learning rate, {was:.3g} at update {number:,}, continues at {now:.3g}: {why}"]


class ParametersFromElsewhere(Protocol):
    """Parameters that a new run takes from another run, or embeddings that it takes from a file."""

    def put_into(self, params: PyTree) -> PyTree:
        """Return ``params`` with these parameters in place of the same ones, in their shardings."""

    def report(self) -> str:
        """Return a note for the log."""

    def to_json(self) -> dict[str, Any]:
        """Return their origin for ``run.json``."""


def find_parameters(init: InitConfig, shapes: PyTree, tokenizers: TokenizerPair) -> ParametersFromElsewhere | None:
    """Return the parameters that ``init`` selects, if any. Raises ConfigError, CheckpointError."""
    if init.run:
        return find_initial_parameters(init, shapes, tokenizers)
    if init.embeddings:
        from transformer_jax.runs.initial_embeddings import find_initial_embeddings

        return find_initial_embeddings(init.embeddings, shapes, tokenizers)
    return None


@dataclass(frozen=True)
class InitialParameters:
    """Parameters from checkpoint ``step`` of ``run``."""

    run: str
    checkpoints: CheckpointReader
    step: int
    match: Match

    def put_into(self, params: PyTree) -> PyTree:
        """Return ``params`` with the matched ones replaced. Raises CheckpointError."""
        here = named_leaves(params)
        new_name = {old: new for new, old in self.match.taken.items()}

        def like(path: tuple, leaf: jax.ShapeDtypeStruct) -> Any:
            # Orbax reads whole trees; it reads parameters that are not taken into host memory.
            name = new_name.get(path_of(path))
            return on_host(leaf) if name is None else here[name]

        shapes = self.checkpoints.shapes(self.step)
        saved = self.checkpoints.restore_params(self.step, jax.tree_util.tree_map_with_path(like, shapes))
        leaves = named_leaves(saved)
        taken = {name: leaves[old] for name, old in self.match.taken.items()}
        return jax.tree_util.tree_map_with_path(lambda path, leaf: taken.get(path_of(path), leaf), params)

    def report(self) -> str:
        return f"parameters of {self.run}, checkpoint {self.step}: {self.match}"

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "step": self.step, **self.match._asdict(), "taken": len(self.match.taken)}


def find_initial_parameters(init: InitConfig, like: PyTree, tokenizers: TokenizerPair) -> InitialParameters:
    """Match the parameters of a checkpoint with ``like`` (parameters or shapes). Reads no arrays.

    Raises ConfigError when ``init.run`` is not a run, names or shapes do not fit, or matched
    embeddings belong to other tokenizers, and CheckpointError when there is no such checkpoint.
    """
    require_run_to_start_from(init.run)
    source = RunDirectory(init.run)
    # Process 0 selects for all: a run may be adding checkpoints.
    step = from_first(lambda: chosen_step(source, init.checkpoint), "checkpoint of init.run")
    checkpoints = CheckpointReader(source.checkpoints)
    saved = {name: leaf.shape for name, leaf in named_leaves(checkpoints.shapes(step)).items()}
    data = checkpoints.progress(step)["data"]
    match = match_parameters(saved, {name: leaf.shape for name, leaf in named_leaves(like).items()}, init)
    # Tasks with one side have one tokenizer, for both.
    theirs = tuple(data.get(f"{side} tokenizer", data.get("tokenizer")) for side in ("source", "target"))
    tables = [name for name in match.taken if OF_A_VOCABULARY.search(name)]
    if tables and theirs != (tokenizers.source.fingerprint(), tokenizers.target.fingerprint()):
        raise ConfigError(
            "init.tokenizer",
            f"{', '.join(tables)} would be taken from a run with other tokenizers, whose rows belong to other pieces",
            f"leave them out, --config.init.leave_out='{OF_A_VOCABULARY.pattern}', or adopt its "
            "tokenizers, --config.init.tokenizer=adopt",
        )
    return InitialParameters(init.run, checkpoints, step, match)

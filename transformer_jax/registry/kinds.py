"""The kinds of parts: the setting that selects parts of a kind, and the call that makes one.

A part is a class, or a function that is called as the ``Protocol`` of its kind. ``settings`` are
the settings of the part, or None. If a Protocol lacks them, a part that has settings gets them as
its first argument. ``model`` is the ``ModelConfig``, and a ``site`` (``layers.site.Site``) is the
position of the part in the model. Arrays and modules are ``Any``: settings do without JAX.
"""

from typing import Any, NamedTuple, Protocol


class MakesAtSite(Protocol):
    """Makes a module for one site of the model, or returns None for no module."""

    def __call__(self, settings: Any, model: Any, site: Any) -> Any: ...


class MakesWithPrecision(Protocol):
    """Makes a module for one site of the model, which computes in ``precision``."""

    def __call__(self, settings: Any, model: Any, site: Any, *, precision: Any) -> Any: ...


class MakesFeedForward(Protocol):
    """Makes the feed-forward module of a layer."""

    def __call__(self, settings: Any, model: Any, site: Any, *, dropout: Any, precision: Any) -> Any: ...


class MakesProjection(Protocol):
    """Makes the output layer around ``embedding``."""

    def __call__(self, settings: Any, model: Any, site: Any, *, embedding: Any, precision: Any) -> Any: ...


class ReadsWordTable(Protocol):
    """Returns words and their vectors, float32 [V, D]."""

    def __call__(self, path: str) -> tuple[list[str], Any]: ...


class Initializes(Protocol):
    """Returns the factor of a parameter's initial values, or an initializer."""

    def __call__(self, settings: Any, model: Any, site: Any, path: Any) -> Any: ...


class OpensCorpus(Protocol):
    """Opens the ``Corpus`` of a translation run; ``data`` are its settings."""

    def __call__(self, data: Any, seed: int) -> Any: ...


class MakesOptimizer(Protocol):
    """Returns the optax transformations of an optimizer, in the order of their application."""

    def __call__(self, hyperparameters: Any) -> list[Any]: ...


class MakesSchedule(Protocol):
    """Returns the learning rate as a function of the update."""

    def __call__(self, settings: Any, hyperparameters: Any, d_model: int) -> Any: ...


class Corrupts(Protocol):
    """Returns the batch that the model reads, corrupted at random."""

    def __call__(self, settings: Any, batch: Any, key: Any) -> Any: ...


class MakesSearch(Protocol):
    """Makes a ``decoding.beam_search.Search``."""

    def __call__(self, rules: Any) -> Any: ...


class ScoresText(Protocol):
    """Returns the score of a text."""

    def __call__(self, hypotheses: Any, references: Any, sources: Any) -> float: ...


class OpensTracker(Protocol):
    """Opens a ``runs.trackers.Tracker``; its settings are in ``config``."""

    def __call__(self, folder: Any, config: Any, first_update: int) -> Any: ...


class Kind(NamedTuple):
    """A kind of parts.

    ``setting``: selects parts of the kind. ``part``: a part in words. ``maker``: how a part that is
    a function is called, or None for classes. ``has_settings``: whether parts may have settings.
    ``has_parameters``: whether parts may add parameters to the model.
    """

    setting: str
    part: str
    maker: type | None = None
    has_settings: bool = True
    has_parameters: bool = False


KINDS: dict[str, Kind] = {
    "attention": Kind(
        "model.attention",
        "a subclass of AttentionChange, or of MultiHeadAttention, which it replaces",
        has_parameters=True,
    ),
    "rnn_attention": Kind(
        "model.attention", "in recurrent models a function: an RnnAttention", MakesWithPrecision, has_parameters=True
    ),
    "positions": Kind(
        "model.positions", "a function: module of positions, AttentionChange or None", MakesAtSite, has_parameters=True
    ),
    "mixer": Kind("model.mixers", "a subclass of layers.mixer.Mixer", has_parameters=True),
    "norm": Kind("model.norm", "a function: module, x -> norm of x", MakesWithPrecision, has_parameters=True),
    "residual": Kind("model.normalization", "a subclass of layers.residual.Residual", has_parameters=True),
    "feed_forward": Kind("model.feed_forward", "a function: module", MakesFeedForward, has_parameters=True),
    "projection": Kind(
        "model.projection", "a subclass of layers.embedding.Projection", MakesProjection, has_parameters=True
    ),
    "initialization": Kind("model.initialization", "a function: factor or initializer of a parameter", Initializes),
    "data_source": Kind("data.source", "of translation, a function: Corpus", OpensCorpus),
    "tokenizer": Kind(
        "tokenizer.kind",
        "a class with train and from_bytes, as ListedTokenizer, or its module:Class",
        has_settings=False,
    ),
    "task": Kind("task", "a subclass of tasks.task.Task with its settings", has_settings=False, has_parameters=True),
    "optimizer": Kind("optimizer.name", "a function: list of optax transformations", MakesOptimizer),
    "averaging": Kind("optimizer.averaging", "a training.optimizers.Averaging"),
    "after_update": Kind("optimizer.after_update", "a subclass of training.statistics.AfterUpdate"),
    "schedule": Kind("optimizer.schedule", "a function: learning rate of an update", MakesSchedule),
    "loss_term": Kind("training.loss_terms", "a subclass of training.loss_terms.LossTerm", has_parameters=True),
    "corruption": Kind("training.corruptions", "a function: batch that the model reads", Corrupts),
    "statistic": Kind("training.watch", "a subclass of training.statistics.Statistic"),
    "sharding": Kind(
        "by a regular expression of paths instead of a name", "PartitionSpec of these parameters", has_settings=False
    ),
    "search": Kind("decoding.search", "of translation, a function: Search", MakesSearch),
    "metric": Kind("evaluation.metrics", "a function: score of a text", ScoresText),
    "word_table": Kind(
        "init.embeddings", "a function of a path: words and their vectors [V, D]", ReadsWordTable, has_settings=False
    ),
    "tracker": Kind("training.trackers", "a function: Tracker", OpensTracker),
}
"""The kinds of parts by name."""

"""Plugins of users: parts of models, optimizers, data sources, tasks and trackers; and execution of Python files.

A plugin is a Python file, given by ``--plugin=FILE``, or a module that an installed distribution names as an entry point of the
group ``transformer_jax.plugins``; it calls ``register``. A run records the names and digests of plugin files, not their code.
The package registers its own parts, of the core and of the kit (``transformer_jax.kit``), in the same way, on first use.
"""

import importlib
import inspect
import re
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.config.errors import ConfigError, nearest
from transformer_jax.kit import KIT

EXTENSIONS = {
    "attention": "model.attention of Transformers: a subclass of AttentionChange, or of MultiHeadAttention, which it replaces",
    "rnn_attention": "model.attention of recurrent models: settings, model, site, *, precision -> RnnAttention",
    "positions": "model.positions: settings, model, site -> module of positions, AttentionChange or None",
    "mixer": "model.mixers: a subclass of layers.mixer.Mixer",
    "norm": "model.norm: settings, model, site, *, precision -> module, x -> norm of x",
    "residual": "model.normalization: a subclass of layers.residual.Residual",
    "feed_forward": "model.feed_forward: settings, model, site, *, dropout, precision -> module",
    "projection": "model.projection: a subclass of layers.embedding.Projection",
    "initialization": "model.initialization: settings, model, site, path -> factor or initializer",
    "data_source": "data.source of translation: data, seed -> Corpus",
    "tokenizer": "tokenizer.kind: a class with train and from_bytes, as ListedTokenizer, or its module:Class",
    "task": "task: a subclass of tasks.task.Task with its settings",
    "optimizer": "optimizer.name: hyperparameters -> list of optax transformations",
    "averaging": "optimizer.averaging: a training.optimizers.Averaging",
    "schedule": "optimizer.schedule: settings, hyperparameters, d_model -> rate of an update",
    "loss_term": "training.loss_terms: a subclass of training.loss_terms.LossTerm",
    "corruption": "training.corruptions: settings, batch, key -> batch that the model reads",
    "statistic": "training.watch: a subclass of training.statistics.Statistic",
    "sharding": "by a regular expression of paths instead of a name: PartitionSpec of these parameters",
    "search": "decoding.search of translation: rules -> Search",
    "metric": "evaluation.metrics: hypotheses, references, sources -> score of a text",
    "word_table": "init.embeddings: path -> words and their vectors [V, D]",
    "tracker": "training.trackers: folder, config, first_update -> Tracker",
}
"""The setting that selects parts of a kind, and the parts; for functions: positional arguments, ``*``, keyword arguments.

A part with settings gets them as its first argument, also where they are not listed; a tracker has them in ``config``.
"""
KINDS_WITH_PARAMETERS = (
    *("attention", "rnn_attention", "positions", "mixer", "norm", "residual", "feed_forward"),
    *("projection", "loss_term", "task"),
)
KINDS_WITHOUT_SETTINGS = ("tokenizer", "task", "sharding", "word_table")
"""Their objects are not called with settings of a part; a task has blocks of settings."""
CORE: dict[str, dict[str, str]] = {
    "attention": {
        "layers.attention": "multi_head",
        "layers.attention_variants": "biased rectified unscaled acausal",
    },
    "rnn_attention": {
        "models.build_rnn": "dot scaled_dot general additive normalized_additive concat location local_m local_p "
        "location_sensitive cumulative_location_sensitive"
    },
    "positions": {"layers.positions": "sinusoidal fairseq learned none"},
    "norm": {"layers.normalization": "layer_norm"},
    "residual": {"layers.residual": "post pre"},
    "feed_forward": {"layers.feed_forward": "relu gelu exact_gelu silu"},
    "projection": {"layers.embedding": "linear"},
    "initialization": {"models.initialization": "xavier"},
    "data_source": {
        "data.synthetic.grammar": "grammar",
        "data.synthetic.symbols": "copy reverse",
        "data.parallel_text": "text",
        "data.mixture": "mixture",
        "data.tfds_source": "tfds",
    },
    "tokenizer": {"data.tokenizers.listed": "word lower_word character"},
    "task": {"config.translation": "translation", "config.language_model": "language_model"},
    "optimizer": {"training.optimizers": "adam adamw adafactor sgd adagrad"},
    "schedule": {"training.schedules": "noam inverse_square_root cosine linear constant"},
    "search": {"decoding.beam_search": "beam"},
    "tracker": {"runs.trackers": "tensorboard wandb"},
}
"""The parts of the core: kind, then module, to names."""
EXAMPLES = {("tracker", name): f"examples/{name}_tracker.py" for name in ("mlflow", "trackio")}
"""Files of the repository that register parts which users may know from other versions or packages."""
MODULES = {
    (kind, name): f"transformer_jax.{module}"
    for kind, modules in CORE.items()
    for module, names in modules.items()
    for name in names.split()
} | {part: f"transformer_jax.kit.{module}" for part, module in KIT.items()}
"""The modules that register the parts of the package, imported when a part is looked up."""
LOGGED_KINDS = ("loss_term", "statistic")
LOGGED = ("loss", "nll", "accuracy", "tokens", "gradient_norm", "learning_rate", "target_tokens", "skipped_updates")
"""Metrics train/NAME of every run; parts of ``LOGGED_KINDS`` add others."""
OF_VALIDATIONS = ("loss", "perplexity", "search_tokens_per_second", "distinct_outputs", "cross_attention_entropy")
"""Metrics validation/NAME of translations; parts of kind ``metric`` and the scores of sacreBLEU are the others."""
ENTRY_POINTS = "transformer_jax.plugins"
BUILT_IN = {
    "transformer_jax.tools.word_vectors.task.registration": ("task", "word_table"),
    "transformer_jax.tools.parsing.registration": ("task", "tokenizer", "data_source"),
}
"""Modules of the package that register parts outside its core, with the kinds of these parts, which load them."""

Registered = TypeVar("Registered")
OWN_NAMES: dict[str, set[str]] = {kind: set() for kind in EXTENSIONS}
"""Other names of the core, values without a registered part: scores of sacreBLEU, ``none`` except of ``model.positions``."""
_REGISTERED: dict[str, dict[str, Any]] = {kind: {} for kind in EXTENSIONS}
_SETTINGS: dict[tuple[str, str], type] = {}
_BUILT_IN: set[tuple[str, str]] = set()
_LOADED: dict[str, str] = {}
"""Digests of the loaded files."""


def register(kind: str, name: str, settings: type | None = None) -> Callable[[Registered], Registered]:
    """Decorator that adds a function or class as ``name``, a value of the setting of this ``kind``.

    ``settings``: a frozen dataclass of fields made by ``config.setting``, which a run has at ``parts.NAME.FIELD``.

    Raises ConfigError when there is no such kind, or its parts have no settings. The name must not be taken by the package, by
    settings of another kind, or by a metric of the log. A function must take exactly the arguments that its kind passes.
    """
    if kind not in EXTENSIONS:
        raise ConfigError(f"register: {kind!r} is not one of {', '.join(EXTENSIONS)}")
    if settings and kind in KINDS_WITHOUT_SETTINGS:
        raise ConfigError(f"register: {kind} {name!r} would not get its settings; parts of this kind have none")
    others = [other for other in EXTENSIONS if other != kind and settings and settings_class(other, name)]
    if others:
        raise ConfigError(f"register: parts.{name} are already the settings of {others[0]} {name!r}; use another name")
    if name in OWN_NAMES[kind]:
        raise ConfigError(f"register: {kind} {name!r} is taken by the core; use another name")
    taken = [other for other in LOGGED_KINDS if other != kind and (name in _REGISTERED[other] or (other, name) in KIT)]
    if kind in LOGGED_KINDS and (name in LOGGED or taken):
        raise ConfigError(f"register: the log has another train/{name}; use another name than {kind} {name!r}")
    if kind == "metric" and name in OF_VALIDATIONS:
        raise ConfigError(f"register: the log has another validation/{name}; use another name than {kind} {name!r}")

    def add(made: Registered) -> Registered:
        module, origin = MODULES.get((kind, name)), getattr(made, "__module__", "") if callable(made) else ""
        # A module may be loaded again; settings of a task do not say where they were made.
        if module and origin != module and (origin or name in _REGISTERED[kind]):
            raise ConfigError(f"register: {kind} {name!r} is in {module}; use another name")
        passed, arrow, _ = EXTENSIONS[kind].partition(": ")[2].partition(" -> ")
        if arrow and inspect.isfunction(made):
            passed = f"settings, {passed}" if settings and not re.search("settings|config", passed) else passed
            positional, _, keywords = passed.partition(", *, ")
            options = dict.fromkeys(keywords.split(", ") if keywords else ())
            signature = inspect.signature(made, follow_wrapped=False)
            try:
                signature.bind(*positional.split(", "), **options)
            except TypeError:
                problem = f"takes {signature}; the arguments are ({passed})"
                raise ConfigError(f"register: {kind} {name!r} {problem}") from None
        _REGISTERED[kind][name] = made
        _SETTINGS.pop((kind, name), None)
        if settings:
            _SETTINGS[kind, name] = settings
        return made

    return add


def setting_of(kind: str) -> str:
    """The setting that selects parts of a kind: ``model.norm``."""
    return re.split("[: ]", EXTENSIONS[kind])[0]


def registered(kind: str, made: Callable[[Any], Any] = lambda part: part) -> Mapping[str, Any]:
    """The parts of a kind by name, each converted by ``made``; modules of the package are imported on first use."""
    return _PartsOfKind(kind, made)


def names_of(kind: str) -> tuple[str, ...]:
    """Return the names of all parts of a kind without importing modules of the package; parts of the core come first."""
    load_installed_plugins(kind)
    return tuple(dict.fromkeys((*(name for owner, name in MODULES if owner == kind), *sorted(_REGISTERED[kind]))))


def settings_class(kind: str, name: str) -> type | None:
    """The settings of a part; None if it has none, as parts of the core, or there is no such part."""
    if (kind, name) in KIT:
        _import_part(kind, name)
    return _SETTINGS.get((kind, name))


def with_settings(kind: str, name: str, parts: Mapping[str, Any]) -> Callable[..., Any]:
    """The part of this name, with its settings in ``parts``, or their defaults, as first argument if it has some."""
    made, settings = registered(kind)[name], settings_class(kind, name)
    return partial(made, parts[name] if name in parts else settings()) if settings else made


def kind_with_settings(name: str) -> str | None:
    """The kind of the part with settings of this name; None if there is none."""
    return next((kind for kind in EXTENSIONS if is_registered(kind, name) and settings_class(kind, name)), None)


def names_with_settings() -> tuple[str, ...]:
    """The names of all parts that have settings; imports the whole kit."""
    load_installed_plugins()
    for kind, name in KIT:
        _import_part(kind, name)
    return tuple(sorted(name for _, name in _SETTINGS))


def _import_part(kind: str, name: str) -> None:
    if name not in _REGISTERED[kind]:
        importlib.import_module(MODULES[kind, name])


def may_add_parameters() -> bool:
    """Whether a plugin of a user registered a part or task, whose parameters the package cannot know."""
    known = _BUILT_IN | MODULES.keys()
    return any((kind, name) not in known for kind in KINDS_WITH_PARAMETERS for name in _REGISTERED[kind])


def is_registered(kind: str, name: str) -> bool:
    """Whether a part is registered, also by installed plugins, which are loaded if necessary."""
    if name not in _REGISTERED[kind] and (kind, name) not in MODULES:
        load_installed_plugins(kind)
    return name in _REGISTERED[kind] or (kind, name) in MODULES


class _PartsOfKind(Mapping[str, Any]):
    def __init__(self, kind: str, made: Callable[[Any], Any]) -> None:
        self._kind, self._made = kind, made

    def __getitem__(self, name: str) -> Any:
        if not is_registered(self._kind, name):
            raise KeyError(name)
        _import_part(self._kind, name)
        return self._made(_REGISTERED[self._kind][name])

    def __iter__(self) -> Iterator[str]:
        return iter(names_of(self._kind))

    def __len__(self) -> int:
        return len(names_of(self._kind))


def load_plugin(file: str) -> None:
    """Runs the Python file of a plugin; raises ConfigError when it does not exist or fails."""
    path = Path(file).expanduser()
    if not path.is_file():
        hint = "; repeat --plugin for each file" if "," in file else ""
        raise ConfigError(f"--plugin: {path} is not a file{hint}")
    digest = sha256(path.read_bytes()).hexdigest()
    try:
        names_in_file(path)
    except ConfigError as error:
        if str(error).startswith("register: "):
            raise ConfigError(f"{path}: {error}") from error
        raise
    _LOADED[str(path.absolute())] = digest


def loaded_plugins() -> dict[str, str]:
    """The loaded files, each with its SHA-256 when it was loaded."""
    return dict(_LOADED)


def line_of_plugin(error: BaseException) -> str:
    """``FILE, line N`` where a loaded file raised an error, or called the function that did; empty if none did."""
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_loaded(frame.filename)]
    return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else ""


def is_of_plugin(error: BaseException) -> bool:
    """Whether a loaded file, or a library that it called, raised an error, and no code of this package that it called."""
    package = Path(__file__).parents[1]
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours_or_loaded = [file for file in files if _is_loaded(file) or Path(file).is_relative_to(package)]
    return bool(ours_or_loaded) and _is_loaded(ours_or_loaded[-1])


def _is_loaded(file: str) -> bool:
    return str(Path(file).absolute()) in _LOADED


def plugin_flags() -> str:
    """The ``--plugin`` flags of loaded files for a printed command, each after a space."""
    return "".join(f" --plugin={shlex.quote(file)}" for file in loaded_plugins())


def _all_registered() -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in _REGISTERED.items() for name in names}


def load_installed_plugins(kind: str = "") -> None:
    """Imports the installed plugins, and the built-in ones with parts of ``kind``, by default all; raises ConfigError when one
    fails.
    """
    for module, kinds in BUILT_IN.items():
        if not kind or kind in kinds:
            _load_built_in(module)
    _load_entry_points()


@cache
def _load_built_in(module: str) -> None:
    before = _all_registered()
    importlib.import_module(module)
    _BUILT_IN.update(_all_registered() - before)


@cache
def _load_entry_points() -> None:
    for entry_point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            problem = f"plugin {entry_point.name} ({entry_point.value}) fails: {type(error).__name__}: {error}"
            raise ConfigError(f"{problem}; fix or uninstall it") from error


def call_in_file(path: Path, function: str, argument: str, kind: str) -> Any:
    """Calls a function of a Python file, with ``argument`` unless it is empty, and returns its result.

    ``kind`` names such files in messages. Raises ConfigError when the file fails or has no such function, or the argument is
    not in its ``VARIANTS``.
    """
    spec = f"{path}:{argument}" if argument else str(path)
    with _running(path, spec):
        # Under a separate name: run_path puts the module where a file called copy.py would hide the real copy.
        namespace = runpy.run_path(str(path), run_name=f"file_{path.stem}")
        called = namespace.get(function)
        if not callable(called):
            raise ConfigError(f"{path}: not {kind}: it has no function {function}()")
        variants = [str(variant) for variant in namespace.get("VARIANTS", ())]
        if argument and variants and argument not in variants:
            near = nearest(argument, variants)
            hint = f"did you mean {path.name}:{near}?" if near else f"one of {', '.join(variants)}"
            raise ConfigError(f"{spec}: unknown variant {argument!r}; {hint}")
        if argument and not inspect.signature(called).parameters:
            raise ConfigError(f"{spec}: {path.name} has no variants")
        return called(argument) if argument else called()


def names_in_file(path: Path) -> dict[str, Any]:
    """The names that a Python file defines; raises ConfigError when it fails."""
    with _running(path, str(path)):
        return runpy.run_path(str(path), run_name=f"file_{path.stem}")


@contextmanager
def _running(path: Path, spec: str) -> Iterator[None]:
    """Lets a file import its siblings; removes them from ``sys.modules`` after it, since other folders may have the same names.

    Raises ConfigError, with file and line, for every exception of the file.
    """
    folder, before = path.resolve().parent, set(sys.modules)
    # At the end: a recipe called copy.py must not hide the module of the standard library.
    sys.path.append(str(folder))
    try:
        yield
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    # A file that calls sys.exit would end the command without a message.
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).resolve().parent == folder]
        where = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else spec
        raise ConfigError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder:
                del sys.modules[name]

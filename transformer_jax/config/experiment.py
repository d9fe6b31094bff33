"""The settings of one run, and all ways to make them: dictionaries, text of the command line, JSON, recipes and runs.

Conversion is strict: only an int is converted, to float; a bool is not a number, and an unknown key is an error.
"""

import copy
import math
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

from transformer_jax.config.checks import LARGEST_SEED, check_choice, check_settings, declared, setting
from transformer_jax.config.data import SourceConfig, TokenizerConfig
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.config.languages import UNDETERMINED
from transformer_jax.config.migration import EVALUATION, SCHEMA_VERSION, key_error, migrated
from transformer_jax.config.model import InitConfig
from transformer_jax.config.optimization import MeshConfig, OptimizerConfig, TrainingConfig, decays, require_rows_divide
from transformer_jax.config.parts import Parts, Selection, complete_parts, selections, settings_of_part
from transformer_jax.config.recipes import find_recipe, load_recipe, with_own_text
from transformer_jax.config.tasks import (
    BLOCKS_OF_TASKS,
    DEFAULT_TASK,
    SCORES,
    TASKS,
    Metric,
    any_kind_of,
    kinds_of,
    score_names,
)
from transformer_jax.errors import ConfigError, PluginNeeded, StoreError, nearest
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import as_path, in_store, unasked
from transformer_jax.registry.plugins import (
    kind_with_settings,
    names_of,
    names_with_settings,
    registered,
    setting_of,
    settings_class,
)
from transformer_jax.registry.python_files import loaded_plugins, names_in_file

if TYPE_CHECKING:
    from ml_collections import ConfigDict

TaskBlock = Any
"""A settings dataclass that ``TASKS[task]`` names."""
Block = type | UnionType
"""A settings dataclass, or a union of several, with the fields of all."""
CONFIG_FILE = "config.json"
PARTS = "parts"
EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}
BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)


def _default(name: str) -> Callable[[], Any]:
    return lambda: next(iter(kinds_of(DEFAULT_TASK, name).values()))()


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run. ``task`` determines the types of ``data``, ``batching``, ``model`` and ``decoding``.

    ``parts``: settings of all parts that other settings select, defaults if not given.
    """

    task: str = setting(DEFAULT_TASK, "Task to train.", plugin="task")
    seed: int = setting(
        0, "Seed of parameters and dropout, and of the data unless data.seed is set.", at_least=0, at_most=LARGEST_SEED
    )
    data: TaskBlock = field(default_factory=_default("data"))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    batching: TaskBlock = field(default_factory=_default("batching"))
    model: TaskBlock = field(default_factory=_default("model"))
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: TaskBlock = field(default_factory=_default("decoding"))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        check_settings("", self)
        object.__setattr__(self, PARTS, complete_parts(self.parts, self.selections))
        task, evaluation, batching, mesh = TASKS[self.task], self.evaluation, self.batching, self.mesh
        for name in BLOCKS_OF_TASKS:
            block, kinds = type(getattr(self, name)), kinds_of(self.task, name).values()
            if block not in kinds:
                known = ", ".join(kind.__name__ for kind in kinds)
                raise ConfigError(name, f"{block.__name__} is not one of {known}, task={self.task}")
        if evaluation.selection:
            names = tuple(metric.name for metric in task.metrics)
            check_choice("evaluation.selection", evaluation.selection, names, "metric")
        task.check(self.data, self.tokenizer, batching, self.model, self.decoding)
        sizes = {"data": max(mesh.data, 1), "fsdp": max(mesh.fsdp, 1)}
        require_rows_divide(batching.row_multiple, batching.accumulation_steps, sizes)
        if mesh.context != 1 and not self.model.has_attention_backend:
            raise ConfigError("mesh.context", "splits sequences of Transformers only", "use mesh.data for other models")
        if (length := getattr(batching, "row_length", 0)) % max(mesh.context, 1):
            raise ConfigError("mesh.context", f"{mesh.context} does not divide rows of {length} positions")
        schedule, warmup, updates = self.optimizer.schedule, self.optimizer.warmup_updates, self.training.num_updates
        if warmup >= updates and decays(schedule):
            reason = f"the {schedule} schedule decays after the warm-up"
            problem = f"{warmup} must be less than training.num_updates={updates}: {reason}"
            remedy = f"use {updates // 10 or 1}, for example" if updates > 1 else "use optimizer.schedule=constant"
            raise ConfigError("optimizer.warmup_updates", problem, remedy)

    def check_new_run(self) -> None:
        """Raise ConfigError for settings with which saved runs load and resume, but no run should begin.

        Blocks, parts and their settings may have ``check_new_run(config)``, a static method of a part.
        """
        parts = (registered(each.kind).get(each.name) for each in self.selections)
        for checked in (self.batching, self.model, self.decoding, *self.parts.values(), *parts):
            if check := getattr(checked, "check_new_run", None):
                check(self)

    def _repr_html_(self) -> str:
        from transformer_jax.notebook import settings_table

        return settings_table(self)

    @property
    def selections(self) -> list[Selection]:
        """The parts that the settings of all blocks select."""
        blocks = ((each.name, getattr(self, each.name)) for each in fields(self))
        of_blocks = [each for name, block in blocks if is_dataclass(block) for each in selections(block, name)]
        return selections(self, "") + of_blocks

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that validations compute: ``validated_scores``, and all metrics that are not scores of translations."""
        scores = {*SCORES, *names_of("metric")} if self.scores_translations else set()
        left_out = scores - {*self.validated_scores}
        return tuple(metric for metric in TASKS[self.task].metrics if metric.name not in left_out)

    @property
    def validated_scores(self) -> tuple[str, ...]:
        """The scores of translations that validations compute, at least BLEU."""
        return score_names(f"{self.training.validation_metrics},{self.selection.name}") or ("bleu",)

    @property
    def selection(self) -> Metric:
        """The metric that selects checkpoints: of ``evaluation`` if set or found by language, else of the task."""
        task, evaluation = TASKS[self.task], self.evaluation
        if self.scores_translations:
            evaluation = evaluation.resolved(self.data.target_language)
        return next((each for each in task.metrics if each.name == evaluation.selection), task.selection)

    @property
    def scoring(self) -> str:
        """A sentence on the BLEU of validations; empty for other tasks than translation."""
        if not self.scores_translations:
            return ""
        tokenizer = self.evaluation.tokenizer(self.data.target_language)
        return f"BLEU of validations is sacreBLEU's, cased, tokenized by {tokenizer}."

    @property
    def scores_translations(self) -> bool:
        """Whether the task selects by BLEU, so that ``evaluation`` chooses its scores."""
        return TASKS[self.task].scores_translations

    @property
    def data_seed(self) -> int:
        """``data.seed``, or the seed of the run if that is -1."""
        return self.seed if self.data.seed < 0 else self.data.seed


def may_change(key: str, saved: ExperimentConfig, config: ExperimentConfig) -> bool:
    """Whether a run with settings ``saved`` may resume with ``config``, which differs in ``key``.

    Settings may change if they alter neither the model nor its updates, and settings of a part if another part may be selected.
    ``evaluation.bleu_tokenizer`` alters scores; ``model.scan_layers``, ``model.rematerialize`` and, with these,
    ``training.watch`` alter dropout masks.
    """
    path, _, name = key.rpartition(".")
    if path == "init":
        # A resumed run ignores its source, which may have moved; but a run that had none cannot get one.
        return bool(saved.init.embeddings if name == "embeddings" else saved.init.run) and (
            name in ("run", "embeddings") or not config.init.run
        )
    exceptions = {
        "training.num_updates": lambda: not decays(config.optimizer.schedule),
        # Languages choose files or columns, but an unknown language has chosen none.
        "data.source_language": lambda: saved.data.source_language == UNDETERMINED,
        "data.target_language": lambda: saved.data.target_language == UNDETERMINED,
        # The run keeps the value that was resolved when it began.
        "model.compute_dtype": lambda: config.model.compute_dtype == "auto",
        "batching.width_multiple": lambda: config.batching.width_multiple == 0,
        "evaluation.selection": lambda: not config.evaluation.selection,
    }
    if key in exceptions:
        return bool(exceptions[key]())
    first, _, part = path.partition(".")
    block = config.parts.get(part) if first == PARTS else getattr(config, path) if path else config
    if block is not None and name in (known := declared(type(block))) and known[name].facts.get("changeable"):
        return True
    # The metric that selects checkpoints stays, since its values are compared.
    is_other_part = first == PARTS and part != saved.selection.name
    return is_other_part and any(may_change(each, saved, config) for each in selecting(key, saved, config))


def selecting(key: str, *configs: ExperimentConfig) -> set[str]:
    """Return the settings of ``configs`` that select the part of ``key``, ``parts.NAME.FIELD``; another key alone."""
    first, _, rest = key.partition(".")
    if first != PARTS:
        return {key}
    name, selected = rest.partition(".")[0], [each for config in configs for each in config.selections]
    return {each.key for each in selected if each.name == name and settings_class(each.kind, name)}


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """Return the settings in ``values``, nested like ``ExperimentConfig``; others keep their defaults.

    Raises ConfigError for an unknown key, a value of the wrong type, or incompatible settings.
    """
    task = values.get("task", DEFAULT_TASK)
    check_choice("task", task, (), "task")
    config: ExperimentConfig = _block_from(
        ExperimentConfig, {name: {} for name in BLOCKS_OF_TASKS} | dict(values), "", task
    )
    return config


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """Return all settings as nested dictionaries; without ``parts`` if there are none."""
    values = asdict(config)
    del values[PARTS]
    parts = {name: asdict(settings) for name, settings in config.parts.items()}
    return values | ({PARTS: parts} if parts else {})


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """Return all settings by dotted key: ``{"seed": 0, "data.source": "grammar", ...}``."""
    return dict(leaves(to_dict(config)))


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``{"model": {"d_ff": 8}}`` as ``("model.d_ff", 8)``."""
    for name, value in values.items():
        key = f"{path}.{name}" if path else name
        yield from leaves(value, key) if isinstance(value, Mapping) else [(key, value)]


def difference(left: ExperimentConfig, right: ExperimentConfig) -> list[tuple[str, Any, Any]]:
    """Return settings that differ, sorted: ``[("model.d_ff", 2048, 1024), ...]``; None where one does not have the setting."""
    values, others = flatten(left), flatten(right)
    keys = sorted(values.keys() | others.keys())
    return [(key, values.get(key), others.get(key)) for key in keys if values.get(key) != others.get(key)]


def listed(changes: Iterable[tuple[str, Any, Any]]) -> str:
    """Return a line for each ``difference`` between a run and this command."""
    return "".join(f"\n  {key}: the run has {before!r}, this command {after!r}" for key, before, after in changes)


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings as a JSON object: ``{"schema_version": 3, "config": {...}}``."""
    return {"schema_version": SCHEMA_VERSION, "config": to_dict(config)}


def from_json(content: Any) -> ExperimentConfig:
    """Return the inverse of ``to_json``; migrates earlier schema versions, and leaves out removed settings.

    Raises ConfigError for another object, a newer schema version, or wrong settings.
    """
    if not isinstance(content, dict) or set(content) != {"schema_version", "config"}:
        raise ConfigError("not the settings of a run: expected an object with schema_version and config")
    version, values = content["schema_version"], content["config"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        known = f"1 to {SCHEMA_VERSION}"
        raise ConfigError("schema_version", f"{version!r} is not one of {known}", "update transformer_jax")
    if not isinstance(values, dict):
        raise ConfigError("config", f"expected a block of settings, found {values!r}")
    values = migrated(values, version)
    return from_dict(EVALUATION | values if values.get("task", DEFAULT_TASK) == DEFAULT_TASK else values)


def _block_from(block: Block, values: Any, path: str, task: str) -> Any:
    """Return a settings dataclass from a dictionary, recursively."""
    if not isinstance(values, Mapping):
        names = fields_of(any_kind_of(path) if path in BLOCKS_OF_TASKS else block)
        raise ConfigError(path, f"expected a block of settings with {', '.join(names)}, found {values!r}")
    kinds = kinds_of(task, path) if path in BLOCKS_OF_TASKS else {"": block}
    kind = values.get("kind", next(iter(kinds))) if len(kinds) > 1 else next(iter(kinds))
    if kind not in kinds:
        raise ConfigError(f"{path}.kind", f"{kind!r} is not one of {', '.join(kinds)}")
    chosen: Any = kinds[kind]
    # Not fields_of, which loads the settings of all tasks.
    types = {name: each.type for name, each in declared(chosen).items()}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{path}.{name}" if path else str(name)
        if key == PARTS:
            if not isinstance(value, Mapping):
                raise ConfigError(PARTS, f"expected settings by the name of their part, found {value!r}")
            made = {each: _block_from(settings_of_part(each), value[each], f"{PARTS}.{each}", task) for each in value}
            arguments[name] = Parts(made)
        elif name not in types:
            if key not in dict(leaf_keys()):
                raise unknown_key(key)
            owner = f"{path}.kind={kind}, which" if len(kinds) > 1 else f"task={task}, whose {path}"
            raise ConfigError(key, f"not a setting of {owner} has {', '.join(types)}")
        elif key in BLOCKS_OF_TASKS or is_block(types[name]):
            arguments[name] = _block_from(types[name], value, key, task)
        else:
            arguments[name] = _typed(types[name], value, key)
    return chosen(**arguments)


def _typed(kind: type, value: Any, key: str) -> Any:
    """Return ``value``, if it has the type ``kind``; an int becomes a float if necessary."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(key, f"expected {EXPECTED[kind]}, found {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, f"{value} is not a finite number")
    return value


def fields_of(block: Block) -> dict[str, Any]:
    """Return fields with their types, in order of declaration; those of ``ExperimentConfig`` load all tasks."""
    kinds = {name: each.type for kind in get_args(block) or (block,) for name, each in declared(kind).items()}
    return kinds | ({name: any_kind_of(name) for name in BLOCKS_OF_TASKS} if block is ExperimentConfig else {})


def is_block(kind: Any) -> bool:
    """Whether a field is a block of settings, not a value."""
    return is_dataclass(kind) or bool(get_args(kind))


def leaf_keys(block: Block = ExperimentConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yield all dotted keys below ``block`` with their types, such as ``("model.num_heads", int)``; without parts."""
    for name, kind in fields_of(block).items():
        if is_block(kind):
            yield from leaf_keys(kind, f"{prefix}{name}.")
        elif kind is not Parts:
            yield prefix + name, kind


def keys_of_parts() -> Iterator[str]:
    """Yield the dotted keys of all settings of parts; imports the whole kit."""
    for name in names_with_settings():
        yield from (key for key, _ in leaf_keys(settings_of_part(name), f"{PARTS}.{name}."))


def block_at(path: str) -> Block | None:
    """Return the block of settings at a dotted path, ``"model"`` or ``"parts.rmsnorm"``; None if there is none.

    Raises ConfigError for a part without settings.
    """
    first, _, part = path.partition(".")
    if first == PARTS and part:
        return settings_of_part(part)
    if path in ("", *BLOCKS_OF_TASKS):
        return any_kind_of(path) if path else ExperimentConfig
    each = declared(ExperimentConfig).get(path)
    return each.type if each and is_block(each.type) else None


def type_of(key: str, task: str = "") -> type:
    """Return the type of the setting at a dotted key, of ``task`` if that has it, else of any task.

    Raises ConfigError for an unknown key, with the nearest one, and for a block.
    """
    path, _, name = key.rpartition(".")
    if task in TASKS and path in BLOCKS_OF_TASKS:
        for of_task in kinds_of(task, path).values():
            if name in declared(of_task):
                return declared(of_task)[name].type
    if PARTS in (key, path):
        block_at(key)
        raise ConfigError(key, "is a block", f"set one of its settings, {PARTS}.NAME.FIELD")
    if path == "" and (block := block_at(key)):
        names = list(fields_of(block))
        raise ConfigError(key, "is a block", f"set keys of it ({key}={names[0]}=VALUE,...): {', '.join(names)}")
    owner = block_at(path)
    if owner is None or name not in (kinds := fields_of(owner)):
        raise unknown_key(key)
    return kinds[name]


@cache
def other_toolkits(table: str) -> dict[str, list[str]]:
    """Return the keys of ``settings``, or the ``flags``, that a name in another toolkit stands for."""
    text = Path(__file__).with_name("other_toolkits.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)[table].items()
    return {name: ours.split() for ours, names in rows for name in names.split()}


def settings_called(name: str) -> list[str]:
    """Return the keys of the settings of this name, or which other toolkits call so."""
    keys = [key for key, _ in leaf_keys()]
    named = [name] if name in keys else [key for key in keys if key.endswith(f".{name}")]
    return named or other_toolkits("settings").get(name, [])


def unknown_key(key: str) -> ConfigError:
    """Return the error for a key that does not exist, with the nearest keys or all keys of the block."""
    if error := key_error(key):
        return error
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        names = list(fields_of(settings_of_part(path.removeprefix(f"{PARTS}."))))
        near = nearest(name, names)
        hint = f"did you mean {path}.{near}?" if near else f"{path} has {', '.join(names)}"
        return ConfigError(key, "unknown key", hint)
    keys, blocks, same_name = [leaf for leaf, _ in leaf_keys()], fields_of(ExperimentConfig), settings_called(name)
    near = nearest(key, same_name, cutoff=0.8)
    candidates = [near] if near else same_name if len(same_name) <= 3 else []
    if not candidates and (near := nearest(key, (*keys, *blocks))):
        candidates = [near]
    if candidates:
        return ConfigError(key, "unknown key", f"did you mean {' or '.join(candidates)}?")
    owner = path if is_block(blocks.get(path)) else ""
    siblings = fields_of(blocks[owner]) if owner else blocks
    return ConfigError(key, "unknown key", f"{owner or 'the config'} has {', '.join(siblings)}")


def apply_overrides(
    values: "Mapping[str, Any] | ConfigDict", overrides: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return a plain copy of ``values`` with dotted keys set from text, in order.

    References between settings of a recipe (``config.get_ref``) follow the overrides.

    Example: ``apply_overrides({}, [("model.d_ff", "512")])`` is ``{"model": {"d_ff": 512}}``.

    Raises ConfigError for an unknown key, text that is not a value of the setting, or a required setting without value.
    """
    config: Any = copy.deepcopy(values)
    overrides, is_recipe = list(overrides), not isinstance(config, dict)
    task = dict(overrides).get("task", config.get("task", DEFAULT_TASK))
    # Types are checked by the settings dataclasses, not by the values in the recipe.
    with config.unlocked() if is_recipe else nullcontext(), config.ignore_type() if is_recipe else nullcontext():
        for key, text in overrides:
            value = read_value(key, text, task)
            *path, name = key.split(".")
            block = config
            for step in path:
                if step not in block:
                    block[step] = {}
                block = block[step]
                if not hasattr(block, "items"):
                    raise ConfigError(step, f"the recipe sets it to {block!r}, but it is a block of settings")
            block[name] = value
    return _plain(config, "") if is_recipe else config


def _plain(config: "ConfigDict", path: str) -> dict[str, Any]:
    """Return the settings of a recipe as plain nested dictionaries, with references resolved."""
    from ml_collections.config_dict import RequiredValueError

    result = {}
    for name in config:
        key = f"{path}.{name}" if path else str(name)
        try:
            value = config[name]
        except RequiredValueError:
            raise ConfigError(key, "the recipe requires a value", f"give --config.{key}=VALUE") from None
        result[name] = _plain(value, key) if hasattr(value, "items") else value
    return result


def read_value(key: str, text: str, task: str = "") -> str | int | float | bool:
    """Return the value of ``text`` for the setting ``key``.

    Raises ConfigError for an unknown key, or text that is not a value of the setting.
    """
    kind = type_of(key, task)
    try:
        return BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ConfigError(key, f"expected {EXPECTED[kind]}, found {text!r}") from None


def spelled_out(key: str, text: str) -> list[tuple[str, str]]:
    """Return ``("mesh", "data=-1,fsdp=4")`` as ``mesh.data`` and ``mesh.fsdp``; only blocks are split."""
    if "=" not in text or block_at(key) is None:
        return [(key, text)]
    parts = (part.strip().partition("=") for part in text.split(","))
    return [(f"{key}.{name}", value) for name, _, value in parts]


def resolve(
    source: str, overrides: Iterable[tuple[str, str]] = (), changes: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """Return the settings of a recipe (``configs/multi30k.py:tiny``) or of a run directory, with overrides applied.

    A run directory is untrusted: its cache is replaced by the default, and an address in ``init.run`` is marked as not to be
    opened. Raises ConfigError for any fault in the recipe, its settings or the overrides. ``changes``: overrides after these;
    where they select another part, the settings of the replaced one are left out.
    """
    changes = changes or {}
    overrides = [*overrides, *changes.items()]
    values = apply_overrides(stated_settings(source, overrides), overrides)
    if changes and PARTS in values:
        selected = with_selected_parts(values, ())[PARTS]
        kinds = {name: kind_with_settings(name) for name in values[PARTS]}
        replaced = {name for name, kind in kinds.items() if kind and setting_of(kind) in changes}
        replaced -= {key.split(".")[1] for key in changes if key.startswith(f"{PARTS}.")}
        values[PARTS] = {name: each for name, each in values[PARTS].items() if name in selected or name not in replaced}
    return from_dict(values)


def stated_settings(source: str, overrides: Iterable[tuple[str, str]] = ()) -> "dict[str, Any] | ConfigDict":
    """Return the settings that a recipe sets, or all settings of a run directory; raises ConfigError as ``resolve`` does.

    ``overrides`` are not applied, but may choose the variant of a recipe (see ``with_own_text``).
    """
    if is_run_directory(source):
        saved = without_its_cache(load_run_config(source))
        return with_selected_parts(to_dict(replace(saved, init=saved.init.of_a_run())), overrides)
    return load_recipe(with_own_text(source, overrides))


def with_selected_parts(values: dict[str, Any], overrides: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the settings of a run without parts that it no longer selects after ``overrides``."""
    if PARTS not in values:
        return values
    others = {name: block for name, block in values.items() if name != PARTS}
    changes = [(key, text) for key, text in overrides if not key.startswith(f"{PARTS}.")]
    selected = from_dict(apply_overrides(others, changes)).parts
    return others | {PARTS: {name: settings for name, settings in values[PARTS].items() if name in selected}}


def is_run_directory(source: str) -> bool:
    """Whether ``--config`` names a run directory, or its ``config.json``, not a recipe.

    A folder with a bare name, ``text``, is a run only if it has a ``config.json``, since it may be a folder of data.
    """
    path = as_path(source)
    if in_store(path):
        return True
    if path.is_dir() and path == Path(path.name):
        return (path / CONFIG_FILE).is_file()
    return path.is_dir() or source.endswith(".json")


def load_run_config(path: str | Path) -> ExperimentConfig:
    """Return the settings of a run, from its directory or its ``config.json``.

    Raises ConfigError, with the file, when it does not exist or does not hold the settings of a run.
    """
    file = as_path(path)
    if file.suffix != ".json" if in_store(file) else file.is_dir():
        file = file / CONFIG_FILE
    try:
        return from_json(parse_json(file.read_text(encoding="utf-8")))
    except StoreError:
        raise
    except FileNotFoundError as error:
        if file.name == CONFIG_FILE:
            raise ConfigError(f"{file.parent}", f"not the directory of a run: it has no {CONFIG_FILE}") from None
        raise ConfigError(f"{file}", f"not the settings of a run: {error.strerror}") from None
    except PluginNeeded as error:
        raise ConfigError(str(file), f"{error}{_missing_plugins(file.with_name('run.json'))}") from None
    except ConfigError as error:
        raise ConfigError(str(file), str(error)) from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(str(file), f"not the settings of a run: {problem}") from None


def _missing_plugins(starts: Path) -> str:
    """Return the flags of the plugins that the run loaded at its last start, and this process did not."""
    try:
        files = list(parse_json(starts.read_text(encoding="utf-8"))[-1]["plugins"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    loaded = {Path(file).name for file in loaded_plugins()}
    missing = [f"--plugin={shlex.quote(file)}" for file in files if Path(file).name not in loaded]
    return f"; the run had {' '.join(missing)}" if missing else ""


def without_its_cache(config: ExperimentConfig) -> ExperimentConfig:
    """Return the settings of a run with the default cache: its own may hold untrusted compiled programs.

    An address of a store is marked as not to be opened.
    """
    data = replace(config.data, cache_directory=SourceConfig.cache_directory, store=unasked(config.data.store))
    return replace(config, data=data)


def on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    """Return the settings of a run for using its model on these devices, with the default cache and without downloads."""
    model, data = config.model, config.data
    if model.has_attention_backend:
        model = replace(model, attention_backend="auto")
    data = replace(data.only_reading(), cache_directory=SourceConfig.cache_directory, store=unasked(data.store))
    return replace(config, mesh=MeshConfig(), model=model, data=data)


USABLE = ("decoding.", "mesh.", "evaluation.metrics", "evaluation.bleu_tokenizer")


def config_for_use(path: str | Path, overrides: Iterable[tuple[str, str]] = ()) -> ExperimentConfig:
    """Return the settings of a run for using its model on any devices, with overrides applied.

    Raises ConfigError when there is no run, or an override is not a setting of decoding, scores, devices or data location.
    """
    return used_settings(load_run_config(path), overrides)


def used_settings(trained: ExperimentConfig, overrides: Iterable[tuple[str, str]]) -> ExperimentConfig:
    """Return the settings that ``config_for_use`` makes of those of a run."""
    saved, overrides = on_any_devices(trained), list(overrides)
    if not overrides:
        return saved
    config = from_dict(apply_overrides(with_selected_parts(to_dict(saved), overrides), overrides))
    data = [f"data.{name}" for name, each in declared(type(saved.data)).items() if each.facts.get("changeable")]
    for key, before, _ in difference(saved, config):
        if not any(each.startswith(USABLE) or each in data for each in selecting(key, saved, config)):
            usable = ", ".join((*data, *USABLE[2:]))
            raise ConfigError(f"--config.{key}", f"the run has {before!r}; only decoding, mesh, {usable} can change")
    return config


def budget_of(source: str, overrides: Sequence[tuple[str, str]]) -> str | None:
    """Return the ``BUDGET`` of a recipe, for all variants or by variant; None without one, and for a run."""
    if is_run_directory(source):
        return None
    recipe, _, variant = with_own_text(source, overrides).partition(":")
    budget = names_in_file(find_recipe(recipe)).get("BUDGET")
    budget = budget.get(variant) if isinstance(budget, Mapping) else budget
    return None if budget is None else str(budget)

"""The architecture: layers, doors of heavy dependencies, import cycles, names. Read from the
source."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from process_environment import process_environment

from transformer_jax.registry.index import own_indexes, own_parts
from transformer_jax.registry.kinds import KINDS
from transformer_jax.registry.plugins import registered

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "transformer_jax"
FILES = sorted(PACKAGE.rglob("*.py"))

# What a folder (or a module, where it has rules of its own) may import from the package, besides
# itself. The order is that of the floors; a name is looked up by its longest prefix.
FOUNDATION = {"array_types", "sequence_types", "errors", "files", "private_modules", "registry", "config"}
FLOORS: dict[str, set[str]] = {
    "errors": set(),
    "notebook": set(),
    "private_modules": set(),
    "array_types": set(),
    "sequence_types": {"array_types"},
    "precision": {"array_types"},
    "files": {"errors", "private_modules"},
    "registry": {"errors"},
    "config": {"errors", "files", "notebook", "registry"},
    "runtime": FOUNDATION,
    "data": FOUNDATION | {"runtime.background", "runtime.startup"},
    "layers": FOUNDATION | {"precision"},
    "models": FOUNDATION | {"layers", "precision", "runtime.hardware"},
    "training": FOUNDATION | {"precision", "layers.mesh_axes", "runtime.hardware"},
    "decoding": FOUNDATION | {"runtime.kept_programs"},
    "evaluation": FOUNDATION | {"data.tokenizers", "decoding"},
    "run_directory": FOUNDATION | {"runtime"},
    "checkpoints": FOUNDATION | {"training.state", "runtime", "run_directory"},
}
# From here on each floor may use every one below it; the core imports neither the kit nor a tool.
for floor in ("tasks", "runs", "commands", "tools"):
    FLOORS[floor] = set(FLOORS)
FLOORS["api"] = FLOORS["commands"]
FLOORS["kit"] = FOUNDATION | {"layers", "models", "precision", "training"}
FLOORS["__main__"] = {"config", "commands", "errors", "files", "registry", "runtime.startup"}

# Where a heavy dependency may come in. jax is free from array_types on, but config/ does without
# it.
DOORS: dict[str, set[str]] = {
    "ml_collections": {"config", "api.training"},
    "tensorflow": {"data.tensorflow_runtime"},
    "tensorflow_datasets": {"data.tfds_source"},
    "sentencepiece": {"data.tokenizers"},
    "flax": {"layers", "models", "kit"},
    "optax": {"training", "kit"},
    "orbax": {
        "checkpoints.manager",
        "checkpoints.reader",
        "checkpoints.disk",
        "checkpoints.bucket_checkpoints",
        "private_modules",
    },
    "etils": {"checkpoints.reader", "files.store_path", "private_modules"},
    **{name: {"evaluation"} for name in ("sacrebleu", "sacremoses")},
    "matplotlib": {"tools.pictures"},
    "optuna": {"tools.study.optuna_study", "tools.study.worker"},
    "rich": {"runs.progress"},
    "sqlalchemy": {"tools.study.optuna_study"},
    "tensorboardX": {"runs.trackers"},
    "gensim": {"tools.word_vectors.keyed_vectors"},
    "sklearn": {"tools.word_vectors.projection"},
    "scipy": {"tools.study.seed_statistics"},
    "threadpoolctl": {"tools.word_vectors.projection"},
    "ctranslate2": {"tools.interop.ctranslate2"},
    "fsspec": {"files.store_path"},
    "tensorstore": {"data.token_store"},
    "safetensors": {"tools.interop.weight_files"},
    "torch": {"tools.interop.weight_files"},
    "transformers": {"tools.interop.hugging_face"},
    "py3langid": {"tools.data_check.line_languages"},
}

ENTRY_POINT_GROUPS = {"transformer_jax.plugins", "transformer_jax.tools"}
TOOLS = {index.tool: index for index in own_indexes() if index.tool}

RUN_CODE = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


def module_name(file: Path) -> str:
    """``transformer_jax/data/pipeline.py`` is ``data.pipeline``; a package is named like its
    folder."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module with its line, inside functions too; ``from a import b`` gives ``a``
    and ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def named_modules(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The modules of the package that strings name, with their lines:
    ``"transformer_jax.tasks.task:Task"``.

    Of an f-string, its beginning: ``f"transformer_jax.tools.interop.{name}"``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = re.fullmatch(r"(transformer_jax(?:\.\w+)+)(?::\w+|\.)?", node.value)
            if match and node.value not in ENTRY_POINT_GROUPS:
                yield match[1], node.lineno


def tool_of(module: str) -> str:
    """The name of the tool that a module belongs to; empty outside of tools."""
    folder, _, rest = module.partition(".")
    return rest.partition(".")[0] if folder == "tools" else ""


def within(name: str, allowed: set[str]) -> bool:
    """Whether a dotted name is one of ``allowed`` or inside it."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def floor_violations(module: str, tree: ast.AST) -> list[str]:
    """The imports of a module that reach up, or sideways into another floor."""
    owner = module if module in FLOORS else module.partition(".")[0]
    if not owner:
        return []
    allowed = FLOORS[owner] | {owner.partition(".")[0]}
    if tool := tool_of(module):
        # Another tool only where its index needs it.
        needs = {
            *TOOLS[tool].needs,
            *(name for entry in TOOLS[tool].commands.values() for name in entry.get("needs", [])),
        }
        allowed = FLOORS["tools"] | {f"tools.{name}" for name in (tool, *needs)}
    found = []
    for name, line in [*imported(tree), *named_modules(tree)]:
        if within(name, {"experiments", "tests"}):
            found.append(f"line {line}: the package must not import {name}")
        if name.startswith("."):
            found.append(f"line {line}: write the whole name, transformer_jax...., so that a reader can search for it")
        if not name.startswith("transformer_jax."):
            continue
        inner = name.removeprefix("transformer_jax.")
        # `from transformer_jax.data import tokenizers` also names the folder: it counts by what is
        # taken from it.
        is_way = any(prefix.startswith(f"{inner}.") for prefix in allowed)
        if not within(inner, allowed) and not is_way and inner != "__version__":
            found.append(f"line {line}: {owner} must not import {inner}")
    return found


def door_violations(module: str, tree: ast.AST) -> list[str]:
    """The heavy dependencies that a module imports without being their door."""
    found = []
    for name, line in imported(tree):
        dependency = name.partition(".")[0]
        if dependency in DOORS and not within(module, DOORS[dependency]):
            found.append(f"line {line}: {dependency} belongs in {', '.join(sorted(DOORS[dependency]))}")
        if dependency in ("jax", "jaxtyping") and within(module, {"config"}):
            found.append(f"line {line}: config/ does without {dependency}: errors come before JAX starts")
    return found


def violations(rule: Callable[[str, ast.AST], list[str]]) -> list[str]:
    return [f"{file.relative_to(ROOT)}: {found}" for file in FILES for found in rule(module_name(file), parse(file))]


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions and under TYPE_CHECKING count too: a cycle that Python does not see
    still has to be read."""
    files = {f"transformer_jax.{module_name(file)}": file for file in FILES}
    named = lambda tree: {name for name, _ in (*imported(tree), *named_modules(tree))}  # noqa: E731
    graph = {name: named(parse(file)) & files.keys() - {name} for name, file in files.items()}
    # Raises CycleError, which names the modules.
    TopologicalSorter(graph).prepare()


def test_no_folder_imports_itself_by_way_of_others():
    """Folders, each tool and each module of the root, with imports in functions and modules that
    strings name."""

    def folder(module: str) -> str:
        return f"tools.{tool_of(module)}" if tool_of(module) else module.partition(".")[0]

    graph: dict[str, set[str]] = {}
    for file in FILES:
        tree, own = parse(file), folder(module_name(file))
        for name, _ in (*imported(tree), *named_modules(tree)):
            inner = name.removeprefix("transformer_jax.")
            if inner != name and own and folder(inner) != own:
                graph.setdefault(own, set()).add(folder(inner))
    # Raises CycleError, which names the folders.
    order = [*TopologicalSorter(graph).static_order()]
    assert order.index("config") < order.index("layers") < order.index("runs") < order.index("commands")


def test_imports_only_lower_floors_and_heavy_dependencies_by_their_door():
    assert violations(floor_violations) + violations(door_violations) == []
    for module, source in {
        "layers.attention": "from transformer_jax.models import build",
        "runs.trainer": "def later():\n    import transformer_jax.tools.pictures.curves",
        "registry.plugins": 'import_module("transformer_jax.layers.attention")',
        "config.tasks": 'name = f"transformer_jax.tasks.{task}"',
        "tools.pictures.curves": "from transformer_jax.tools.study.run_summary import summarize",
        "tasks.task": "from transformer_jax.kit import rope",
    }.items():
        assert len(floor_violations(module, ast.parse(source))) > 0, module
    assert door_violations("runs.trainer", ast.parse("import matplotlib.pyplot")) != []
    assert floor_violations("tools.conform.costs", ast.parse("import transformer_jax.tools.preflight.hlo_text")) == []


def strings_that_name_a_tool(module: str, tree: ast.AST) -> list[str]:
    """Strings in the core, without docstrings, with the name of a tool or of one of its parts."""
    if within(module, {"tools"}):
        return []
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [
        f"line {node.lineno}: {node.value}"
        for node in strings
        if id(node) not in documentation and re.search(rf"(?<![a-z])({'|'.join(TOOLS)})(?![a-z])", node.value)
    ]


def test_the_core_names_no_tool_in_a_string():
    assert violations(strings_that_name_a_tool) == []
    tool = next(iter(TOOLS))
    strings = strings_that_name_a_tool("runs.run", ast.parse(f'"""{tool}"""\nname = "tools.{tool}"'))
    assert strings == [f"line 2: tools.{tool}"]


def test_every_command_door_and_part_of_an_index_is_there():
    for index in own_indexes():
        for name, entry in index.commands.items():
            assert callable(index.load(name, entry["function"]).run), name
        for door, entries in index.doors.items():
            assert all(index.load(door, target) is not None for target in entries.values()), door
    for (kind, name), listed in own_parts().items():
        assert kind in KINDS, listed.owner.file
        assert registered(kind)[name] is not None


ROOT_MODULES = {
    "__init__",
    "__main__",
    "array_types",
    "errors",
    "notebook",
    "precision",
    "private_modules",
    "sequence_types",
}


def test_the_package_root_holds_what_everything_shares_and_names_say_what_is_inside():
    assert {file.stem for file in PACKAGE.glob("*.py")} == ROOT_MODULES
    parts = {part.removesuffix(".py") for file in FILES for part in file.relative_to(PACKAGE).parts}
    assert parts.isdisjoint(VAGUE_NAMES)


CORE = {"config", "data", "layers", "models", "training", "decoding", "evaluation", "checkpoints", "tasks", "runs"}
CORE |= {"files", "registry", "run_directory", "runtime"}


def defined_names(tree: ast.Module) -> Iterator[str]:
    """The public classes, functions and constants that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            yield from (each.id for each in names if isinstance(each.ctx, ast.Store))


def test_one_name_in_the_core_is_one_thing():
    core = {name: parse(file) for file in FILES if within(name := module_name(file), CORE | ROOT_MODULES)}
    found: dict[str, list[str]] = {}
    for module, tree in core.items():
        for name in set(defined_names(tree)):
            found.setdefault(name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1 and name[0] != "_"} == {}
    assert {"A", "B", "C", "D"} == set(defined_names(ast.parse("A, B = 1, 2\nC: int = 3\nclass D: ...\nA.x = 5")))


def runs_what_it_reads(module: str, tree: ast.AST) -> list[str]:
    """Imports and calls with which content of a file could run code."""
    found = [f"line {line}: {name}" for name, line in imported(tree) if name.partition(".")[0] in RUN_CODE]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                found.append(f"line {node.lineno}: {node.func.id}")
            found += [f"line {node.lineno}: {word.arg}" for word in node.keywords if word.arg == "allow_pickle"]
    return found


def looks_at_its_name(module: str, tree: ast.AST) -> list[str]:
    """Uses of ``self.path`` and ``self.name`` in layers and models: scan and rematerialization
    change both."""
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and within(module, {"layers", "models"})
    ]
    return [f"line {node.lineno}" for node in found if ast.unparse(node) in ("self.path", "self.name")]


# The comparison of translations is of one task, sentence by sentence.
OF_EVERY_TASK = {"runs", "training", "checkpoints", "tasks.task", "tasks.trained_run", "tasks.run_tokenizers"}
OF_EVERY_TASK |= {"tasks.new_tokenizers"}
STUDY = {f"tools.study.{file.stem}" for file in (PACKAGE / "tools/study").glob("*.py")}
OF_EVERY_TASK |= {"tools.preflight", "tools.launching"} | STUDY - {"tools.study.translation_comparison"}
COMMANDS = {entry["function"].partition(":")[0] for index in TOOLS.values() for entry in index.commands.values()}
NAMES_OF_TASKS = re.compile(r"(?<![a-z])(translation|language_model|bleu|chrf|bits_per_byte)", re.IGNORECASE)


def names_a_task(module: str, tree: ast.AST) -> list[str]:
    """Lines of code, without comments and docstrings, that know one task, in modules that serve
    every task."""
    if not within(module, OF_EVERY_TASK) or module.rpartition(".")[2] in COMMANDS:
        return []
    tree = ast.parse(ast.unparse(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return [line for line in ast.unparse(tree).splitlines() if NAMES_OF_TASKS.search(line)]


def test_code_of_every_task_names_none():
    assert violations(names_a_task) == []
    found = names_a_task("runs.run", ast.parse('"""BLEU"""\nx = 1  # bleu\nkey = "validation/bleu"'))
    assert found == ["key = 'validation/bleu'"]


def test_no_layer_computes_by_its_name():
    assert violations(looks_at_its_name) == []
    assert looks_at_its_name("layers.attention", ast.parse("self.path[-1]"))


def test_nothing_read_from_disk_can_run_code():
    assert violations(runs_what_it_reads) == []
    for source in ("import pickle", "eval(text)", "np.load(file, allow_pickle=True)"):
        assert runs_what_it_reads("", ast.parse(source))


# A translated sentence needs none of these.
NOT_FOR_A_SENTENCE = ", ".join(
    f'"transformer_jax.{name}"'
    for name in (
        *("models.rnn", "models.decoder_only", "layers.modified_attention", "layers.attention_backends"),
        *(
            "data.token_store",
            "data.synthetic.grammar",
            "data.tfds_source",
            "files.store_path",
            "checkpoints.bucket_checkpoints",
        ),
        *("training.losses", "models.inspection", "evaluation", "tools", "config.language_model", "notebook"),
    )
)
WITHOUT_TENSORFLOW = {
    "checkpoints",
    "config",
    "files",
    "data",
    "decoding",
    "evaluation",
    "models",
    "training",
    "tasks",
    "commands",
}


def test_a_trained_translator_loads_no_library_of_training_and_inference_no_tensorflow():
    modules = [f"transformer_jax.{name}" for file in FILES if within(name := module_name(file), WITHOUT_TENSORFLOW)]
    program = f"""
import importlib, sys
import transformer_jax.commands.translate, transformer_jax.tasks.trained_run, transformer_jax.tasks.translation.translating
print(*{{{NOT_FOR_A_SENTENCE}}} & sys.modules.keys())
import transformer_jax.tasks.translation.translation_task
print(*{{"optax", "matplotlib"}} & sys.modules.keys())
for name in {modules!r}: importlib.import_module(name)
print(*{{"tensorflow", "tensorflow_datasets"}} & sys.modules.keys())
"""
    printed = subprocess.check_output([sys.executable, "-c", program], env=process_environment(), text=True)
    assert printed == "\n\n\n"

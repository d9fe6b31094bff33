"""Block diagram of a model, from its module calls (Vaswani et al. 2017, figure 1)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import jax

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.models.inspection import ModuleCall, module_calls
from transformer_jax.runtime.hardware import DeviceSettings, resolve_for_device
from transformer_jax.sequence_types import batch_shape
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.pictures.canvas import FAINT_INK, FONT_FAMILIES, HAIRLINE, INK
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import count_parameters, param_shapes

# Sizes of the abstract batch. No width of a model is like them, so that a shape shows its side.
ROWS = 1009
SOURCE = 11
TARGET = 13
LETTERS = {ROWS: "B", SOURCE: "S", TARGET: "T"}
# Methods of a shared matrix, with a block each.
ROLES = {"embed": "embedding", "logits": "output projection"}
WITHOUT_A_BLOCK = {"Dropout"}
# Pixels of a block and its frame.
BLOCK_HEIGHT = 40
GAP = 18
PADDING = 14
TITLE_HEIGHT = 20
# Pixels of a column and of the page.
WIDTH = 340
COLUMN_GAP = 70
MARGIN = 30
TOP = 60
TITLE_LETTER = 9.5
# Pixels of a residual connection.
BYPASS = 12
PLUS_RADIUS = 6
FILL = "#eef5f8"
FRAME_FILL = "#fbfcfd"
LINE = "#5a6b7a"


@dataclass(frozen=True)
class Block:
    """A module: a box, or a frame around its ``inner`` modules, the lowest first.

    Attributes:
        role: The use of a shared matrix, which has a block for each use.
        shape: The shape of the first output.
        leaves: Sizes of parameters by path.
        repeats: Number of equal modules in a stack, of which the last is drawn.
        is_shared: Whether all parameters are in earlier blocks.
    """

    path: tuple[str, ...]
    kind: str
    role: str
    shape: tuple[int, ...]
    leaves: Mapping[tuple[str, ...], int]
    inner: tuple["Block", ...] = ()
    repeats: int = 1
    is_shared: bool = False

    @property
    def key(self) -> str:
        """The name of the block in links."""
        return "/".join(self.path)

    @property
    def name(self) -> str:
        """The name without the layer number."""
        return re.sub(r"_\d+$", "", self.path[-1])

    @property
    def title(self) -> str:
        """The class of a residual connection, or the name of another module."""
        if self.kind.endswith("Residual"):
            return self.kind
        name = self.role or self.name.replace("_", " ")
        return f"+ {name}" if name.endswith("positions") else name

    @property
    def details(self) -> str:
        return f"{self.kind}  [{' × '.join(LETTERS.get(size, f'{size:,}') for size in self.shape)}]"

    @property
    def parameters(self) -> int:
        return sum(self.leaves.values())

    @property
    def count(self) -> str:
        return "shared" if self.is_shared else f"{self.parameters:,} parameters" if self.leaves else ""

    @property
    def sum_before(self) -> int | None:
        """The index of the block above the sum of a residual connection: the norm of post-norm."""
        if not self.kind.endswith("Residual"):
            return None
        last = len(self.inner) - 1
        return last if self.inner[last].path[-1] == "norm" else last + 1

    @property
    def is_beside(self) -> bool:
        """Whether it reads the input of the block below: a direction of a recurrent encoder."""
        return self.name.startswith("backward")

    def form(self) -> tuple[object, ...]:
        """Return a value that is equal for the layers of a stack."""
        inner = tuple(block.form() for block in self.inner)
        return self.name, self.kind, self.role, self.shape, self.parameters, inner

    def walk(self) -> Iterator["Block"]:
        """Yield this block and all blocks inside it."""
        yield self
        for block in self.inner:
            yield from block.walk()


class Architecture(NamedTuple):
    """Blocks of both sides, the lowest first, links between them, and number of parameters."""

    source: tuple[Block, ...]
    target: tuple[Block, ...]
    links: tuple[tuple[str, str], ...]
    parameters: int


def architecture(config: ExperimentConfig) -> Architecture:
    """Return the blocks of a model with the largest vocabulary, by abstract evaluation."""
    config = resolve_for_device(config, lambda: DeviceSettings("float32", 4))
    if config.task not in ("translation", "language_model"):
        raise ConfigError("config", f"task={config.task} cannot be drawn", "give one of translation or language_model")
    objective = objective_of(config, make_mesh(config.mesh))
    params = param_shapes(objective.init_params)
    batch = batch_shape(ROWS, SOURCE, TARGET)
    inputs = batch if config.task == "translation" else (batch.target,)
    leaves = {tuple(key.key for key in path): leaf.size for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    sides: tuple[list[Block], list[Block]] = ([], [])
    for block in _merged(module_calls(objective.model, params, *inputs).inner, leaves):
        is_target = TARGET in block.shape or (bool(sides[1]) and SOURCE not in block.shape)
        sides[is_target].append(block)
    seen: set[tuple[str, ...]] = set()
    source, target = (tuple(_stacked(side, seen)) for side in sides)
    return Architecture(source, target, tuple(_links(source, target)), count_parameters(params))


def draw_architecture(config: ExperimentConfig, source: str, path: Path) -> str:
    """Draw the model of ``source`` as an SVG, and return its numbers of parameters and blocks."""
    drawn = architecture(config)
    columns = [side for side in (drawn.source, drawn.target) if side]
    draw_block_diagram(columns, drawn.links, path, title=f"{source}: {drawn.parameters:,} parameters")
    blocks = sum(1 for side in columns for block in side for _ in block.walk())
    return f"{source}: {drawn.parameters:,} parameters, {blocks} blocks"


def _merged(calls: Sequence[ModuleCall], leaves: Mapping[tuple[str, ...], int]) -> list[Block]:
    """Merge the calls of a module into one block, at the last of them."""
    merged: dict[tuple[tuple[str, ...], str, object], list[ModuleCall]] = {}
    for call in _in_residuals(calls):
        if call.kind not in WITHOUT_A_BLOCK and call.shape is not None:
            role = ROLES.get(call.method, "")
            key = call.path, role, call.shape if role else None
            merged[key] = [*merged.pop(key, []), call]
    paths = {path for path, *_ in merged}
    blocks = []
    for (path, role, _), same in merged.items():
        if any(path[:length] in paths for length in range(1, len(path))):
            continue  # Shown inside that module.
        inner = _merged(list(_inner(same, path)), leaves)
        sizes = {leaf: size for leaf, size in leaves.items() if leaf[: len(path)] == path}
        for block in inner:
            sizes |= block.leaves
        blocks.append(Block(path, same[-1].kind, role, same[-1].shape or (), sizes, tuple(inner)))
    return blocks


def _in_residuals(calls: Sequence[ModuleCall]) -> list[ModuleCall]:
    """Nest the calls between ``before`` and ``after`` of a residual connection in it."""
    nested: list[ModuleCall] = []
    for call in calls:
        starts = [
            index for index, earlier in enumerate(nested) if (earlier.path, earlier.method) == (call.path, "before")
        ]
        if call.method == "after" and starts:
            before, *inside = nested[starts[-1] :]
            nested[starts[-1] :] = [replace(call, inner=[*before.inner, *inside, *call.inner])]
        else:
            nested.append(call)
    return nested


def _inner(calls: Sequence[ModuleCall], path: tuple[str, ...]) -> Iterator[ModuleCall]:
    for call in calls:
        for inside in call.inner:
            yield from _inner([inside], path) if inside.path == path else [inside]


def _stacked(blocks: Sequence[Block], seen: set[tuple[str, ...]]) -> Iterator[Block]:
    """Join consecutive equal blocks. ``seen``: paths of parameters in earlier blocks."""
    for _, group in groupby(blocks, Block.form):
        *_, last = same = list(group)
        is_shared = bool(last.leaves) and last.leaves.keys() <= seen
        inner = tuple(_stacked(last.inner, seen))
        seen.update(*(block.leaves for block in same))
        yield replace(last, inner=inner, repeats=len(same), is_shared=is_shared)


def _links(source: Sequence[Block], target: Sequence[Block]) -> Iterator[tuple[str, str]]:
    """Yield links: encoded source to cross attention, or final state to decoder."""
    encoded = [block for block in source if SOURCE in block.shape]
    for block in (inner for outer in target for inner in outer.walk()):
        if encoded and block.path[-1] == "cross_attention":
            yield encoded[-1].key, block.key
    if source and SOURCE not in source[-1].shape:
        yield source[-1].key, next(block for block in target if block.inner).key


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height


def draw_block_diagram(
    columns: Sequence[Sequence[Block]], links: Sequence[tuple[str, str]], path: str | Path, *, title: str
) -> Path:
    """Write an SVG of columns of blocks from bottom to top, and return the path.

    ``links``: pairs of a key of the first column and a key of the second.
    """
    heights = [_stack_height(column) for column in columns]
    base = TOP + max(heights) + GAP
    boxes: dict[str, Box] = {}
    parts: list[str] = []
    for number, column in enumerate(columns):
        left = MARGIN + number * (WIDTH + COLUMN_GAP)
        parts += _stack(column, Box(left, base - heights[number], WIDTH, heights[number]), boxes)
    for lane, (start, end) in enumerate(links):
        x = MARGIN + WIDTH + COLUMN_GAP * (0.35 + 0.25 * (lane % 2))
        begin, above = boxes[start], boxes[start].top - GAP / 2
        height = boxes[end].top + boxes[end].height / 2
        bend = [(begin.middle, begin.top), (begin.middle, above), (x, above), (x, height)]
        parts.append(_arrow([*bend, (boxes[end].left, height)]))
    columns_width = len(columns) * (WIDTH + COLUMN_GAP) - COLUMN_GAP
    width = 2 * MARGIN + max(columns_width, TITLE_LETTER * len(title))
    write_whole(Path(path), _document("".join(parts), width, base + MARGIN, title))
    return Path(path)


def _height(block: Block) -> float:
    if not block.inner:
        return BLOCK_HEIGHT
    return _stack_height(block.inner) + 2 * PADDING + TITLE_HEIGHT


def _stack_height(blocks: Sequence[Block]) -> float:
    return sum(map(_height, blocks)) + GAP * (len(blocks) - 1)


def _stack(blocks: Sequence[Block], outer: Box, boxes: dict[str, Box]) -> Iterator[str]:
    """Yield the blocks of a column or frame, from bottom to top, and the arrows between them."""
    bottom = outer.bottom
    for number, block in enumerate(blocks):
        box = Box(outer.left, bottom - _height(block), outer.width, _height(block))
        boxes.setdefault(block.key, box)
        yield from _drawn(block, box, boxes)
        if number < len(blocks) - 1 and not blocks[number + 1].is_beside:
            yield _arrow([(box.middle, box.top), (box.middle, box.top - GAP)])
        bottom = box.top - GAP


def _drawn(block: Block, box: Box, boxes: dict[str, Box]) -> Iterator[str]:
    if block.repeats > 1:
        # Two edges behind it show a stack.
        for step in (8, 4):
            behind = Box(box.left + step, box.top - step, box.width, box.height)
            yield _rectangle(behind, FRAME_FILL if block.inner else FILL)
    yield _rectangle(box, FRAME_FILL if block.inner else FILL)
    times = f"{block.repeats} × " if block.repeats > 1 else ""
    x, y = box.left + 10, box.top + 17
    yield _text(x, y, times + block.title, size=12, weight="bold")
    yield _text(box.left + box.width - 10, y, block.count, size=10, color=FAINT_INK, anchor="end")
    if not block.inner:
        yield _text(x, y + 15, block.details, size=10, color=FAINT_INK)
        return
    inside = Box(
        box.left + PADDING + BYPASS,
        box.top + TITLE_HEIGHT + PADDING,
        box.width - 2 * PADDING - BYPASS,
        box.height - TITLE_HEIGHT - 2 * PADDING,
    )
    yield from _stack(block.inner, inside, boxes)
    if block.sum_before is not None:
        yield from _bypass(block, inside)


def _bypass(block: Block, inside: Box) -> Iterator[str]:
    """Yield the residual connection, on the left of inner blocks to a plus sign above them."""
    below = block.inner[: block.sum_before]
    plus = inside.bottom - _stack_height(below) - GAP / 2
    x, bottom = inside.left - BYPASS, inside.bottom + PADDING / 2
    yield _arrow([(inside.middle, bottom), (x, bottom), (x, plus), (inside.middle - PLUS_RADIUS, plus)])
    yield f'<circle cx="{inside.middle}" cy="{plus}" r="{PLUS_RADIUS}" fill="white" stroke="{LINE}"/>'
    yield _text(inside.middle, plus + 4, "+", size=12, anchor="middle")


def _rectangle(box: Box, fill: str) -> str:
    position = f'x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"'
    return f'<rect {position} rx="5" fill="{fill}" stroke="{HAIRLINE}"/>'


def _arrow(points: Sequence[tuple[float, float]]) -> str:
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="1.2" marker-end="url(#tip)"/>'


def _text(
    x: float, y: float, words: str, *, size: int, weight: str = "normal", color: str = INK, anchor: str = "start"
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{color}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def _document(content: str, width: float, height: float, title: str) -> str:
    tip = f'<path d="M0,0 L7,3.5 L0,7 z" fill="{LINE}"/>'
    marker = f'<marker id="tip" markerWidth="7" markerHeight="7" refX="6.5" refY="3.5" orient="auto">{tip}</marker>'
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    heading = _text(MARGIN, 32, title, size=15, weight="bold")
    background = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT_FAMILIES[0]}, sans-serif">\n'
        f"<defs>{marker}</defs>\n{background}\n{heading}\n{content}\n</svg>\n"
    )

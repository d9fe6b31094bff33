"""Blocks on top of each other in columns, as an SVG: the way figure 1 of Vaswani et al. 2017 draws a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.pictures.canvas import FAINT_INK, FONT_FAMILIES, HAIRLINE, INK

BLOCK_HEIGHT, GAP, PADDING, TITLE_HEIGHT = 40, 18, 14, 20
WIDTH, COLUMN_GAP, MARGIN, TOP = 340, 70, 30, 60
TITLE_LETTER = 9.5
BYPASS, PLUS_RADIUS = 12, 6
FILL, FRAME_FILL, LINE = "#eef5f8", "#fbfcfd", "#5a6b7a"


@dataclass(frozen=True)
class Block:
    """A box, or with ``inner`` blocks, the lowest first, a frame around them.

    ``key`` names it for links. ``count`` stands on its right, ``details`` below its title where it is no frame. ``repeats``
    above 1: a stack of so many. ``sum_before``: the input of the frame is also led around its inner blocks and added to what
    enters the block of that number. ``is_beside``: it reads what the block below it reads, not what that one returns.
    """

    key: str
    title: str
    details: str
    count: str = ""
    inner: tuple["Block", ...] = ()
    repeats: int = 1
    sum_before: int | None = None
    is_beside: bool = False

    def walk(self) -> Iterator["Block"]:
        """This block and all inside it."""
        yield self
        for block in self.inner:
            yield from block.walk()


@dataclass(frozen=True)
class Box:
    """A place: left, top, width and height in pixels."""

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
    """Writes the columns side by side, each from its lowest block to its highest, and returns the path.

    ``links`` lead from the top of a block of the first column to blocks of the second, by their keys.
    """
    heights = [_stack_height(column) for column in columns]
    base = TOP + max(heights) + GAP
    boxes: dict[str, Box] = {}
    parts: list[str] = []
    for number, column in enumerate(columns):
        left = MARGIN + number * (WIDTH + COLUMN_GAP)
        parts += _stack(column, Box(left, base - heights[number], WIDTH, heights[number]), boxes)
    for lane, (start, end) in enumerate(links):
        parts.append(_link(boxes[start], boxes[end], MARGIN + WIDTH + COLUMN_GAP * (0.35 + 0.25 * (lane % 2))))
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


def _stack(blocks: Sequence[Block], place: Box, boxes: dict[str, Box]) -> Iterator[str]:
    """The blocks of a column or frame, from the bottom of ``place`` to its top, and the arrows between them."""
    bottom = place.bottom
    for number, block in enumerate(blocks):
        box = Box(place.left, bottom - _height(block), place.width, _height(block))
        boxes.setdefault(block.key, box)
        yield from _drawn(block, box, boxes)
        if number < len(blocks) - 1 and not blocks[number + 1].is_beside:
            yield _arrow([(box.middle, box.top), (box.middle, box.top - GAP)])
        bottom = box.top - GAP


def _drawn(block: Block, box: Box, boxes: dict[str, Box]) -> Iterator[str]:
    if block.repeats > 1:
        # Two more edges behind it: a stack of equal ones.
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
    """The residual connection: from below the inner blocks, on their left, to a plus sign above those that are added."""
    below = block.inner[: block.sum_before]
    plus = inside.bottom - _stack_height(below) - GAP / 2
    x, bottom = inside.left - BYPASS, inside.bottom + PADDING / 2
    yield _arrow([(inside.middle, bottom), (x, bottom), (x, plus), (inside.middle - PLUS_RADIUS, plus)])
    yield f'<circle cx="{inside.middle}" cy="{plus}" r="{PLUS_RADIUS}" fill="white" stroke="{LINE}"/>'
    yield _text(inside.middle, plus + 4, "+", size=12, anchor="middle")


def _link(start: Box, end: Box, lane: float) -> str:
    height = end.top + end.height / 2
    return _arrow(
        [
            (start.middle, start.top),
            (start.middle, start.top - GAP / 2),
            (lane, start.top - GAP / 2),
            (lane, height),
            (end.left, height),
        ]
    )


def _rectangle(box: Box, fill: str) -> str:
    place = f'x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"'
    return f'<rect {place} rx="5" fill="{fill}" stroke="{HAIRLINE}"/>'


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

"""Constituency trees, read from treebank files and written as sequences of symbols."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_jax.config import DataError
from transformer_jax.data.text_files import read_lines, visible

WORD = "XX"
TOP = "TOP"
TRACE = "-NONE-"
UNKNOWN = "<unk>"
POSITIONS = 64
"""Positions of words are written modulo this number."""
MAX_DEPTH = 300
ROOTS = ("", TOP, "ROOT", "S1", "VROOT")
CONSTITUENTS = (
    "S SBAR SBARQ SINV SQ SENT ADJP ADVP AP AVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP RRC UCP VP WHADJP WHADVP WHNP "
    "WHPP X IP CP CLP CS CNP CVP DP DVP LCP VN PN"
)
"""Labels of constituents in treebanks of several languages, no roots in a few trees."""
MANY_TREES = 50
EXAMPLE = "(S (NP (NNP Ann)) (VP (VBZ sleeps))), a bracket in a word -LRB- or -RRB-"
ESCAPES = {"(": "-LRB-", ")": "-RRB-"}
"""Brackets of the format, and how they are written in words."""
FURTHER_ESCAPES = {"{": "-LCB-", "}": "-RCB-", "[": "-LSB-", "]": "-RSB-", "/": r"\/", "*": r"\*"}
"""Other characters that some treebanks write in another form."""
_PARTS = re.compile(r"[()]|[^\s()]+", re.ASCII)
_FORMS = {form: character for character, form in (ESCAPES | FURTHER_ESCAPES).items()}
_FORM = re.compile("|".join(map(re.escape, _FORMS)))
_POSITION = re.compile(r"@\d+")
_TAGS = re.compile(r"(?<=.)[-=|].*")


def escaped(text: str) -> str:
    """Escape round brackets as ``-LRB-`` and ``-RRB-``, as trees have them."""
    return text.replace("(", ESCAPES["("]).replace(")", ESCAPES[")"])


def without_escapes(text: str) -> str:
    """Undo the escapes of treebanks: ``-LRB-`` is ``(``, and a slash has no backslash."""
    return _FORM.sub(lambda match: _FORMS[match[0]], text)


class Tree(NamedTuple):
    """A constituent with its children, or a word with its part of speech as label."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str = ""

    def __str__(self) -> str:
        """Return the tree on one line, with ``escaped`` words."""
        parts: list[str] = []
        stack: list[Tree | str] = [self]
        while stack:
            part = stack.pop()
            if isinstance(part, str):
                parts.append(part)
            elif part.word:
                parts.append(f" ({escaped(part.label)} {escaped(part.word)})")
            else:
                parts.append(f" ({part.label}")
                stack += [")", *reversed(part.children)]
        return "".join(parts)[1:]

    def leaves(self) -> Iterator["Tree"]:
        """Yield the words with their parts of speech, from left to right."""
        stack = [self]
        while stack:
            tree = stack.pop()
            if tree.word:
                yield tree
            stack += reversed(tree.children)

    def labels(self) -> set[str]:
        labels, stack = set[str](), [self]
        while stack:
            tree = stack.pop()
            labels |= {tree.label} if tree.children else set()
            stack += tree.children
        return labels

    @property
    def sentence(self) -> str:
        return " ".join(leaf.word for leaf in self.leaves())


class Located(NamedTuple):
    """A tree as a file has it, and the line where it begins."""

    tree: Tree
    line: int


def read_trees(path: Path) -> Iterator[Located]:
    """Stream the bracketed trees of a file, plain, ``.gz`` or ``.xz``."""
    return trees_of_lines(read_lines(path), path)


def trees_of_lines(lines: Iterable[str], name: str | Path, max_depth: float = MAX_DEPTH) -> Iterator[Located]:
    """Stream bracketed trees, several on a line, or one over several lines.

    Raises DataError, with ``name`` and line, for brackets that do not match, text outside of trees,
    empty constituents, words beside constituents, and more than ``max_depth`` open brackets.
    """
    # Label and word, children, and first line of every open bracket.
    open_trees: list[tuple[list[str], list[Tree], int]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{name}, line {number}"
        for part in _PARTS.findall(line):
            if part == "(":
                open_trees.append(([], [], number))
                if len(open_trees) > max_depth:
                    raise DataError(f"{where}: more than {max_depth} brackets are open; is a closing bracket missing?")
            elif not open_trees:
                raise DataError(f"{where}: '{visible(part)}' lies outside of a tree; a tree is written {EXAMPLE}")
            elif part == ")":
                names, children, begun = open_trees.pop()
                tree = _tree_of(names, children, f"{name}, line {begun}")
                if open_trees:
                    open_trees[-1][1].append(tree)
                else:
                    yield Located(tree, begun)
            elif open_trees[-1][1]:
                problem = f"the word '{visible(part)}' stands beside a constituent"
                raise DataError(f"{where}: {problem}; a tree is written {EXAMPLE}")
            else:
                open_trees[-1][0].append(part)
    if open_trees:
        problem = f"this tree lacks {len(open_trees)} closing brackets at the end of the file"
        raise DataError(f"{name}, line {open_trees[0][2]}: {problem}; a tree is written {EXAMPLE}")


def trees_of_texts(texts: Iterable[str]) -> list[Tree]:
    """Return trees as ``str`` writes them, one a text, of any depth."""
    return [tree for tree, _ in trees_of_lines(texts, "trees", math.inf)]


def _tree_of(names: list[str], children: list[Tree], where: str) -> Tree:
    """Return the tree between two brackets: a constituent, or a part of speech and its word."""
    if len(names) == 2 and not children:
        return Tree(names[0], (), names[1])
    if len(names) < 2 and children:
        return Tree("".join(names), tuple(children))
    text = " ".join([*names, *map(str, children)])[:80]
    problem = f"({visible(text)}) is neither a constituent nor a word with its part of speech"
    raise DataError(f"{where}: {problem}; a tree is written {EXAMPLE}")


def normalized(tree: Tree, counts: Counter[str], roots: Sequence[str] = ROOTS) -> Tree | None:
    """Return the tree as parsers learn it, or None if it consists of traces.

    Removes traces (``-NONE-``) and constituents of nothing else, functional tags and indices of
    labels (``NP-SBJ-1``, ``NP=2``, ``ADVP|PRT``), and all ``roots`` around one constituent. A root
    with several children or a word becomes TOP. ``counts`` counts removals.
    """
    cleaned = _without_traces(tree, counts)
    if cleaned is None:
        return None
    while cleaned.label in roots and _has_one_constituent(cleaned):
        counts.update([f"roots {cleaned.label}"] * bool(cleaned.label))
        cleaned = cleaned.children[0]
    if cleaned.word:
        return Tree(TOP, (cleaned,))
    return cleaned._replace(label=TOP) if cleaned.label in roots else cleaned


def roots_of(trees: Callable[[], Iterable[Tree]]) -> tuple[str, ...]:
    """Return ``ROOTS`` and labels that span all trees as the only child of the root before.

    ``trees`` reads them again for every label. A label inside a tree is no root, and neither is the
    label of a constituent unless there are ``MANY_TREES``.
    """
    roots: tuple[str, ...] = ROOTS
    while label := _label_of_all(tree for raw in trees() if (tree := normalized(raw, Counter(), roots))):
        roots = (*roots, label)
    return roots


def _label_of_all(trees: Iterable[Tree]) -> str:
    label, count = "", 0
    for tree in trees:
        count += 1
        label = label or tree.label
        if tree.label != label or not _has_one_constituent(tree) or label in tree.children[0].labels():
            return ""
    return "" if label in CONSTITUENTS.split() and count < MANY_TREES else label


def _has_one_constituent(tree: Tree) -> bool:
    return len(tree.children) == 1 and bool(tree.children[0].children)


def _without_traces(tree: Tree, counts: Counter[str]) -> Tree | None:
    if tree.word:
        counts["traces"] += tree.label == TRACE
        return None if tree.label == TRACE else tree
    children = tuple(kept for child in tree.children if (kept := _without_traces(child, counts)) is not None)
    counts["constituents of traces"] += not children
    label = _TAGS.sub("", tree.label)
    counts["functional tags"] += bool(children) and label != tree.label
    return Tree(label, children) if children else None


def symbols_of(tree: Tree, linearization: str, *, has_tags: bool = False, has_positions: bool = False) -> list[str]:
    """Return the tree as symbols: ``(NP`` opens, ``)`` closes, ``XX`` is a word.

    ``brackets`` are depth first, with labels that close, ``)NP`` (Vinyals et al. 2015, figure 2),
    ``top_down`` is the same with ``)`` (Dyer et al. 2016), and ``in_order`` opens a constituent
    after its first child (Liu and Zhang 2017). With ``has_tags`` words are parts of speech. With
    ``has_positions`` they have ``@0``, ``@1``, ... before them.
    """
    positions = itertools.count()

    def written(tree: Tree) -> list[str]:
        if tree.word:
            return [f"@{next(positions) % POSITIONS}"] * has_positions + [tree.label if has_tags else WORD]
        opening, closing = f"({tree.label}", f"){tree.label}" if linearization == "brackets" else ")"
        first, *others = map(written, tree.children)
        begin = [*first, opening] if linearization == "in_order" else [opening, *first]
        return [*begin, *(symbol for child in others for symbol in child), closing]

    return written(tree)


def is_position(symbol: str) -> bool:
    """Return whether a symbol is the position of a word, ``@17``."""
    return bool(_POSITION.fullmatch(symbol))


def tree_of_symbols(
    symbols: Iterable[str],
    words: Sequence[str],
    linearization: str,
    repairs: Counter[str] | None = None,
    positions: int = POSITIONS,
) -> Tree:
    """Invert ``symbols_of`` over exactly these words, and count ``repairs`` of malformed symbols.

    1. A word beyond the last, a closing bracket without an opening one, a constituent without words
       and an unknown symbol are dropped.
    2. A closing bracket of another label closes the innermost constituent.
    3. At the end missing closing brackets are added.
    4. Missing words go into the constituent that was open last, before its missing bracket.
    5. Several roots, or a word alone, get the root TOP, which scores ignore.
    6. ``in_order``: a constituent without a child before it has only the children after it.
    7. Positions of words, modulo ``POSITIONS`` and ``positions``, are dropped. Wrong ones count.
    """
    repairs = Counter() if repairs is None else repairs
    stack: list[tuple[str, list[Tree]]] = [("", [])]
    remaining, written = iter(words), 0

    def close() -> None:
        label, children = stack.pop()
        repairs["constituents without words"] += not children
        stack[-1][1].extend([Tree(label, tuple(children))] if children else [])

    for symbol in symbols:
        label, siblings = stack[-1]
        if symbol[0] == "(":
            takes_first = linearization == "in_order" and siblings
            repairs["constituents after no child"] += linearization == "in_order" and not siblings
            stack.append((symbol[1:], [siblings.pop()] if takes_first else []))
        elif is_position(symbol):
            repairs["positions of another word"] += int(symbol[1:]) != written % POSITIONS % positions
        elif symbol[0] != ")":
            word = "" if symbol == UNKNOWN else next(remaining, "")
            repairs["unknown symbols" if symbol == UNKNOWN else "words beyond the last"] += not word
            siblings.extend([Tree(symbol, (), word)] if word else [])
            written += 1
        elif len(stack) == 1:
            repairs["closing brackets without opening ones"] += 1
        else:
            repairs["closing brackets of another label"] += linearization == "brackets" and symbol[1:] != label
            close()
    missing = [Tree(WORD, (), word) for word in remaining]
    repairs["missing words"] += len(missing)
    repairs["missing closing brackets"] += len(stack) - 1
    inner = stack[-1][1]
    if len(stack) == 1 and len(inner) == 1 and inner[0].children and missing:
        # The innermost constituent that was open last is the root.
        inner[0] = inner[0]._replace(children=(*inner[0].children, *missing))
    else:
        inner.extend(missing)
    while len(stack) > 1:
        close()
    roots = stack[0][1]
    if len(roots) == 1 and roots[0].children:
        return roots[0]
    repairs["roots added"] += 1
    return Tree(TOP, tuple(roots))

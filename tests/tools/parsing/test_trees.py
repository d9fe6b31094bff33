import gzip
import random
from collections import Counter

import pytest
from tools.parsing.random_trees import random_trees

from transformer_jax.config import DataError
from transformer_jax.tools.parsing.bracket_scores import bracket_counts
from transformer_jax.tools.parsing.parsing_settings import LINEARIZATIONS
from transformer_jax.tools.parsing.trees import (
    MANY_TREES,
    ROOTS,
    Tree,
    escaped,
    normalized,
    read_trees,
    roots_of,
    symbols_of,
    tree_of_symbols,
    without_escapes,
)

SENTENCE = "( (S (NP-SBJ-1 (NNP Ann)) (VP (VBZ tries) (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB sleep)))))) )"


def read(tmp_path, text):
    file = tmp_path / "trees.mrg"
    file.write_text(text, encoding="utf-8")
    return [located.tree for located in read_trees(file)]


def test_trees_of_several_lines_and_several_trees_of_a_line_are_read(tmp_path):
    trees = read(tmp_path, "\n(S (NP (NNP Ann))\n  (VP (VBZ sleeps)))\n(X (-LRB- -LRB-)) (X\n(Y (A b)))\n")
    assert [*map(str, trees)] == ["(S (NP (NNP Ann)) (VP (VBZ sleeps)))", "(X (-LRB- -LRB-))", "(X (Y (A b)))"]
    assert trees[1].sentence == "-LRB-"
    with gzip.open(tmp_path / "trees.mrg.gz", "wt") as file:
        file.write(SENTENCE)
    assert [located.line for located in read_trees(tmp_path / "trees.mrg.gz")] == [1]


def test_an_error_names_file_line_and_remedy(tmp_path):
    for text, problem in (
        ("(S (A b))\n(S (A b)", "line 2: this tree lacks 1 closing brackets"),
        ("(S (A b)))", r"line 1: '\)' lies outside of a tree"),
        ("(S ())", r"line 1: \(\) is neither"),
        ("(S\n(A))", r"line 2: \(A\) is neither a constituent nor a word"),
        ("(S (A b) c)", "line 1: the word 'c' stands beside a constituent"),
        ("(S (A b c))", r"line 1: \(A b c\) is neither"),
        ("\n" + "(S " * 3000, "line 2: more than 300 brackets are open"),
    ):
        with pytest.raises(DataError, match=rf"trees.mrg, {problem}"):
            read(tmp_path, text)
    for text in (r"(S (NN \)))", r"(S (NN \())", "(S (NN t(est)))"):
        with pytest.raises(DataError, match="a bracket in a word -LRB- or -RRB-"):
            read(tmp_path, text)
    with pytest.raises(DataError, match="line 1: the word 'c<U\\+00A0>d' stands beside"):
        read(tmp_path, "(S (A b) c\u00a0d)")


WORDS = [
    "t(est)",
    "(713)853-7041",
    ":)",
    "((",
    "\\",
    "\\)",
    "1/2",
    r"1\/2",
    "-LRB-",
    "（全角）",
    "10\u00a0000",
    "𝟏\u2009𝟐",
    "東京\u3000駅",
]
WORDS += [
    "ภาษาไทย",
    "हिन्दी",
    "עברית\u200f",
    "عربي\u061c",
    "👩\u200d👩\u200d👧",
    "e\u0301",
    "a\u2028b",
    "a\u0085b",
    "\u200b",
    "{x}",
    "[y]",
    "*",
    "@0",
]


def test_all_that_is_written_is_read_back(tmp_path):
    """Formats separate at ASCII white space alone."""
    tree = Tree("S", tuple(Tree("XX", (), word) for word in WORDS))
    (again,) = read(tmp_path, f"{tree}\r\n")
    assert [leaf.word for leaf in again.leaves()] == [escaped(word) for word in WORDS]
    assert str(again) == str(tree)
    assert bracket_counts(tree, again).words == len(WORDS)


def test_forms_of_treebanks_stand_for_characters():
    for plain, form in (("( a )", "-LRB- a -RRB-"), ("1/2 *", r"1\/2 \*"), ("{ [ ] }", "-LCB- -LSB- -RSB- -RCB-")):
        assert without_escapes(form) == without_escapes(plain) == plain


@pytest.mark.parametrize(
    "root", ["(VROOT {})", "(TOP (ROOT {}))", "( (S1 {}))", "(TOP (TOP {}))", "(Wurzel {})", "(DUMMY (Root-1 {}))"]
)
def test_labels_around_every_tree_are_roots(root, tmp_path):
    trees = ["(S (NP (NNP Ann)) (VP (VBZ sleeps)))", "(NP (NN rain))"]
    located, counts = read(tmp_path, "\n".join(map(root.format, trees))), Counter()
    roots = roots_of(lambda: located)
    assert [str(normalized(tree, counts, roots)) for tree in located] == trees
    assert counts.total() - counts["functional tags"] == 2 * (root.count("(") - root.startswith("( "))


def test_constituents_are_no_roots(tmp_path):
    for text in (
        "(S (VP (VB Go)))",
        "(FOO (S (A b) (FOO (C d)) (. .)))",
        "(FOO (A b))",
        "(FOO (S (A b)) (. .))",
        "(FOO (S (A b)))\n(BAR (S (A b)))",
    ):
        trees = read(tmp_path, text)
        assert roots_of(lambda found=trees: found) == ROOTS
    many = read(tmp_path, "(S (IP (VP (VB Go))))\n" * MANY_TREES)
    assert roots_of(lambda: many) == (*ROOTS, "S", "IP")


def test_traces_functional_tags_and_the_empty_root_are_removed_and_counted(tmp_path):
    (tree,), counts = read(tmp_path, SENTENCE), Counter()
    assert str(normalized(tree, counts)) == "(S (NP (NNP Ann)) (VP (VBZ tries) (S (VP (TO to) (VP (VB sleep))))))"
    assert counts == {"traces": 1, "constituents of traces": 1, "functional tags": 1}
    several, word, traces, brackets = read(tmp_path, "((S (A b)) (. .)) ((A b)) (S (-NONE- *)) (S (-LRB- -LRB-))")
    assert [str(normalized(tree, counts)) for tree in (several, word)] == ["(TOP (S (A b)) (. .))", "(TOP (A b))"]
    assert normalized(traces, counts) is None
    assert str(normalized(brackets, counts)) == "(S (-LRB- -LRB-))"


def test_the_three_linearizations_of_a_tree(tmp_path):
    (tree,) = read(tmp_path, "(S (NP (DT a) (NN dog)) (VP (VBZ barks)))")
    expected = {
        "brackets": "(S (NP XX XX )NP (VP XX )VP )S",
        "top_down": "(S (NP XX XX ) (VP XX ) )",
        "in_order": "XX (NP XX ) (S XX (VP ) )",
    }
    assert {name: " ".join(symbols_of(tree, name)) for name in LINEARIZATIONS} == expected
    assert " ".join(symbols_of(tree, "top_down", has_tags=True)) == "(S (NP DT NN ) (VP VBZ ) )"
    assert " ".join(symbols_of(tree, "in_order", has_positions=True)) == "@0 XX (NP @1 XX ) (S @2 XX (VP ) )"


@pytest.mark.parametrize("has_positions", [False, True])
@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_every_tree_is_recovered_from_its_symbols(linearization, has_positions):
    for tree in random_trees(300):
        repairs = Counter()
        symbols = symbols_of(tree, linearization, has_positions=has_positions)
        assert tree_of_symbols(symbols, tree.sentence.split(), linearization, repairs) == tree
        assert not +repairs


@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_any_symbols_become_a_tree_over_exactly_the_words(linearization):
    draw, vocabulary = random.Random(1), ["(S", "(NP", ")", ")S", "XX", "<unk>"]
    for _ in range(300):
        words = [f"w{number}" for number in range(draw.randrange(1, 6))]
        tree = tree_of_symbols(draw.choices(vocabulary, k=draw.randrange(9)), words, linearization)
        assert tree.sentence.split() == words
        assert tree.children


def test_wrong_positions_count_and_a_tag_may_begin_like_one(tmp_path):
    repairs = Counter()
    tree = tree_of_symbols(["(S", "@0", "XX", "@0", "XX", ")"], ["a", "b"], "top_down", repairs)
    assert (str(tree), +repairs) == ("(S (XX a) (XX b))", {"positions of another word": 1})
    (tagged,) = read(tmp_path, "(S (NP (@ bob)) (VP (V runs)))")
    symbols = symbols_of(tagged, "brackets", has_tags=True)
    assert tree_of_symbols(symbols, ["bob", "runs"], "brackets") == tagged


def test_trees_may_be_deep_and_outputs_thousands_deep(tmp_path):
    (deep,) = read(tmp_path, "(S " * 299 + "(A b)" + ")" * 299)
    assert len(symbols_of(normalized(deep, Counter()), "in_order")) == 2 * 299 + 1
    tree = tree_of_symbols(["(S"] * 3000 + ["XX"], ["a"], "top_down")
    assert (str(tree).count("(S"), tree.sentence) == (3000, "a")
    assert bracket_counts(tree, tree)[:4] == (3000, 3000, 3000, 0)


def test_repairs_follow_their_rules_and_are_counted():
    other, unopened = "closing brackets of another label", "closing brackets without opening ones"
    cases = {
        "(S (NP XX )VP XX XX )S": ("(S (NP (XX a)) (XX b))", other, "words beyond the last"),
        "(S XX": ("(S (XX a) (XX b))", "missing words", "missing closing brackets"),
        "(S (NP XX )NP )S": ("(S (NP (XX a)) (XX b))", "missing words"),
        ")S (S (NP )NP XX XX )S": ("(S (XX a) (XX b))", unopened, "constituents without words"),
        "(S XX )S (S XX )S": ("(TOP (S (XX a)) (S (XX b)))", "roots added"),
        "": ("(TOP (XX a) (XX b))", "missing words", "roots added"),
    }
    for symbols, (expected, *names) in cases.items():
        repairs = Counter()
        assert str(tree_of_symbols(symbols.split(), ["a", "b"], "brackets", repairs)) == expected
        assert set(+repairs) == {*names}

"""Programs are those of the stored baselines: a refactor leaves each as it is, an intended change updates them."""

import jax
import pytest
from program_baselines import COMMAND, RECIPES, Baseline, baselines_of, changes, stored


# Base is the code of tiny at other sizes.
@pytest.mark.parametrize("recipe", [pytest.param("base", marks=pytest.mark.slow), *list(RECIPES)[1:]])
def test_the_programs_of_a_recipe_are_the_stored_ones(recipe):
    baselines = stored()
    if baselines is None:
        compare = "python tests/program_baselines.py --against=REVISION"
        message = (
            f"no baselines of jax {jax.__version__}: compare with a commit whose programs are right, then store them:"
        )
        pytest.fail("\n".join([message, compare, COMMAND]), pytrace=False)
    changed = changes({recipe: baselines[recipe]}, {recipe: baselines_of(recipe)})
    if changed:
        pytest.fail("\n".join(["programs changed; if that is intended:", COMMAND, *changed]), pytrace=False)


def test_changes_name_programs_that_are_new_gone_or_other():
    def program(digest: str, dots: int) -> Baseline:
        return Baseline(digest, {"stablehlo.dot_general": dots})

    before = {
        "tiny": {"same": program("a", 1), "more": program("b", 1), "gone": program("c", 1), "other": program("d", 1)}
    }
    now = {
        "tiny": {"same": program("a", 1), "more": program("e", 2), "other": program("f", 1)},
        "own": {"new": program("g", 1)},
    }
    assert changes(before, now) == [
        "tiny, more: stablehlo.dot_general 1 -> 2",
        "tiny, gone: gone",
        "tiny, other: as many operations of each kind, with other operands, shapes or attributes",
        "own, new: new",
    ]

"""Programs are those of the stored baselines: a refactor leaves each as it is, an intended change
updates them."""

import jax
import pytest
from program_baselines import COMMAND, RECIPES, baselines_of, changes, stored

# Base is the code of tiny at other sizes.
SLOW = "base", "bahdanau", "luong_general", "language_model"


@pytest.mark.parametrize("recipe", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in RECIPES])
def test_the_programs_of_a_recipe_are_the_stored_ones(recipe):
    baselines = stored()
    if baselines is None:
        pytest.fail(
            f"no baselines of jax {jax.__version__}; with a commit whose programs are right: {COMMAND}", pytrace=False
        )
    changed = changes({recipe: baselines[recipe]}, {recipe: baselines_of(recipe)})
    if changed:
        pytest.fail("\n".join(["programs changed; if that is intended:", COMMAND, *changed]), pytrace=False)

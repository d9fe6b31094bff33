"""Programs are those of the stored baselines: a refactor leaves each as it is, an intended change updates them."""

import pytest
from program_baselines import COMMAND, RECIPES, baselines_of, difference, stored

# The code of tiny at other sizes; the attention of bahdanau in the decoder of luong_general.
SLOW = {"base", "big", "luong_concat"}


@pytest.mark.parametrize(
    "recipe", [pytest.param(recipe, marks=[pytest.mark.slow] if recipe in SLOW else []) for recipe in RECIPES]
)
def test_the_programs_of_a_recipe_are_the_stored_ones(recipe):
    baselines = stored()
    if baselines is None:
        pytest.skip(f"no baselines of this jax; where the code is known to be right: {COMMAND}")
    found, before = baselines_of(recipe), baselines[recipe]
    changed = [f"{name}: {difference(before[name], now)}" for name, now in found.items() if before.get(name) != now]
    if changed or found.keys() != before.keys():
        pytest.fail("\n".join(["programs changed; if that is intended:", COMMAND, *changed]), pytrace=False)

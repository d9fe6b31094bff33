"""Programs are those of the stored baselines: a refactor leaves each as it is, an intended change updates them."""

import pytest
from program_baselines import COMMAND, RECIPES, baselines_of, difference, stored


# Base is the code of tiny at other sizes.
@pytest.mark.parametrize("recipe", [pytest.param("base", marks=pytest.mark.slow), *list(RECIPES)[1:]])
def test_the_programs_of_a_recipe_are_the_stored_ones(recipe):
    baselines = stored()
    if baselines is None:
        pytest.skip(f"no baselines of this jax; where the code is known to be right: {COMMAND}")
    found, before = baselines_of(recipe), baselines[recipe]
    changed = [f"{name}: {difference(before[name], now)}" for name, now in found.items() if before.get(name) != now]
    if changed or found.keys() != before.keys():
        pytest.fail("\n".join(["programs changed; if that is intended:", COMMAND, *changed]), pytrace=False)

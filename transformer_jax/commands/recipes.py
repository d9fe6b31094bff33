"""List the recipes that come with the package: what each is for, and where it was run, how long and with which score.

Example:
    transformer-jax recipes
    transformer-jax recipes multi30k
    transformer-jax train --config=multi30k:tiny_hour --config.data.directory=multi30k --workdir=runs/m30k

A recipe of your own is a file: --config=mine.py, or --config=mine.py:VARIANT.
"""

import textwrap

from absl import flags

from transformer_jax.commands.flag_parsing import define_arguments
from transformer_jax.config import ConfigError
from transformer_jax.config.errors import nearest
from transformer_jax.config.recipes import SHIPPED, listed_recipes

WIDTH = 110
INDENT = " " * 6


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_arguments(values, "NAME ...", "only these recipes, for example multi30k")


def run(values: flags.FlagValues) -> int:
    """Prints; always 0."""
    listed = listed_recipes()
    names = [recipe.name for recipe in listed]
    for name in values.arguments:
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"recipes are {', '.join(names)}"
            raise ConfigError(f"recipes: no recipe {name!r}; {hint}")
    for recipe in listed:
        if recipe.name in (values.arguments or names):
            print(f"{textwrap.fill(recipe.summary, WIDTH)}\n")
            width = max(len(variant.spec) for variant in recipe.variants)
            for variant in recipe.variants:
                print(f"  {variant.spec:<{width}}  {', '.join(variant.measured) or 'not yet run as it is'}")
                if variant.summary:
                    print(textwrap.fill(variant.summary, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT))
            print()
    print(f"files: {SHIPPED}")
    return 0

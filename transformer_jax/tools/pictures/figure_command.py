from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.files.atomic_files import require_writable

ENDINGS = {"architecture": ".svg", "schedule": ".png"}
"""Figures by name, and how their files end."""


@flags.command(
    flags.arguments("NAME", f"the figure: {', '.join(ENDINGS)}"),
    flags.optional_config,
    flags.string("output", None, "the file to write (default: figure-NAME.svg, or .png)"),
)
def figure(values: flags.Values) -> int:
    """Draw the modules or the learning rate of a recipe, and print their numbers.

    Example:
        transformer-jax figure architecture --config=configs/seq2seq.py:bahdanau --output=rnn.svg
        transformer-jax figure schedule --config=runs/m30k

    architecture draws modules with shapes and parameter counts, and schedule the learning rate, of
    --config, a recipe or run (default: the base Transformer). --config.KEY=VALUE changes a setting.
    """
    names = values.arguments or []
    if len(names) != 1 or names[0] not in ENDINGS:
        raise ConfigError(
            "figure", f"takes one name (got {' '.join(names) or 'none'})", f"names are {', '.join(ENDINGS)}"
        )
    (name,) = names
    path = Path(values.output or f"figure-{name}{ENDINGS[name]}").expanduser()
    if path.suffix != ENDINGS[name]:
        raise ConfigError("--output", f"{path}: figure {name} is a file that ends in {ENDINGS[name]}")
    values.config = values.config or "configs/transformer_base.py"
    config = flags.resolve_config(values)
    from transformer_jax.runtime.hardware import start_jax

    require_writable(path.parent, "--output")
    start_jax(config.data.cache_directory)
    if name == "architecture":
        from transformer_jax.tools.pictures.architecture import draw_architecture as draw
    else:
        from transformer_jax.tools.pictures.schedule import draw_schedule as draw
    print(f"{draw(config, values.config, path)}\n{path}")
    return 0

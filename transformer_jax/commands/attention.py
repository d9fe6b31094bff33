"""Draw the attention weights of a translation, every layer and head, as a picture.

Example:
    transformer-jax attention --workdir=runs/m30k --text="A man is riding a red bike."
    transformer-jax attention runs/m30k --text="Two dogs play." --kind=encoder --layer=4 --output=dogs.pdf

The sentence is translated by the run's beam search; the weights are those of a forward pass over that translation, or over
--translation=TEXT if given.
"""

import sys
from pathlib import Path

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, require_attention, require_task, run_config
from transformer_jax.config import ConfigError

KINDS = ("cross", "encoder", "decoder")
PICTURES = (".png", ".pdf", ".svg")


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string("text", None, "the sentence to translate", flag_values=values, required=True)
    flags.DEFINE_string("translation", None, "draw for this translation instead of the model's own", flag_values=values)
    flags.DEFINE_string(
        "output", None, "the picture (default: attention-KIND.png in the run directory)", flag_values=values
    )
    flags.DEFINE_integer("layer", 0, "from 1; 0 draws all", flag_values=values, lower_bound=0)
    flags.DEFINE_integer("head", 0, "from 1; 0 draws all, and their mean", flag_values=values, lower_bound=0)
    meaning = "cross: target to source; encoder: source to source; decoder: target to target"
    flags.DEFINE_enum("kind", "cross", list(KINDS), meaning, flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Draws; 0."""
    config = run_config(values)
    if not values.text.strip():
        raise ConfigError("--text: is empty; give a sentence")
    require_task(values.workdir, "translation")
    require_attention(config, values.kind, values.layer, values.head)
    from transformer_jax.checkpoints.run_directory import RunDirectory

    path = Path(values.output or RunDirectory(values.workdir).path / f"attention-{values.kind}.png").expanduser()
    if path.suffix not in PICTURES:
        raise ConfigError(f"--output: must end in {', '.join(PICTURES)} (got {path})")
    from transformer_jax.runtime.atomic_files import require_writable, require_writable_file

    require_writable(path.parent, "--output" if values.output else "--workdir")
    require_writable_file(path, "--output")
    print("restoring the model ...", file=sys.stderr, flush=True)
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.translation.alignment import attention_of_pair, chosen_heads
    from transformer_jax.tasks.translation.trained_run import open_trained_run
    from transformer_jax.visualization.attention_maps import draw_attention

    start_jax(config.data.cache_directory)
    trained = open_trained_run(values.workdir, config, checkpoint=values.checkpoint, average=values.average)
    translation = values.translation
    if translation is None:
        print("translating ...", file=sys.stderr, flush=True)
        translation = trained.translator.translate(trained.params, [values.text])[0][0].text
    found, rows, columns = attention_of_pair(trained, values.text, translation, values.kind)
    weights = chosen_heads(found, values.layer, values.head)
    draw_attention(weights, rows, columns, path, title=f"{values.text}\n{translation}")
    print(f"{values.text}\n{translation}\n{path}")
    return 0

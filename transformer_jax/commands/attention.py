"""Draw the attention weights of a translation, or of a text by a language model, every layer and head, as a picture.

Example:
    transformer-jax attention --workdir=runs/m30k --text="A man is riding a red bike."
    transformer-jax attention runs/m30k --text="Two dogs play." --kind=encoder --layer=4 --output=dogs.pdf

    transformer-jax attention runs/lm --text="The old man sees the sea."

The sentence is translated by the run's beam search; the weights are those of a forward pass over that translation, or over
--translation=TEXT if given. A language model has attention of the kind decoder alone: row i predicts piece i of the text.
"""

import sys
from pathlib import Path

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, require_attention, run_config
from transformer_jax.config import ConfigError

KINDS = ("cross", "encoder", "decoder")
PICTURES = (".png", ".pdf", ".svg")


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string(
        "text", None, "the sentence to translate, or the text to read", flag_values=values, required=True
    )
    flags.DEFINE_string("translation", None, "draw for this translation instead of the model's own", flag_values=values)
    flags.DEFINE_string(
        "output", None, "the picture (default: attention-KIND.png in the run directory)", flag_values=values
    )
    flags.DEFINE_integer("layer", 0, "from 1; 0 draws all", flag_values=values, lower_bound=0)
    flags.DEFINE_integer("head", 0, "from 1; 0 draws all, and their mean", flag_values=values, lower_bound=0)
    meaning = (
        "cross: target to source; encoder: source to source; decoder: target to target (default: the first there is)"
    )
    flags.DEFINE_enum("kind", None, list(KINDS), meaning, flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Draws; 0."""
    config = run_config(values)
    if not values.text.strip():
        raise ConfigError("--text: is empty; give a sentence")
    # Models without attention have no kind, and word vectors not even a count of it.
    counts = getattr(config.model, "attention_counts", None)
    kind = values.kind or next((each for each in KINDS if each in (counts or {})), KINDS[0])
    if counts is not None:
        require_attention(config, kind, values.layer, values.head)
    from transformer_jax.runs.run_directory import ChosenRun, RunDirectory

    path = Path(values.output or RunDirectory(values.workdir).path / f"attention-{kind}.png").expanduser()
    if path.suffix not in PICTURES:
        raise ConfigError(f"--output: must end in {', '.join(PICTURES)} (got {path})")
    from transformer_jax.runtime.atomic_files import require_writable, require_writable_file

    # These import JAX.
    from transformer_jax.tasks.task import task_that_reads_texts

    reading = task_that_reads_texts(config, f"--workdir: {values.workdir}")
    reading.require_targets("--translation", is_given=values.translation is not None, is_optional=True)
    require_writable(path.parent, "--output" if values.output else "--workdir")
    require_writable_file(path, "--output")
    print("restoring the model ...", file=sys.stderr, flush=True)
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.texts import chosen_heads
    from transformer_jax.tasks.trained_run import open_trained
    from transformer_jax.tools.pictures.attention_maps import draw_attention

    start_jax(config.data.cache_directory)
    trained = open_trained(ChosenRun(values.workdir, config, values.checkpoint), average=values.average)
    attention = trained.task.attention_of(trained.params, values.text, values.translation)
    found, rows, columns = attention.kinds[kind]
    weights = chosen_heads(found, values.layer, values.head)
    draw_attention(weights, rows, columns, path, title=attention.title)
    print(f"{attention.title}\n{path}")
    return 0

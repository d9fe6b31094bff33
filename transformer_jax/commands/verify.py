"""Compare a run with the same model in another format: outputs for given tokens, and greedy translations.

Example:
    transformer-jax verify --workdir=runs/m30k --against=m30k-ct2
    transformer-jax verify --workdir=runs/m30k --against=m30k-ct2 --text=test.en --sentences=1000

Both compute on this machine, the run in float32. The targets are the run's greedy translations of --text (default: the
validation split). Prints a table, and the greedy translations that differ: at a near tie, two logits less than 0.001 apart,
either may come first. Exit status 1: an output differs by more than the tolerance of the format, a greedy translation differs
elsewhere than at a near tie (quantized models: more of them than the tolerance allows), or a text is tokenized differently.
"""

from pathlib import Path

from absl import flags

from transformer_jax.commands.export import define_text_flags, texts_to_compare
from transformer_jax.commands.run_flags import define_run_flags, run_config
from transformer_jax.tools.interop.formats import open_counterpart


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string("against", None, "folder of the exported or imported model", flag_values=values, required=True)
    define_text_flags(values)


def run(values: flags.FlagValues) -> int:
    """Compares; 0, or 1 when they differ."""
    config = run_config(values)
    from transformer_jax.evaluation.text_table import text_table
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tools.interop.opened_model import open_model
    from transformer_jax.tools.interop.parity import compare

    start_jax(config.data.cache_directory)
    model = open_model(values.workdir, config, checkpoint=values.checkpoint, average=values.average)
    counterpart = open_counterpart(Path(values.against).expanduser(), model)
    found = compare(model, counterpart, texts_to_compare(values, model))
    print(text_table(found.rows()))
    return 0 if found.holds else 1

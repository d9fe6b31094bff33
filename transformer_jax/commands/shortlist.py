"""Write the lexical shortlist of a run: the target tokens that may translate each source token.

Example:
    transformer-jax shortlist --workdir=runs/m30k --output=m30k-shortlist.npz
    transformer-jax translate --workdir=runs/m30k --config.decoding.shortlist=m30k-shortlist.npz < input.en

For every source token the --candidates most probable target tokens by IBM model 1 (Brown et al. 1993), counted on the training
data of the run after five iterations, and besides, for any sentence, the --frequent most frequent. Decoding that names the
file chooses among those of its sentence alone. The file serves every run with the same tokenizers, and no other.
"""

from pathlib import Path

from absl import flags

from transformer_jax.commands.flag_parsing import define_override_flag
from transformer_jax.commands.run_flags import require_task, run_config


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_string("workdir", None, "folder of the run", flag_values=values, required=True)
    flags.DEFINE_string("output", None, "file to write, .npz", flag_values=values, required=True)
    flags.DEFINE_integer("candidates", 50, "target tokens of each source token", flag_values=values, lower_bound=1)
    flags.DEFINE_integer("frequent", 100, "target tokens of every sentence", flag_values=values, lower_bound=0)
    meaning = "most training pairs to count, spread evenly"
    flags.DEFINE_integer("pairs", 1_000_000, meaning, flag_values=values, lower_bound=1)
    define_override_flag(values)


def run(values: flags.FlagValues) -> int:
    """Writes it; 0."""
    require_task(values.workdir, "translation")
    config = run_config(values)
    from transformer_jax.data.readable_splits import require_readable
    from transformer_jax.decoding.shortlist import save_shortlist
    from transformer_jax.runs.run_directory import RunDirectory
    from transformer_jax.runtime.atomic_files import require_writable_file
    from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
    from transformer_jax.tasks.translation.lexical_shortlist import shortlist_of

    output = require_writable_file(values.output, "--output")
    if config.data.source != "tfds":
        require_readable(config, "train")
    tokenizers = tokenizers_of_run(RunDirectory(values.workdir))
    found = shortlist_of(config, tokenizers, values.candidates, values.frequent, values.pairs)
    save_shortlist(Path(output), found)
    print(f"{output}: {values.candidates} candidates for each of {len(found.best):,} tokens, and {len(found.frequent)}")
    return 0

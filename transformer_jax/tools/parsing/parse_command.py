from functools import partial

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import run_config
from transformer_jax.commands.translate import decode_lines, lines_flags, open_for_lines
from transformer_jax.tasks.translation.translation_options import sampling_of


@flags.command(lines_flags)
def parse(values: flags.Values) -> int:
    """Parse sentences: one line of words in, one bracketed tree out, in the same order.

    Example:
        transformer-jax parse runs/parsing < sentences.txt > trees.mrg
        transformer-jax parse runs/parsing --n_best=3 --config.decoding.beam_width=9 < sentences.txt

    Words and punctuation marks have spaces between them, as in treebanks. ( and ) become -LRB- and
    -RRB-. Every tree has exactly the words of its sentence: without decoding.constrained, malformed
    output is repaired (docs/parsing.md has the rules). With --n_best=N a line in gives up to N
    lines out: line number, score and tree, separated by tabs. --remarks and --json add remarks,
    which translate explains. translate prints the symbols of the model instead.
    """
    config = run_config(values, "parse")
    sampling_of(config.decoding, {"n_best": values.n_best})
    trained = open_for_lines(values, config)
    return decode_lines(values, partial(trained.task.parse_each, trained.params), trained)

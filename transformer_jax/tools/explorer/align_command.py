import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import (
    chosen_runs,
    open_runs,
    output_path,
    require_attention,
    run_config,
    run_flags,
)
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.examination import warnings_on_files
from transformer_jax.data.parallel_text import unequal_lines
from transformer_jax.data.scripts import lack_spaces
from transformer_jax.data.text_files import read_lines
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.terminal import text_table

if TYPE_CHECKING:
    from transformer_jax.tools.explorer.word_alignment import GoldAlignment


@flags.command(
    run_flags,
    flags.string("source", None, "file of source sentences", required=True),
    flags.string("target", None, "file of their translations", required=True),
    flags.integer("layer", 0, "from 1; 0 is the last but one, -1 the mean of all", lower_bound=-1),
    flags.integer("head", 0, "from 1; 0 is the mean of all heads", lower_bound=0),
    flags.string("gold", None, "file of manual alignments"),
    flags.integer("first_word", 0, "number of the first word in the gold file", lower_bound=0, upper_bound=1),
    flags.string("output", None, "where to write (default: alignment in the run directory)"),
)
def align(values: flags.Values) -> int:
    """Align words by the attention of a model, and measure the alignment error rate.

    Example:
        transformer-jax align runs/m30k --source=test.en --target=test.de --gold=test.talp --head=2

    Every target word is linked to the source word with the largest weight. Writes OUTPUT.pharaoh
    (links source-target from 0, a pair a line) and OUTPUT.npz: for pair n, from 0, weights_n
    [target pieces, source pieces], source_n, target_n and word_weights_n [target words, source
    words]. Spaces separate words. Without spaces, pieces of the tokenizer count as words. A gold
    file has a pair a line: 0-0 is a sure link, 1?2 or 1p2 a possible one.
    """
    config = run_config(values)
    if config.task != "translation":
        problem = f"{values.workdir} is a run of task={config.task}; this command takes task=translation"
        raise ConfigError("--workdir", problem)
    import numpy as np

    from transformer_jax.tools.explorer import word_alignment

    require_attention(config, "cross", values.layer, values.head)
    sources, targets, gold = read_pairs(values.source, values.target, values.gold, values.first_word)
    stem = output_path(values, "alignment")
    if (values.output and stem.is_dir()) or str(values.output or "").endswith("/"):
        problem = f"{stem} is a folder; give the files a name in it, for example {stem / 'alignment'}"
        raise ConfigError("--output", problem)
    from transformer_jax.tools.explorer.soft_alignment import soft_alignments

    for warning in warnings_on_files(config, (values.source, values.target), sources, targets):
        print(warning, file=sys.stderr)
    for flag in [flag for flag, texts in (("--source", sources), ("--target", targets)) if lack_spaces(texts)]:
        print(f"{flag}: no spaces between words, so links are between pieces of the tokenizer", file=sys.stderr)
    trained = open_runs(chosen_runs(values, config), values.average)
    alignments = soft_alignments(trained, sources, targets, layer=values.layer, head=values.head)
    links = [word_alignment.best_links(alignment.word_weights) for alignment in alignments]
    if gold:
        word_alignment.require_words(gold, [alignment.word_weights.shape for alignment in alignments], values.gold)

    write_whole(
        stem.with_name(f"{stem.name}.pharaoh"), "".join(f"{word_alignment.to_pharaoh(pair)}\n" for pair in links)
    )
    arrays: dict[str, np.ndarray] = {}
    for number, alignment in enumerate(alignments):
        arrays[f"weights_{number}"] = alignment.weights.astype(np.float32)
        arrays[f"word_weights_{number}"] = alignment.word_weights.astype(np.float32)
        arrays[f"source_{number}"] = np.array(alignment.source_pieces)
        arrays[f"target_{number}"] = np.array(alignment.target_pieces)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_whole(stem.with_name(f"{stem.name}.npz"), packed.getvalue())
    if gold:
        scores = word_alignment.score_alignments(links, gold)
        rows = [
            ("alignment error rate", f"{scores.error_rate:.3f}", "1 - (|A and S| + |A and P|) / (|A| + |S|)"),
            ("precision", f"{scores.precision:.3f}", "of possible links"),
            ("recall", f"{scores.recall:.3f}", "of sure links"),
            ("links", f"{scores.num_links:,}", f"in {scores.num_sentences:,} pairs"),
        ]
        print(text_table(rows))
    print(f"{stem}.pharaoh\n{stem}.npz")
    return 0


def read_pairs(
    source: str, target: str, gold: str | None, first_word: int
) -> "tuple[list[str], list[str], list[GoldAlignment]]":
    """Return the sentences of both files, and their gold alignments if there is such a file.

    Raises DataError if the numbers of lines differ.
    """
    from transformer_jax.tools.explorer.word_alignment import read_gold

    sources, targets = (list(read_lines(Path(name))) for name in (source, target))
    if len(sources) != len(targets):
        raise unequal_lines(Path(source), Path(target), len(sources), len(targets))
    alignments = read_gold(read_lines(Path(gold)), gold, first_word) if gold else []
    if gold and len(alignments) != len(sources):
        raise DataError(f"{gold}: {len(alignments)} lines but {len(sources)} sentences; line i is for pair i")
    return sources, targets, alignments

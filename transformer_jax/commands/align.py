"""Align the words of given translations by the attention of a trained model, and measure the error against gold.

Example:
    transformer-jax align --workdir=runs/m30k --source=test.en --target=test.de
    transformer-jax align --workdir=runs/m30k --source=test.en --target=test.de --gold=test.talp --layer=3 --head=2

The model reads each pair; every target word is linked with the source word it attends to most. Writes OUTPUT.pharaoh (links
source-target from 0, a pair a line) and OUTPUT.npz: for pair n, from 0, weights_n [target pieces, source pieces], source_n,
target_n and word_weights_n [target words, source words]. Words are what spaces separate; of Japanese, Chinese, Thai and other
text without spaces they are pieces (put spaces in, as gold alignments do, and they are words).
Gold has a pair a line, 0-0 a sure link, 1?2 or 1p2 a possible one.
"""

import io
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, require_attention, require_task, run_config
from transformer_jax.config import ConfigError, DataError

SECONDS_BETWEEN_LINES = 5.0


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_string("source", None, "file of source sentences", flag_values=values, required=True)
    flags.DEFINE_string("target", None, "file of their translations", flag_values=values, required=True)
    flags.DEFINE_integer(
        "layer", 0, "from 1; 0 is the last but one, -1 the mean of all", flag_values=values, lower_bound=-1
    )
    flags.DEFINE_integer("head", 0, "from 1; 0 is the mean of all heads", flag_values=values, lower_bound=0)
    flags.DEFINE_string("gold", None, "file of manual alignments", flag_values=values)
    flags.DEFINE_integer(
        "first_word", 0, "number of the first word in the gold file", flag_values=values, lower_bound=0, upper_bound=1
    )
    flags.DEFINE_string("output", None, "where to write (default: alignment in the run directory)", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Aligns; 0."""
    config = run_config(values)
    from pathlib import Path

    import numpy as np

    from transformer_jax.data.text_files import read_lines
    from transformer_jax.evaluation.word_alignment import best_links, read_gold, require_words, to_pharaoh
    from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
    from transformer_jax.runtime.atomic_files import require_writable, write_whole

    require_task(values.workdir, "translation")
    require_attention(config, "cross", values.layer, values.head)
    sources, targets = (list(read_lines(Path(name))) for name in (values.source, values.target))
    if len(sources) != len(targets):
        counts = f"{values.source} has {len(sources):,} lines but {values.target} has {len(targets):,}"
        raise DataError(f"{counts}; line n of one must translate line n of the other")
    gold = read_gold(read_lines(Path(values.gold)), values.gold, values.first_word) if values.gold else None
    if gold is not None and len(gold) != len(sources):
        raise DataError(f"{values.gold}: {len(gold)} lines but {len(sources)} sentences; line i is for pair i")
    stem = Path(values.output or RunDirectory(values.workdir).path / "alignment").expanduser()
    if stem.is_dir() or str(values.output or "").endswith("/"):
        raise ConfigError(
            f"--output: {stem} is a folder; give the files a name in it, for example {stem / 'alignment'}"
        )
    require_writable(stem.parent, "--output" if values.output else "--workdir")
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.trained_run import open_trained
    from transformer_jax.tasks.translation.soft_alignment import pieces_are_words, soft_alignments

    start_jax(config.data.cache_directory)
    for flag in [flag for flag, texts in (("--source", sources), ("--target", targets)) if pieces_are_words(texts)]:
        print(f"{flag}: no spaces between words; words of the links are pieces of the tokenizer", file=sys.stderr)
    trained = open_trained(ChosenRun(values.workdir, config, values.checkpoint), average=values.average)
    alignments = soft_alignments(
        trained, sources, targets, layer=values.layer, head=values.head, show=_shown_of(len(sources))
    )
    links = [best_links(each.word_weights) for each in alignments]
    if gold is not None:
        require_words(gold, [each.word_weights.shape for each in alignments], values.gold)

    write_whole(Path(f"{stem}.pharaoh"), "".join(f"{to_pharaoh(each)}\n" for each in links))
    arrays: dict[str, np.ndarray] = {}
    for number, each in enumerate(alignments):
        arrays |= {f"weights_{number}": each.weights.astype(np.float32)}
        arrays |= {f"word_weights_{number}": each.word_weights.astype(np.float32)}
        arrays |= {f"source_{number}": np.array(each.source_pieces), f"target_{number}": np.array(each.target_pieces)}
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_whole(Path(f"{stem}.npz"), packed.getvalue())
    if gold is not None:
        print(_scores_table(links, gold))
    print(f"{stem}.pharaoh\n{stem}.npz")
    return 0


def _scores_table(links: Sequence[frozenset[tuple[int, int]]], gold: Sequence[Any]) -> str:
    from transformer_jax.evaluation.text_table import text_table
    from transformer_jax.evaluation.word_alignment import score_alignments

    scores = score_alignments(links, gold)
    rows = [
        ("alignment error rate", f"{scores.error_rate:.3f}", "1 - (|A and S| + |A and P|) / (|A| + |S|)"),
        ("precision", f"{scores.precision:.3f}", "of possible links"),
        ("recall", f"{scores.recall:.3f}", "of sure links"),
        ("links", f"{scores.num_links:,}", f"in {scores.num_sentences:,} pairs"),
    ]
    return text_table(rows)


def _shown_of(total: int) -> Callable[[int], None]:
    """Says on stderr, every few seconds, how many pairs are aligned."""
    last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"aligned {done:,} of {total:,}", file=sys.stderr, flush=True)

    return show

"""Print the log-probabilities of given translations, or of given text by a language model.

Example:
    transformer-jax score --workdir=runs/m30k --source=test.en --target=test.de > scores.tsv
    transformer-jax score --workdir=runs/m30k --source=test.en --target=test.de --json
    transformer-jax score --workdir=runs/lm --source=text.txt
    transformer-jax score --workdir=runs/a --ensemble=runs/b --source=test.en --target=test.de

Line i of --target is scored as the translation of line i of --source. A language model, which takes no --target, scores each
line of --source as a document of its own; a line longer than its context in windows that overlap by half. A line out for each,
tab-separated: the natural logarithm of its probability, the number of its tokens, EOS included, and the logarithms of their
probabilities, separated by spaces; for an empty line that of EOS alone. With --json an object a line: log_prob, tokens,
token_log_probs. For a translation found by translate, log_prob over the length penalty of its length is the score that
translate --n_best prints. (For an empty source that is nothing: translate gives an empty line without asking the model.)
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.run_flags import chosen_runs, define_ensemble_flag, define_run_flags, run_config

if TYPE_CHECKING:
    from transformer_jax.tasks.texts import TokenScores


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    define_ensemble_flag(values)
    flags.DEFINE_string(
        "source", None, "file of source sentences, or of texts, one a line", flag_values=values, required=True
    )
    flags.DEFINE_string("target", None, "file of their translations", flag_values=values)
    flags.DEFINE_boolean("json", False, "print a JSON object a line", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Scores; 0."""
    config = run_config(values)
    runs = chosen_runs(values, config)
    from transformer_jax.data.text_files import read_lines
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tasks.task import task_that_reads_texts
    from transformer_jax.tasks.trained_run import open_trained

    task = task_that_reads_texts(config, f"--workdir: {values.workdir}")
    task.require_targets("--target", is_given=values.target is not None)
    sources = list(read_lines(Path(values.source)))
    targets = None if values.target is None else list(read_lines(Path(values.target)))
    start_jax(config.data.cache_directory)
    trained = open_trained(*runs, average=values.average)
    for score in trained.task.score_texts(trained.params, sources, targets):
        print(_as_json(score) if values.json else _as_line(score))
    return 0


def _as_line(score: "TokenScores") -> str:
    of_tokens = " ".join(f"{each:.4f}" for each in score.log_probs)
    return f"{score.log_prob:.4f}\t{len(score.log_probs)}\t{of_tokens}"


def _as_json(score: "TokenScores") -> str:
    record = {"log_prob": score.log_prob, "tokens": score.pieces, "token_log_probs": score.log_probs}
    return json.dumps(record, ensure_ascii=False)

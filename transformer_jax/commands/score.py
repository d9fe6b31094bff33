import json
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, ensemble_flag, open_runs, run_config, run_flags
from transformer_jax.data.text_files import read_lines
from transformer_jax.errors import complain
from transformer_jax.files.json_text import finite_or_none


@flags.command(
    run_flags,
    ensemble_flag,
    flags.string("source", None, "file of source sentences, or of texts, one a line", required=True),
    flags.string("target", None, "file of their translations"),
    flags.boolean("json", False, "print a JSON object a line"),
)
def score(values: flags.Values) -> int:
    """Print the log-probabilities of translations, or of text by a language model.

    Example:
        transformer-jax score --workdir=runs/m30k --source=test.en --target=test.de > scores.tsv
        transformer-jax score --workdir=runs/lm --source=text.txt
        transformer-jax score --workdir=runs/a --ensemble=runs/b --source=test.en --target=test.de

    Line i of --target is scored as the translation of line i of --source. A language model takes no
    --target and scores each line of --source as a document. Every line gives a line, tab-separated:
    the natural logarithm of its probability, the number of its tokens, EOS included, and the
    logarithms of their probabilities, separated by spaces. With --json it is an object: log_prob,
    tokens, token_log_probs. The score of translate --n_best is log_prob over the length penalty. A
    blank source has the blank translation alone: no token with it, and -inf (JSON: null) with
    another. Standard error tells which sources have something that the model never saw in training.
    """
    config = run_config(values)
    runs = chosen_runs(values, config)
    from transformer_jax.data.examination import warnings_on_files
    from transformer_jax.data.parallel_text import unequal_lines
    from transformer_jax.tasks.texts import require_targets

    require_targets(config, "--workdir", values.workdir, "--target", is_set=values.target is not None)
    sources = list(read_lines(Path(values.source)))
    targets = None if values.target is None else list(read_lines(Path(values.target)))
    if targets is not None and len(targets) != len(sources):
        raise unequal_lines(Path(values.source), Path(values.target), len(sources), len(targets))
    if targets is not None and config.scores_translations:
        for warning in warnings_on_files(config, (values.source, values.target), sources, targets):
            complain(warning)
    trained = open_runs(runs, values.average)
    remarks = trained.remarks(values.source)
    remarks.read(sources)
    remarks.tell()
    for scored in trained.task.score_texts(trained.params, sources, targets):
        if values.json:
            log_probs = [finite_or_none(log_prob) for log_prob in scored.log_probs]
            record = {
                "log_prob": finite_or_none(scored.log_prob),
                "tokens": scored.pieces,
                "token_log_probs": log_probs,
            }
            print(json.dumps(record, ensure_ascii=False))
        else:
            of_tokens = " ".join(f"{log_prob:.4f}" for log_prob in scored.log_probs)
            print(f"{scored.log_prob:.4f}\t{len(scored.log_probs)}\t{of_tokens}")
    return 0

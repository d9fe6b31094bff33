import json
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.commands.actions import Action, chosen_action
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, settings_of_run
from transformer_jax.config import ConfigError, DataError, load_run_config
from transformer_jax.files.atomic_files import require_local, write_whole
from transformer_jax.files.terminal import text_table

if TYPE_CHECKING:
    from transformer_jax.tools.word_vectors.keyed_vectors import KeyedVectors

SOURCE_FLAGS = ("vectors", "format", "workdir", "checkpoint", "limit")


def _load(values: flags.Values) -> "KeyedVectors":
    """Return the first --limit vectors of --vectors or --workdir."""
    from transformer_jax.tools.word_vectors.keyed_vectors import keyed_vectors, read_vectors

    if values.workdir:
        if values.format:
            raise ConfigError("--format", "is for --vectors", "leave it out")
        from transformer_jax.tools.word_vectors.task.word_vector_task import vectors_of_run

        vectors, limit = vectors_of_run(values.workdir, values.checkpoint), values.limit
        return keyed_vectors(vectors.index_to_key[:limit], vectors.vectors[:limit]) if limit else vectors
    if "checkpoint" in values.present:
        raise ConfigError("--checkpoint", "is for --workdir", "a file has one table")
    return read_vectors(values.vectors, values.format, values.limit)


def _evaluate(values: flags.Values, _: list[str]) -> None:
    of_run = load_run_config(values.workdir).data.test_sets if values.workdir else ""
    names = values.test_sets or ([of_run] if of_run else [])
    if not names:
        raise ConfigError("--test_sets", "is required", "give files of analogies or judged pairs, or folders of them")
    from transformer_jax.tools.word_vectors.vector_evaluation import evaluate_vectors, read_test_sets

    test_sets = read_test_sets(names)
    report = evaluate_vectors(_load(values), test_sets)
    print(report.table())
    if values.json:
        write_whole(Path(values.json).expanduser(), json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n")
        print(f"\n{values.json}")
    if uncovered := report.without_coverage():
        raise DataError(
            f"{', '.join(uncovered)}: coverage is 0, since no question or pair has vectors for all its words"
        )


def _neighbors(values: flags.Values, words: list[str]) -> None:
    from transformer_jax.tools.word_vectors.keyed_vectors import find, require_word

    vectors = _load(values)
    unknown = [word for word in words if find(vectors, word) is None]
    listed = [word for word in words if word not in unknown]
    if not listed:
        require_word(vectors, unknown[0])
    for number, word in enumerate(listed):
        print(("\n" if number else "") + word)
        nearest = vectors.most_similar(require_word(vectors, word), topn=values.count)
        rows = [("  " + other, f"{cosine:.4f}") for other, cosine in nearest]
        print(text_table(rows, "lr") if rows else "  no other word has a vector")
    if unknown:
        print(f"\n{len(unknown)} of {len(words)} words have no vector: {', '.join(unknown)}")


def _convert(values: flags.Values, _: list[str]) -> None:
    from transformer_jax.tools.word_vectors.keyed_vectors import require_format, write_vectors

    require_format(values.output, values.output_format)
    vectors = _load(values)
    file = write_vectors(values.output, vectors, values.output_format)
    print(f"{len(vectors):,} words, {vectors.vector_size} dimensions")
    print(file)


def _map(values: flags.Values, _: list[str]) -> None:
    from transformer_jax.tools.pictures.word_map import draw_word_map, word_map_page
    from transformer_jax.tools.word_vectors.keyed_vectors import find
    from transformer_jax.tools.word_vectors.projection import project

    vectors = _load(values)
    forms = {word: find(vectors, word) for word in values.words}
    unknown = [word for word, form in forms.items() if form is None]
    shown = list(dict.fromkeys(filter(None, forms.values()))) if values.words else vectors.index_to_key[: values.top]
    points = project(vectors.vectors[[vectors.key_to_index[word] for word in shown]], values.method, values.seed)
    near = [[other for other, _ in vectors.most_similar(word, topn=6)] for word in shown]
    stem = str(values.output).removesuffix(".png").removesuffix(".html")
    title = f"{len(shown):,} words, {'t-SNE' if values.method == 'tsne' else 'principal components'}"
    picture = draw_word_map(shown, points, f"{stem}.png", title=title)
    page = Path(f"{stem}.html")
    write_whole(page, word_map_page(shown, points, near, title))
    if unknown:
        print(f"{len(unknown)} of {len(values.words)} words have no vector: {', '.join(unknown)}")
    print(f"{picture}\n{page}")


ACTIONS = {
    "evaluate": Action(_evaluate, "no words", 0, 0, ("test_sets", "json")),
    "neighbors": Action(_neighbors, "one word or more", 1, 1_000, ("count",)),
    "convert": Action(_convert, "no words", 0, 0, ("output", "output_format")),
    "map": Action(_map, "no words; give --words", 0, 0, ("output", "method", "top", "words", "seed")),
}


@flags.command(
    flags.arguments("ACTION WORD ...", f"{', '.join(ACTIONS)}, and the words it takes"),
    flags.string("vectors", None, "file of word vectors"),
    flags.string("format", "", "of --vectors: word2vec, word2vec_binary or glove"),
    flags.string("workdir", None, "instead of --vectors: folder of a run of word vectors"),
    flags.string("checkpoint", "best", f"of --workdir: {CHECKPOINT_MEANING}"),
    flags.integer("limit", 0, "take only the first words, usually the most frequent (0: all)", lower_bound=0),
    flags.strings("test_sets", [], "evaluate: files, or folders of files (default: data.test_sets of the run)"),
    flags.string("json", None, "evaluate: also write the report into this file"),
    flags.integer("count", 10, "neighbors: how many", lower_bound=1),
    flags.string("output", None, "convert, map: file to write"),
    flags.string("output_format", "", "convert: word2vec, word2vec_binary or glove"),
    flags.enum("method", "pca", ["pca", "tsne"], "map: projection to two dimensions"),
    flags.integer("top", 300, "map: number of words, the first ones", lower_bound=3),
    flags.strings("words", [], "map: these words instead"),
    flags.integer("seed", 0, "map: seed of t-SNE", lower_bound=0),
)
def vectors(values: flags.Values) -> int:
    """Evaluate, search, convert and draw word vectors, with gensim.

    Example:
        transformer-jax vectors evaluate  --vectors=glove.txt --test_sets=questions-words.txt
        transformer-jax vectors neighbors Berlin Paris --vectors=glove.txt
        transformer-jax vectors convert   --vectors=glove.txt --output=glove.bin
        transformer-jax vectors map       --vectors=glove.txt --output=map --method=tsne --top=500

    Vectors come from a file, --vectors, or from a run of word vectors, --workdir. A file is .bin
    (word2vec's binary format), or text, whose first line tells word2vec and GloVe apart. Both may
    be .gz or .xz. Words are looked up as written, else in lower case. Similarity is the cosine.
    Needs the extra vectors: pip install gensim scikit-learn scipy.

    evaluate: accuracy of analogies (d is the word nearest to b - a + c) by section, or Spearman's
    rank correlation with judged similarity, whatever the case of words, with coverage, and how test
    sets were read. The columns of pairs are in the heading (word1, word2, SimLex999), or are the
    first two and the first with numbers. Fails if a test set has no word of the vectors.
    neighbors: the words nearest to every WORD. convert: --output=FILE.bin, .txt (word2vec), or
    --output_format=glove. map: the words in two dimensions: OUTPUT.png, and OUTPUT.html, a page
    with search that needs no network.
    """
    action, words = chosen_action("vectors", ACTIONS, values, SOURCE_FLAGS)
    if "output" in action.flags and not values.output:
        raise ConfigError("--output", "is required", "give a file to write")
    for flag in ("output", "json"):
        require_local(getattr(values, flag) or "", f"--{flag}")
    # Before JAX starts.
    if bool(values.vectors) == bool(values.workdir):
        raise ConfigError("--vectors", "give a file of word vectors, or a run of them with --workdir, one of the two")
    if values.workdir:
        settings_of_run(values.workdir, "vectors")
    action.do(values, words)
    return 0

"""Count the words of documents: one-hot, bag of words, n-grams or TF-IDF, as a sparse matrix.

Example:
    transformer-jax vectorize --kind=bag_of_words --input=docs.txt --output=counts
    transformer-jax vectorize --kind=ngrams --n=3 --characters --input=docs.txt.gz --output=counts --min_documents=5
    transformer-jax vectorize --kind=tfidf --input=docs.txt --output=weights --query="a dog in the snow"
    transformer-jax vectorize --kind=tfidf --input=three.txt --output=weights --picture=weights.png --cooccurrences=pairs.png

A document is a line of --input (plain, .gz or .xz). Writes OUTPUT.npz, a SciPy sparse matrix [documents, terms], and
OUTPUT.vocabulary.txt, a term a line in the order of the columns. Prints the shape, the density, and the terms of
--document with the largest weights. --query prints the documents with the largest cosine.

one_hot: 1 where a term occurs. bag_of_words: how often. ngrams: how often, of sequences of 1 to --n words (or --characters).
tfidf: counts times ln((1 + documents) / (1 + documents with the term)) + 1, each row divided by its Euclidean norm. Words are
scikit-learn's but for one point: those of one letter ("I", "a") are kept. They are lowercased, unless --nolowercase.

The corpus is read twice, some documents at a time; memory holds the vocabulary. With --hashing_columns=N the column of a term
is its hash, which needs none: memory does not grow at all, but terms may share a column and have no names.

Needs scikit-learn: pip install scikit-learn scipy.
"""

from dataclasses import replace
from pathlib import Path

from absl import flags

from transformer_jax.config import ConfigError
from transformer_jax.tools.word_vectors.vectorizers import KINDS, CountingConfig


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_enum("kind", None, KINDS, "what is counted", flag_values=values, required=True)
    flags.DEFINE_string("input", None, "documents, one a line, plain, .gz or .xz", flag_values=values, required=True)
    flags.DEFINE_string("output", None, "the files' path without their endings", flag_values=values, required=True)
    flags.DEFINE_integer(
        "n", None, "ngrams and tfidf: longest sequence (default: 2 for ngrams, else 1)", flag_values=values
    )
    flags.DEFINE_boolean("characters", False, "terms are characters, not words", flag_values=values)
    flags.DEFINE_boolean("lowercase", True, "lowercase the text", flag_values=values)
    flags.DEFINE_integer("min_documents", 1, "leave out terms that fewer documents have", flag_values=values)
    flags.DEFINE_integer("max_terms", 0, "keep so many most frequent terms; 0: all", flag_values=values, lower_bound=0)
    flags.DEFINE_integer(
        "hashing_columns", 0, "hash terms to so many columns; 0: no", flag_values=values, lower_bound=0
    )
    flags.DEFINE_integer(
        "document", 1, "print the top terms of this one, from 1; 0: none", flag_values=values, lower_bound=0
    )
    flags.DEFINE_string("query", None, "print the documents nearest to this text", flag_values=values)
    flags.DEFINE_integer("count", 10, "how many terms and documents to print", flag_values=values, lower_bound=1)
    flags.DEFINE_string("picture", None, "PNG: draw the matrix, of a few sentences", flag_values=values)
    flags.DEFINE_string("cooccurrences", None, "PNG: draw which words are near each other", flag_values=values)
    flags.DEFINE_integer("window", 5, "of --cooccurrences: words apart", flag_values=values, lower_bound=1)


def run(values: flags.FlagValues) -> int:
    """Counts; 0."""
    config = _counting_config(values)
    path, stem = Path(values.input).expanduser(), Path(values.output).expanduser()
    if stem.is_dir() or values.output.endswith("/"):
        raise ConfigError(f"--output: {stem} is a folder; give the files a name in it, for example {stem / 'counts'}")
    from transformer_jax.evaluation.text_table import aligned_table
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.tools.word_vectors.counted_corpus import count_corpus

    require_writable(stem.parent, "--output")
    if values.picture and config.hashing_columns:
        raise ConfigError("--picture: hashed terms have no names to draw; leave --hashing_columns out")
    result = count_corpus(path, config, stem, document=values.document, query=values.query, count=values.count)
    (rows, columns), written = result.matrix.shape, result.matrix
    remark = f"{written.num_empty_rows:,} of them without any term" if written.num_empty_rows else ""
    table = [
        ("documents", f"{rows:,}", remark),
        ("columns", f"{columns:,}", "hashed" if config.hashing_columns else "terms"),
        ("values", f"{written.num_values:,}", f"density {100 * written.density:.4g} %"),
    ]
    print(aligned_table(table, "lrl"))
    if values.document:
        print(f"\ntop terms of document {values.document:,}: {_shortened(result.document)}")
        print(
            aligned_table(
                [
                    (f"  {term!r}" if config.characters else f"  {term}", f"{weight:.6g}")
                    for term, weight in result.top_terms
                ],
                "lr",
            )
        )
    if values.query is not None:
        print(f"\nnearest to {values.query!r}" + (", which has no known term" if not result.nearest else ""))
        nearest = [(f"  {cosine:.4f}", f"{row:,}", _shortened(text)) for cosine, row, text in result.nearest]
        print(aligned_table(nearest, "lrl") if nearest else "  none")
    files = [f"{stem}.npz"] + ([] if config.hashing_columns else [f"{stem}.vocabulary.txt"])
    if values.picture or values.cooccurrences:
        files += _draw(values, path, config, stem)
    print("\n" + "\n".join(files))
    return 0


def _counting_config(values: flags.FlagValues) -> CountingConfig:
    """What the flags say, checked."""
    default = 2 if values.kind == "ngrams" else 1
    return CountingConfig(
        values.kind,
        n=default if values.n is None else values.n,
        characters=values.characters,
        lowercase=values.lowercase,
        min_documents=values.min_documents,
        max_terms=values.max_terms,
        hashing_columns=values.hashing_columns,
    )


def _draw(values: flags.FlagValues, path: Path, config: CountingConfig, stem: Path) -> list[str]:
    """The pictures, of few and short documents; their paths."""
    from transformer_jax.data.text_files import read_lines
    from transformer_jax.tools.pictures.heat_map import draw_heat_map, require_drawable
    from transformer_jax.tools.word_vectors.cooccurrence_table import cooccurrence_table
    from transformer_jax.tools.word_vectors.sparse_files import read_sparse, vocabulary_file
    from transformer_jax.tools.word_vectors.vectorizers import analyzer

    drawn = []
    if values.picture:
        matrix = read_sparse(Path(f"{stem}.npz"))
        require_drawable(matrix.shape, "--picture")
        terms = list(read_lines(vocabulary_file(stem)))
        texts = [_shortened(text, 40) for text in read_lines(path)]
        drawn.append(draw_heat_map(matrix.toarray(), values.picture, rows=texts, columns=terms, title=values.kind))
    if values.cooccurrences:
        words, table = cooccurrence_table(
            read_lines(path), analyzer(replace(config, kind="bag_of_words", n=1)), values.window
        )
        require_drawable(table.shape, "--cooccurrences")
        title = f"words at most {values.window} apart"
        drawn.append(draw_heat_map(table, values.cooccurrences, rows=words, columns=words, title=title))
    return [str(each) for each in drawn]


def _shortened(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

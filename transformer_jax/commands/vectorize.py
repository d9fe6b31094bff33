import sys
from dataclasses import fields
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.config.languages import lack_spaces
from transformer_jax.data.text_files import read_lines
from transformer_jax.evaluation.text_table import text_table
from transformer_jax.runtime.atomic_files import require_local, require_writable
from transformer_jax.tools.word_vectors.vectorizers import (
    KINDS,
    Counted,
    CountingConfig,
    cooccurrence_table,
    count_documents,
    write_counts,
)


@flags.command(
    flags.enum("kind", None, KINDS, "values of the matrix", required=True),
    flags.string("input", None, "documents, one a line, plain, .gz or .xz", required=True),
    flags.string("output", None, "path of the files, without their suffixes", required=True),
    flags.integer("n", None, "ngrams and tfidf: longest sequence (default: 2 for ngrams, else 1)"),
    flags.boolean("characters", False, "terms are characters, not words"),
    flags.boolean("lowercase", True, "lowercase the text"),
    flags.integer("min_documents", 1, "leave out terms that fewer documents have"),
    flags.integer("max_terms", 0, "number of most frequent terms to keep; 0: all", lower_bound=0),
    flags.integer("document", 1, "print the top terms of this document, from 1; 0: none", lower_bound=0),
    flags.string("query", None, "print the documents nearest to this text"),
    flags.integer("count", 10, "how many terms and documents to print", lower_bound=1),
    flags.string("picture", None, "PNG: draw the matrix, of a few sentences"),
    flags.string("cooccurrences", None, "PNG: draw how often words of the vocabulary are near each other"),
    flags.integer("window", 5, "of --cooccurrences: maximum distance in words", lower_bound=1),
)
def vectorize(values: flags.Values) -> int:
    """Vectorize documents as a sparse matrix: one-hot, bag of words, n-grams or TF-IDF.

    Example:
        transformer-jax vectorize --kind=ngrams --n=3 --characters --input=docs.txt.gz --output=counts --min_documents=5
        transformer-jax vectorize --kind=tfidf --input=docs.txt --output=weights --query="a dog in the snow"
        transformer-jax vectorize --kind=tfidf --input=few.txt --output=tfidf --picture=tfidf.png --cooccurrences=pairs.png

    A document is a line of --input (plain, .gz or .xz). Writes OUTPUT.npz, a SciPy sparse matrix [documents, terms],
    and OUTPUT.vocabulary.txt, a term a line in the order of the columns. Prints the shape, the density, and the terms of
    --document with the largest weights. --query prints the documents with the largest cosine.

    one_hot: 1 where a term occurs. bag_of_words: counts. ngrams: counts of sequences of 1 to --n words (or --characters).
    tfidf: counts times (ln((1 + documents) / (1 + documents with the term)) + 1), each row divided by its Euclidean norm. A
    word is a sequence of letters with their marks, digits and _, also of one letter. Words are lowercase, unless --nolowercase.

    The vocabulary and the matrix are in memory, not the text. Needs scikit-learn: pip install scikit-learn scipy.
    """
    stated = {field.name: values[field.name].value for field in fields(CountingConfig)}
    default = 2 if values.kind == "ngrams" else 1
    config = CountingConfig(**stated | {"n": default if values.n is None else values.n})
    path, stem = Path(values.input).expanduser(), Path(values.output).expanduser()
    if stem.is_dir() or values.output.endswith("/"):
        raise ConfigError(f"--output: {stem} is a folder; give the files a name in it, for example {stem / 'counts'}")
    if values.cooccurrences and config.characters:
        raise ConfigError("--cooccurrences: counts words, not characters; leave out --characters")
    for flag in ("picture", "cooccurrences"):
        require_local(values[flag].value or "", f"--{flag}")
    require_writable(stem.parent, "--output")
    if path.is_fifo() and (values.document or values.query is not None or values.picture or values.cooccurrences):
        remedy = "give a file, or --document=0 without --query, --picture and --cooccurrences"
        raise ConfigError(f"--input: {path} is a pipe, which cannot be read twice; {remedy}")
    counted = count_documents(read_lines(path), config, str(path))
    matrix = counted.matrix
    # Not sequences of them.
    words = [term for term in counted.terms if " " not in term]
    if not config.characters and lack_spaces(words):
        problem = "no spaces between words, so terms are whole phrases; --characters counts characters"
        print(f"--input: {problem}", file=sys.stderr)
    for flag, shape in (("picture", matrix.shape), ("cooccurrences", (len(words), len(words)))):
        if values[flag].value:
            from transformer_jax.tools.pictures.panels import require_drawable

            require_drawable(shape, f"--{flag}")
    result = write_counts(counted, path, stem, document=values.document, query=values.query, count=values.count)
    rows, columns = matrix.shape
    empty = int((matrix.sum(axis=1) == 0).sum())
    table = [
        ("documents", f"{rows:,}", f"{empty:,} of them without any term" if empty else ""),
        ("columns", f"{columns:,}", "terms"),
        ("values", f"{matrix.nnz:,}", f"density {100 * matrix.nnz / (rows * columns):.4g} %"),
    ]
    print(text_table(table, "lrl"))
    if values.document:
        print(f"\ntop terms of document {values.document:,}: {_shortened(result.document)}")
        shown = [(repr(term) if config.characters else term, weight) for term, weight in result.top_terms]
        print(text_table([(f"  {term}", f"{weight:.6g}") for term, weight in shown], "lr"))
    if values.query is not None:
        print(f"\nnearest to {values.query!r}" + (", which has no known term" if not result.nearest else ""))
        nearest = [(f"  {cosine:.4f}", f"{row:,}", _shortened(text)) for cosine, row, text in result.nearest]
        print(text_table(nearest, "lrl") if nearest else "  none")
    files = [f"{stem}.npz", f"{stem}.vocabulary.txt"]
    if values.picture or values.cooccurrences:
        files += _draw(values, path, config, counted, words)
    print("\n" + "\n".join(files))
    return 0


def _draw(values: flags.Values, path: Path, counting: CountingConfig, counted: Counted, words: list[str]) -> list[str]:
    """Draws the pictures, for a few short documents; returns their paths."""
    from transformer_jax.tools.pictures.panels import draw_heat_map

    drawn = []
    if values.picture:
        texts = [_shortened(text, 40) for text in read_lines(path)]
        matrix = counted.matrix.toarray()
        drawn.append(draw_heat_map(matrix, values.picture, rows=texts, columns=list(counted.terms), title=values.kind))
    if values.cooccurrences:
        table = cooccurrence_table(read_lines(path), counting, words, values.window)
        title = f"words at most {values.window} apart"
        drawn.append(draw_heat_map(table, values.cooccurrences, rows=words, columns=words, title=title))
    return [str(each) for each in drawn]


def _shortened(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

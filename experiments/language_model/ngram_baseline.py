"""How many bits per byte do counting and compressing take on the text that a language model is
scored on?

    python experiments/language_model/ngram_baseline.py --data=enwiki.txt.xz --lmplz=kenlm/build/bin/lmplz

Scores the held-out documents of one file with n-gram models of orders 1 to 5, modified Kneser-Ney
(Chen and Goodman 1998), by KenLM (Heafield et al. 2013), and with ``xz -9e``. Which bytes are held
out, and which tokens there are, is decided by the code that language models are trained with: with
``--workdir`` of a run its own data settings and its own tokenizer, otherwise those of
``--held_out`` and a tokenizer that is trained here. Writes table.md to ``--output``.

KenLM's estimator is a program of its own: build ``lmplz`` from https://github.com/kpu/kenlm (needs
Boost), and install the Python module ``kenlm`` from the same place. See README.md.
"""

import argparse
import lzma
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from transformer_jax.config import TokenizerConfig, load_run_config
from transformer_jax.data.documents import SEPARATORS, NamedTexts
from transformer_jax.data.tokenizers import Tokenizer, load_tokenizers
from transformer_jax.data.tokenizers.tokenizer_training import train_text_tokenizer

HERE = Path(__file__).resolve().parent
ORDERS = (1, 2, 3, 4, 5)
DOCUMENTS_AT_ONCE = 1000
# Larger than any text here: the whole training text can be referred to. xz -9e itself looks back 64
# MiB.
WHOLE_DICTIONARY = 1 << 28


def main() -> None:
    """Counts, compresses, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text, plain, .gz or .xz, a document a line")
    parser.add_argument("--held_out", type=float, default=0.05, help="fraction of the bytes at the end that is scored")
    parser.add_argument("--workdir", type=Path, help="a run of a language model whose data and tokenizer are taken")
    parser.add_argument("--vocabulary_size", type=int, default=8192, help="of the tokenizer, without --workdir")
    parser.add_argument("--lmplz", type=Path, required=True, help="KenLM's estimator")
    parser.add_argument("--memory", default="50%", help="memory of the estimator, as its option -S")
    parser.add_argument("--orders", default=",".join(map(str, ORDERS)))
    parser.add_argument("--no_xz", action="store_true", help="leave out xz, which takes minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    source, tokenizer = source_and_tokenizer(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    results: dict = {"validation bytes": sum(each.num_bytes for each in source.documents("validation"))}
    results["training bytes"] = sum(each.num_bytes for each in source.documents("train"))
    bits: dict[str, float] = {}
    if not arguments.no_xz:
        bits |= xz_bits(source)
    with tempfile.TemporaryDirectory() as folder:
        files = {split: write_tokens(source, split, tokenizer, Path(folder)) for split in ("train", "validation")}
        for order in map(int, arguments.orders.split(",")):
            name = f"{order}-gram, modified Kneser-Ney"
            model = estimate(files["train"], order, tokenizer.vocabulary_size, arguments.lmplz, arguments.memory)
            bits[name] = ngram_bits(model, order, files["validation"])
            model.unlink()
            print(f"{name}: {bits[name] / results['validation bytes']:.4f} bits per byte", flush=True)
    results["vocabulary size"] = tokenizer.vocabulary_size
    results["bits per byte"] = {name: value / results["validation bytes"] for name, value in bits.items()}
    (arguments.output / "table.md").write_text(table(results))
    print(table(results))


def source_and_tokenizer(arguments: argparse.Namespace) -> tuple[NamedTexts, Tokenizer]:
    """What is scored, and in which tokens."""
    if arguments.workdir:
        config = load_run_config(arguments.workdir)
        source = NamedTexts({"train": arguments.data}, config.data.documents, config.data.held_out)
        return source, load_tokenizers(arguments.workdir / "tokenizer").source
    source = NamedTexts({"train": arguments.data}, "lines", arguments.held_out)
    settings = TokenizerConfig("bpe", arguments.vocabulary_size, training_sentences=30_000)
    return source, train_text_tokenizer(settings, source, "train", seed=0)


def token_lines(source: NamedTexts, split: str, tokenizer: Tokenizer) -> Iterator[str]:
    """A document a line: the ids of its tokens, separated by spaces, as words of the n-gram
    model."""
    texts: list[str] = []
    for document in source.documents(split):
        texts.append(document.text)
        if len(texts) == DOCUMENTS_AT_ONCE:
            yield from map(words, tokenizer.encode_batch(texts))
            texts = []
    yield from map(words, tokenizer.encode_batch(texts))


def words(ids: list[int]) -> str:
    """The ids of a document as words."""
    return " ".join(map(str, ids))


def write_tokens(source: NamedTexts, split: str, tokenizer: Tokenizer, folder: Path) -> Path:
    """The token lines of a split as a file, tokenized once for all orders."""
    path = folder / f"{split}.txt"
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in token_lines(source, split, tokenizer))
    return path


def estimate(train: Path, order: int, vocabulary_size: int, lmplz: Path, memory: str) -> Path:
    """The file of an n-gram model (ARPA) of these lines.

    The vocabulary is closed: what the training text does not have of it (single bytes, mostly)
    shares the probability of unknown words, as ``--vocab_pad`` counts them. ``--discount_fallback``
    is for order 1, where counts of counts may not support an estimate of the discounts.
    """
    model = train.with_name(f"{order}.arpa")
    options = ["-o", str(order), "-S", memory, "-T", str(train.parent), "--text", str(train), "--arpa", str(model)]
    options += ["--discount_fallback", "--vocab_pad", str(vocabulary_size)]
    done = subprocess.run([lmplz, *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{lmplz} failed with status {done.returncode}: {done.stderr[-500:]}")
    return model


def ngram_bits(model: Path, order: int, validation: Path) -> float:
    """Bits of the held-out documents, their ends included, by an n-gram model."""
    import kenlm

    # KenLM estimates unigrams, and reads models from bigrams on.
    score = unigram_score(model) if order == 1 else kenlm.Model(str(model)).score
    with validation.open() as lines:
        return -sum(score(line.rstrip("\n")) for line in lines) / math.log10(2)


def unigram_score(model: Path) -> Callable[[str], float]:
    """The decimal log-probability of a line and its end, from the unigrams of a model file
    (ARPA)."""
    rows = (line.split("\t")[:2] for line in model.read_text().split("\n") if "\t" in line)
    log10 = {word: float(value) for value, word in rows}
    return lambda line: sum(log10.get(word, log10["<unk>"]) for word in [*line.split(), "</s>"])


def xz_bits(source: NamedTexts) -> dict[str, float]:
    """Bits of the held-out text: compressed alone, and by how much it makes the compressed training
    text longer.

    The second is the fair one, since it too has seen the training text; with the dictionary of
    ``xz -9e`` the last 64 MiB of it, with a larger one all. Raw streams, so that headers and
    checksums count for nothing.
    """
    train, validation = (
        "".join(each.text + SEPARATORS[source.documents_are] for each in source.documents(split)).encode()
        for split in ("train", "validation")
    )
    found = {"xz -9e, held-out text alone": compressed(validation)}
    found["xz -9e, after the training text"] = compressed(train + validation) - compressed(train)
    whole = [compressed(text, WHOLE_DICTIONARY) for text in (train + validation, train)]
    found["xz -9e with a dictionary of 256 MiB, after the training text"] = whole[0] - whole[1]
    return {name: 8.0 * size for name, size in found.items()}


def compressed(text: bytes, dictionary: int = 0) -> int:
    """Bytes of ``xz -9e``."""
    options: dict = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}
    if dictionary:
        options["dict_size"] = dictionary
    return len(lzma.compress(text, format=lzma.FORMAT_RAW, filters=[options]))


def table(results: dict) -> str:
    """Markdown, most bits first."""
    lines = ["| model | bits per byte |", "|---|---:|"]
    by_bits = sorted(results["bits per byte"].items(), key=lambda item: -item[1])
    return "\n".join([*lines, *(f"| {name} | {bits:.4f} |" for name, bits in by_bits)]) + "\n"


if __name__ == "__main__":
    main()

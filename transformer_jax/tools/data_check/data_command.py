from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, DataError, resolve

# Maximum number of tokens of a side. The recipe ``text`` sets 95 to 191 by corpus and budget.
TOKENS = "127"


@flags.command(
    flags.arguments("check FILES ...", "two files of a pair, a .tsv, one text, or a folder"), flags.overrides
)
def data(values: flags.Values) -> int:
    """Check text before training: faults, and the lines that training would leave out.

    Example:
        transformer-jax data check corpus/train.{en,de}
        transformer-jax data check corpus
        transformer-jax data check corpus/train.en --config.data.max_source_tokens=63

    Give two files with line n of one the translation of line n of the other (train.en train.de, or
    two .txt as a.txt,b.txt), a .tsv of pairs, one text, or a folder of them, plain, .gz or .xz.
    Nothing is changed. The table has the number of lines with a fault, and the first ones, and the
    lines of a sample that the filters of training would leave out. The filters allow 127 tokens a
    side (with --budget 95 to 191) unless you set data.max_source_tokens and data.max_target_tokens.
    The languages of lines need pip install py3langid. docs/text_in_text_out.md explains all.

    Faults: lines that cannot be read or that the other side lacks, shifted lines, reversed sides,
    lines that do not translate each other, empty and long lines, another script or language, other
    forms than NFC, control, zero-width and full-width characters, UTF-8 read as Latin-1, HTML,
    boilerplate, copies, lengths that do not match, and duplicates. A check that needs more lines is
    "not checked". Several texts are compared with the largest one: swapped sides, other words,
    another form.

    Exit status 1 if training would be useless or fail: one side is shifted against the other, all
    lines of a side are empty or copies, sides are swapped, or have different numbers of lines,
    lines cannot be read, or no vocabulary can be learned.
    """
    action, *names = values.arguments or [""]
    if action != "check" or not names:
        raise ConfigError("data", "write data check FILES, for example data check corpus/train.{en,de}")
    from transformer_jax.tools.data_check.corpus_check import (
        check_text,
        compare_texts,
        files_of_texts,
        remarks_on_pairs,
        remarks_on_size,
    )

    texts = files_of_texts(names)
    limits = [("data.train", "a.en,a.de"), ("data.max_source_tokens", TOKENS), ("data.max_target_tokens", TOKENS)]
    # These settings must not limit the text.
    limits += [("batching.tokens_per_update", str(2**30)), ("model.tying", "none")]
    config = resolve("text", [*limits, *flags.overrides_of(values)])
    status, pairs = 0, []
    for files in texts:
        try:
            table, is_serious, text = check_text(files, config.data, config.tokenizer)
        except DataError as error:
            print(f"SERIOUS: {error}\n")
            status = 1
            continue
        print(f"{table}\n")
        status |= is_serious
        pairs += [text] if text else []
    if len(pairs) > 1:
        remarks, is_serious = compare_texts(pairs)
        print("\n".join(remarks))
        status |= is_serious
    for remark in [*remarks_on_size(pairs), *remarks_on_pairs(texts)]:
        print(remark)
    return int(status)

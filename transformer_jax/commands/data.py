"""Check text before training: what is wrong with it, where, and what training would leave out.

Example:
    transformer-jax data check corpus/train.{en,de}
    transformer-jax data check corpus/all.tsv corpus/dev.en,corpus/dev.de
    transformer-jax data check corpus
    transformer-jax data check corpus/train.en --config.data.max_source_tokens=63

Give two files of which line n of one translates line n of the other, a .tsv of pairs, one text, or a folder of them
(train.en, train.de, dev.en ...); plain or .gz. Nothing is changed. Each line is compared with the rest of the text. The table
has the faults, how many lines have them, and the first of these: another script or language, copies, duplicates, boilerplate,
lengths that do not fit, control, zero-width and full-width characters, HTML; and what the filters of training would leave out,
of a sample, in tokens of a vocabulary that is learned from it.

Exit status 1 where training makes no sense: one side is shifted by up to three lines against the other (with the line from
which on), the sides have different numbers of lines, or lines cannot be read.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from transformer_jax.commands.flag_parsing import define_arguments, define_override_flag, overrides_of
from transformer_jax.config import ConfigError, DataError, resolve

TOKENS = "127"
"""Most tokens of a side in the recipe text."""


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_arguments(values, "check FILES ...", "two files of a pair, a .tsv, one text, or a folder")
    define_override_flag(values)


def run(values: flags.FlagValues) -> int:
    """Prints a table for each text; 1 where one is not fit for training."""
    action, *given = values.arguments or [""]
    if action != "check" or not given:
        raise ConfigError("data: write data check FILES, for example data check corpus/train.{en,de}")
    texts = _texts(given)
    limits = [("data.train", "a.en,a.de"), ("data.max_source_tokens", TOKENS), ("data.max_target_tokens", TOKENS)]
    config = resolve("text", [*limits, *overrides_of(values)])
    from transformer_jax.data.corpus_check import check_text

    status = 0
    for files in texts:
        try:
            table, is_serious = check_text(files, config.data, config.tokenizer)
        except DataError as error:
            print(f"SERIOUS: {error}\n")
            status = 1
            continue
        print(f"{table}\n")
        status |= is_serious
    return int(status)


def _texts(given: Sequence[str]) -> list[list[Path]]:
    """The files of each text: one, or the two sides of a pair."""
    texts: list[list[Path]] = []
    alone: list[Path] = []
    for name in given:
        path = Path(name).expanduser()
        if path.is_dir():
            texts += _of_folder(path)
        elif re.search("[,{]", name):
            from transformer_jax.data.parallel_text import named_files

            texts.append(list(named_files(name, "data check")))
        else:
            alone.append(_found(path))
    if len(alone) == 2 and not any(_ending(path) in ("tsv", "txt") for path in alone):
        return [*texts, alone]
    return [*texts, *_by_name(alone)]


def _found(path: Path) -> Path:
    for each in (path, path.with_name(f"{path.name}.gz")):
        if each.is_file():
            return each
    raise ConfigError(f"data check: {path} is neither a file nor a folder")


def _ending(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]


def _by_name(paths: Sequence[Path]) -> list[list[Path]]:
    """Two files that differ in the language at the end of their names are a pair."""
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        is_alone = _ending(path) in ("tsv", "txt")
        stem = path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(f".{_ending(path)}")
        groups.setdefault(path if is_alone else path.with_name(stem), []).append(path)
    for common, files in groups.items():
        if len(files) > 2:
            names = ", ".join(file.name for file in files)
            raise ConfigError(f"data check: {common} has {len(files)} languages, {names}; name two files")
    return list(groups.values())


def _of_folder(folder: Path) -> list[list[Path]]:
    """The pairs, the .tsv and the .txt of a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    texts = [files for files in _by_name(files) if len(files) == 2 or _ending(files[0]) in ("tsv", "txt")]
    if not texts:
        raise ConfigError(
            f"data check: {folder} has no pair of files such as train.en and train.de, no .tsv and no .txt"
        )
    return texts

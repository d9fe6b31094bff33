"""Write one HTML page in which to explore what a trained model attends to; it needs no network.

Example:
    transformer-jax explore --workdir=runs/m30k --text="A man is riding a red bike." --output=bike.html
    transformer-jax explore --workdir=runs/m30k --text="Two dogs play." --target="Zwei Hunde spielen." --output=dogs.html
    transformer-jax explore --workdir=runs/m30k --text="A man sleeps." --text="A dog." --against=runs/rnn,runs/m30k:500

Several --text make one page, as do the lines of --texts=FILE. --target is the translation to read, one for every --text in
their order; otherwise each run reads its own translation. --against=RUN[:CHECKPOINT],... puts other runs, or other checkpoints,
beside it. --split averages every head over sentences of the run's data, --gold measures its alignment error rate.

With --serve (pip install flask) nothing is written: the page is served on 127.0.0.1, where every other
continuation of the search can be asked for, and every other text. docs/explorer.md explains the views.
"""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, run_config, split_checkpoint
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.json_text import is_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from transformer_jax.evaluation.word_alignment import GoldAlignment
    from transformer_jax.tools.explorer.head_statistics import HeadStatistics
    from transformer_jax.tools.explorer.page import Page
    from transformer_jax.tools.explorer.readers import OpenedReader, Reader
    from transformer_jax.tools.explorer.searches import Forced

    Aligned = tuple[list[tuple[str, str]], list[GoldAlignment]]


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_run_flags(values)
    flags.DEFINE_multi_string("text", [], "a text to read; may be given several times", flag_values=values)
    flags.DEFINE_string("texts", None, "file of texts, one a line, plain or .gz", flag_values=values)
    flags.DEFINE_multi_string("target", [], "the translation to read, one for every --text", flag_values=values)
    flags.DEFINE_list("against", [], "RUN[:CHECKPOINT],...: other runs that read the same texts", flag_values=values)
    flags.DEFINE_boolean(
        "gradients", True, "gradient x input too, a backward pass for every target token", flag_values=values
    )
    flags.DEFINE_boolean("search", True, "the tree of the beam search too", flag_values=values)
    flags.DEFINE_integer(
        "alternatives", 24, "tokens that the search did not take, forced ahead", flag_values=values, lower_bound=0
    )
    flags.DEFINE_string("split", None, "average every head over sentences of this split too", flag_values=values)
    flags.DEFINE_integer("sentences", 200, "how many of the split", flag_values=values, lower_bound=1)
    flags.DEFINE_string("gold", None, "manual alignments: the error rate of every head", flag_values=values)
    flags.DEFINE_string("gold_source", None, "file of the source sentences of --gold", flag_values=values)
    flags.DEFINE_string("gold_target", None, "file of their translations", flag_values=values)
    flags.DEFINE_integer(
        "first_word", 0, "number of the first word in the gold file", flag_values=values, lower_bound=0, upper_bound=1
    )
    flags.DEFINE_boolean("serve", False, "serve the page from the run, on 127.0.0.1 only", flag_values=values)
    flags.DEFINE_integer(
        "port", 8000, "where to serve; 0 is any free port", flag_values=values, lower_bound=0, upper_bound=65535
    )
    flags.DEFINE_string("output", None, "the page (default: explore.html in the run directory)", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Writes the page, or serves it; 0."""
    from transformer_jax.runs.run_directory import ChosenRun

    chosen = [ChosenRun(values.workdir, run_config(values), values.checkpoint)]
    for text in values.against:
        folder, checkpoint = split_checkpoint(text, "--against")
        chosen.append(ChosenRun(folder, run_config(values, folder), checkpoint or values.checkpoint))
    texts = _texts(values)
    targets = values.target or [None] * len(texts)
    if len(targets) != len(texts):
        raise ConfigError(f"--target: {len(targets)} for {len(texts)} texts; give one for every --text, or none")
    aligned = _gold_pairs(values)
    # What can fail at once does, before anything is computed.
    listener = _listener(values) if values.serve else None
    path = None if values.serve else _output(values)

    from transformer_jax.runtime.atomic_files import write_whole
    from transformer_jax.runtime.compilation_cache import start_jax
    from transformer_jax.tools.explorer.readers import open_reader

    start_jax(chosen[0].config.data.cache_directory)
    opened = [open_reader(each, values.average) for each in chosen]
    tables = [_tables(values, each.reader, aligned) for each in opened]
    page = _page(values, opened, tables, list(zip(texts, targets, strict=True)))
    if listener:
        return _serve(values, opened, tables, page, listener)
    assert path is not None
    write_whole(path, page.html())
    print(path)
    return 0


def _output(values: flags.FlagValues) -> Path:
    """The file to write; raises ConfigError where it is no page or its folder cannot be written."""
    from transformer_jax.runs.run_directory import RunDirectory
    from transformer_jax.runtime.atomic_files import require_writable

    path = Path(values.output or RunDirectory(values.workdir).path / "explore.html").expanduser()
    if path.suffix != ".html":
        raise ConfigError(f"--output: {path} is not the name of a page; end it in .html")
    require_writable(path.parent, "--output" if values.output else "--workdir")
    return path


def _listener(values: flags.FlagValues) -> "socket":
    from transformer_jax.tools.explorer.server import listen_locally

    return listen_locally(values.port)


def _tables(values: flags.FlagValues, reader: "Reader", aligned: "Aligned | None") -> "list[HeadStatistics]":
    """The averages of the heads of a run over --split, and their alignment error rates; none where none is asked for."""
    from transformer_jax.tools.explorer.head_statistics import HeadStatistics

    source = f"averages over the first {values.sentences} of {values.split}"
    of_split = reader.statistics(values.split, values.sentences) if values.split else []
    found = [replace(each, source=source) for each in of_split]
    if aligned:
        rates = reader.error_rates(*aligned, values.gold)
        source = f"{len(aligned[0])} pairs of {Path(values.gold).name}"
        found.append(HeadStatistics("cross", {"alignment": rates}, source))
    return found


def _page(
    values: flags.FlagValues,
    opened: "list[OpenedReader]",
    tables: "list[list[HeadStatistics]]",
    texts: list[tuple[str, str | None]],
) -> "Page":
    """The page of some texts, with the tables of each run."""
    from transformer_jax.tools.explorer.page import Page

    names = [each.name for each in opened]
    page = Page(f"{Path(values.workdir).name}: attention", names, is_served=values.serve)
    for number, (each, statistics) in enumerate(zip(opened, tables, strict=True)):
        for place, (text, target) in enumerate(texts):
            reading = each.reader.read(text, target, with_gradients=values.gradients)
            search = each.reader.search(text, values.alternatives) if values.search else None
            page.add_reading(reading, search, text=place, run=number)
        page.add_statistics(statistics, run=number)
    return page


def _serve(
    values: flags.FlagValues,
    opened: "list[OpenedReader]",
    tables: "list[list[HeadStatistics]]",
    first: "Page",
    listener: "socket",
) -> int:
    """Serves the page, and pages of other texts, until it is interrupted; 0."""
    from transformer_jax.tools.explorer.server import HOST, make_app, make_local_server

    def render(text: str | None) -> str:
        return first.html() if text is None else _page(values, opened, tables, [(text, None)]).html()

    def force(run: int, text: str, prefix: "Sequence[int]") -> "Forced":
        if not 0 <= run < len(opened):
            raise ConfigError(f"run: {run} is not one of {len(opened)} runs, counted from 0")
        return opened[run].reader.forced(text, prefix)

    server = make_local_server(make_app(render, force), listener)
    print(f"http://{HOST}:{server.port}/ until Ctrl-C", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


def _gold_pairs(values: flags.FlagValues) -> "Aligned | None":
    """The pairs of the gold files and their alignments; None where there are none."""
    names = values.gold, values.gold_source, values.gold_target
    if not any(names):
        return None
    if not all(names):
        raise ConfigError("--gold: give --gold_source and --gold_target too, the files whose pairs it aligns")
    from transformer_jax.data.text_files import read_lines
    from transformer_jax.evaluation.word_alignment import read_gold

    sources, targets = (list(read_lines(Path(name))) for name in names[1:])
    gold = read_gold(read_lines(Path(values.gold)), values.gold, values.first_word)
    if not len(sources) == len(targets) == len(gold):
        raise DataError(
            f"{values.gold}: {len(gold)} lines for {len(sources)} and {len(targets)} sentences; line i of each is of pair i"
        )
    return list(zip(sources, targets, strict=True)), gold


def _texts(values: flags.FlagValues) -> list[str]:
    from transformer_jax.data.text_files import read_lines

    texts = [*values.text, *(read_lines(Path(values.texts)) if values.texts else [])]
    if not texts or not all(text.strip() for text in texts):
        raise ConfigError("--text: give a text, or --texts=FILE; none of them may be empty")
    for name, given in (("text", values.text), ("target", values.target)):
        for text in given:
            # A byte that is not UTF-8 comes as half of a surrogate pair.
            if not is_unicode(text):
                raise ConfigError(f"--{name}: {text!a} is not valid UTF-8")
    return texts

"""Write one HTML page in which to explore what a trained model attends to; it needs no network.

Example:
    transformer-jax explore --workdir=runs/m30k --text="A man is riding a red bike." --output=bike.html
    transformer-jax explore --workdir=runs/m30k --text="Two dogs play." --target="Zwei Hunde spielen." --output=dogs.html
    transformer-jax explore --workdir=runs/m30k --text="A man sleeps." --text="A dog." --against=runs/rnn,runs/m30k:500

Several --text make one page, as do the lines of --texts=FILE. --target is the translation to read, one for every --text in
their order; otherwise each run reads its own translation. --against=RUN[:CHECKPOINT],... puts other runs, or other checkpoints,
beside it. --split averages every head over sentences of the run's data, --gold measures its alignment error rate.

With --serve (pip install transformer_jax[explore]) nothing is written: the page is served on 127.0.0.1, where every other
continuation of the search can be asked for, and every other text. docs/explorer.md explains the views.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.run_flags import define_run_flags, run_config, split_checkpoint
from transformer_jax.config import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformer_jax.evaluation.word_alignment import GoldAlignment
    from transformer_jax.explorer.page import Page
    from transformer_jax.explorer.search_tree import Forced
    from transformer_jax.explorer.subjects import OpenedRun

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
    flags.DEFINE_integer("port", 8000, "where to serve; 0 is any free port", flag_values=values, lower_bound=0)
    flags.DEFINE_string("output", None, "the page (default: explore.html in the run directory)", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Writes the page; 0."""
    from transformer_jax.checkpoints.run_directory import ChosenRun, RunDirectory

    chosen = [ChosenRun(values.workdir, run_config(values), values.checkpoint)]
    for text in values.against:
        folder, checkpoint = split_checkpoint(text, "--against")
        chosen.append(ChosenRun(folder, run_config(values, folder), checkpoint or values.checkpoint))
    texts = _texts(values)
    targets = values.target or [None] * len(texts)
    if len(targets) != len(texts):
        raise ConfigError(f"--target: {len(targets)} for {len(texts)} texts; give one for every --text, or none")
    path = Path(values.output or RunDirectory(values.workdir).path / "explore.html").expanduser()
    if path.suffix != ".html":
        raise ConfigError(f"--output: {path} is not the name of a page; end it in .html")

    from transformer_jax.explorer.subjects import open_run
    from transformer_jax.runtime.atomic_files import require_writable, write_whole
    from transformer_jax.runtime.compilation_cache import start_jax

    require_writable(path.parent, "--output" if values.output else "--workdir")
    aligned = _gold_pairs(values)
    start_jax(chosen[0].config.data.cache_directory)
    opened = [open_run(each, values.average) for each in chosen]
    page = _page(values, opened, list(zip(texts, targets, strict=True)), aligned)
    if values.serve:
        return _serve(values, opened, page)
    write_whole(path, page.html())
    print(path)
    return 0


def _page(
    values: flags.FlagValues, opened: "list[OpenedRun]", texts: list[tuple[str, str | None]], aligned: "Aligned | None"
) -> "Page":
    """The page of some texts, with the averages of the heads where they are asked for."""
    from transformer_jax.explorer.page import Page

    names = [each.name for each in opened]
    page = Page(f"{Path(values.workdir).name}: attention", names, is_served=values.serve)
    for number, each in enumerate(opened):
        for place, (text, target) in enumerate(texts):
            reading = each.subject.read(text, target, with_gradients=values.gradients)
            search = each.subject.search(text, values.alternatives) if values.search else None
            page.add_reading(reading, search, text=place, run=number)
            print("\n".join(filter(None, [text, reading.translation])))
        if values.split or aligned:
            of_split = each.subject.statistics(values.split, values.sentences) if values.split else []
            rates = each.subject.error_rates(*aligned, values.gold) if aligned else None
            source = f"the first {values.sentences} of {values.split}" if values.split else values.gold
            page.add_statistics(of_split, run=number, source=source, error_rates=rates)
    return page


def _serve(values: flags.FlagValues, opened: "list[OpenedRun]", first: "Page") -> int:
    """Serves the page, and pages of other texts, until it is interrupted; 0."""
    from transformer_jax.explorer.server import HOST, make_app, make_local_server

    def render(text: str | None) -> str:
        return first.html() if text is None else _page(values, opened, [(text, None)], None).html()

    def force(run: int, text: str, prefix: "Sequence[int]") -> "Forced | None":
        if not 0 <= run < len(opened):
            raise ConfigError(f"run: {run} is not one of {len(opened)} runs, counted from 0")
        return opened[run].subject.forced(text, prefix)

    server = make_local_server(make_app(render, force), values.port)
    print(f"http://{HOST}:{server.server_port}/ until Ctrl-C", flush=True)
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
    return texts

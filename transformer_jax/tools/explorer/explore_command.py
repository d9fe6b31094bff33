import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import chosen_runs, output_path, run_config, run_flags, split_checkpoint
from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.explorer.align_command import read_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformer_jax.tools.explorer.head_statistics import HeadStatistics
    from transformer_jax.tools.explorer.page import Page
    from transformer_jax.tools.explorer.readers import Reader
    from transformer_jax.tools.explorer.readings import Reading
    from transformer_jax.tools.explorer.word_alignment import GoldAlignment

    Aligned = tuple[list[tuple[str, str]], list[GoldAlignment]]

EXAMPLES = 6
READERS_OF_FLAGS = {"sentences": "split", "first_word": "gold", "alternatives": "search"}


@flags.command(
    run_flags,
    flags.repeated("text", [], "a text to read; may be given several times"),
    flags.string("source", None, "file of texts, one a line, plain, .gz or .xz", also=("texts",)),
    flags.repeated("translation", [], "the translation to read, one for every --text", also=("target",)),
    flags.strings("against", [], "RUN[:CHECKPOINT],...: other runs that read the same texts"),
    flags.boolean("gradients", True, "gradient x input too, a backward pass for every target token"),
    flags.boolean("search", True, "the tree of the beam search too"),
    flags.integer("alternatives", 24, "number of tokens that the search rejected, to continue from", lower_bound=0),
    flags.string("split", None, "average every head over sentences of this split too"),
    flags.integer("sentences", 200, "how many of the split", lower_bound=1),
    flags.string("gold", None, "manual alignments: the error rate of every head"),
    flags.string("gold_source", None, "file of the source sentences of --gold"),
    flags.string("gold_target", None, "file of their translations"),
    flags.integer("first_word", 0, "number of the first word in the gold file", lower_bound=0, upper_bound=1),
    flags.string("checkpoints", None, "all, or updates: 500,1000; a slider over these checkpoints of the run"),
    flags.boolean("live", False, "the model too: edit the text and switch parts off in the page"),
    flags.string("output", None, "the page (default: explore.html in the run directory, or live.html)"),
)
def explore(values: flags.Values) -> int:
    """Write a self-contained page to explore the attention and the search of a trained model.

    Example:
        transformer-jax explore runs/m30k --text="Two dogs play." --translation="Zwei Hunde."
        transformer-jax explore runs/m30k --text="A man sleeps." --against=runs/rnn,runs/m30k:500
        transformer-jax explore runs/m30k --live

    Without a text it reads a sentence of the validation split. By default each run reads its own
    translation. --checkpoints=all reads the texts with every checkpoint that the run keeps
    (training.keep_last), each with the same target. --live puts the model of a translation run or
    language model into the page, where you can edit the text, switch off heads and layers, and
    force words. docs/explorer.md explains the views.
    """
    from transformer_jax.run_directory.layout import ChosenRun, RunDirectory

    runs = chosen_runs(values, run_config(values))
    for text in values.against:
        folder, checkpoint = split_checkpoint(text, "--against")
        runs.append(ChosenRun(folder, run_config(values, workdir=folder), checkpoint or values.checkpoint))
    texts = _texts(values)
    if values.translation and len(values.translation) != len(texts):
        raise ConfigError(
            "--translation", f"{len(values.translation)} for {len(texts)} texts", "give one for every --text, or none"
        )
    names = values.gold_source, values.gold_target, values.gold
    if any(names) and not all(names):
        raise ConfigError("--gold", "give --gold_source and --gold_target too, the files whose pairs it aligns")
    aligned = None
    if values.gold:
        sources, translations, gold = read_pairs(*names, values.first_word)
        aligned = list(zip(sources, translations, strict=True)), gold
    for flag, reader in READERS_OF_FLAGS.items():
        if flag in values.present and not getattr(values, reader):
            raise ConfigError(f"--{flag}", f"only --{reader} reads it", f"give --{reader} too, or leave --{flag} out")
    if values.translation:
        # This imports JAX.
        from transformer_jax.tasks.texts import require_targets

        for run in runs:
            require_targets(run.config, "--workdir", run.workdir, "--translation", is_set=True, is_optional=True)
    checkpoints = _checkpoints(values)
    if values.live:
        from transformer_jax.tools.explorer.live_settings import require_live

        require_live(runs[0].config)
    path = output_path(values, "live.html" if values.live else "explore.html")
    if path.suffix != ".html":
        raise ConfigError("--output", f"{path} is not the name of a page", "end it in .html")

    _tell("restoring the model ...")
    from transformer_jax.files.atomic_files import write_whole
    from transformer_jax.tools.explorer.readers import open_readers

    opened = open_readers(runs, values.average)
    examples = opened[0].examples(EXAMPLES) if values.live or not texts else []
    texts = texts or examples[:1]
    if not texts:
        raise ConfigError("--text", "there is none", "give a text, or --source=FILE with a text a line")
    targets = values.translation or [None] * len(texts)
    remarks = opened[0].trained.remarks("--text", "text")
    remarks.read(texts)
    remarks.tell()
    for run_reader in opened:
        run_reader.require_texts(texts, with_search=values.search)
    opened += [opened[0].at_checkpoint(RunDirectory(values.workdir), step) for step in checkpoints]
    tables = [_tables(values, run_reader, aligned) for run_reader in opened]
    page = _page(values, opened, tables, list(zip(texts, targets, strict=True)), checkpoints)
    if values.live:
        page.add_examples(examples)
    write_whole(path, page.html())
    print(str(path))
    return 0


def _checkpoints(values: flags.Values) -> list[int]:
    """Return the updates of --checkpoints, oldest first. Raise ConfigError for fewer than two."""
    from transformer_jax.run_directory.layout import RunDirectory
    from transformer_jax.run_directory.selection import chosen_step

    if not values.checkpoints:
        return []
    run = RunDirectory(values.workdir)
    names = map(str.strip, values.checkpoints.split(","))
    steps = (
        run.checkpoint_steps() if values.checkpoints == "all" else sorted({chosen_step(run, name) for name in names})
    )
    if len(steps) < 2:
        raise ConfigError("--checkpoints", f"{len(steps)} of {run.path}", "a slider needs two (training.keep_last)")
    return steps


def _tables(values: flags.Values, reader: "Reader", aligned: "Aligned | None") -> "list[HeadStatistics]":
    """Return the statistics of the heads over --split, and their alignment error rates."""
    from transformer_jax.tools.explorer.head_statistics import HeadStatistics

    if values.split or aligned:
        _tell(f"{reader.name.name}: statistics of its heads ...")
    of_split = reader.statistics(values.split, values.sentences) if values.split else []
    tables = [replace(table, source=f"{table.source} of {values.split}") for table in of_split]
    if aligned:
        rates = reader.error_rates(*aligned, values.gold)
        source = f"{len(aligned[0])} pairs of {Path(values.gold).name}"
        tables.append(HeadStatistics("cross", {"alignment": rates}, source))
    return tables


def _page(
    values: flags.Values,
    opened: "list[Reader]",
    tables: "list[list[HeadStatistics]]",
    texts: list[tuple[str, str | None]],
    checkpoints: "Sequence[int]",
) -> "Page":
    """Return the page of some texts. The last of ``opened`` are ``checkpoints`` of the first."""
    from transformer_jax.tools.explorer.live import live_model, logits_error
    from transformer_jax.tools.explorer.page import Page

    first = len(opened) - len(checkpoints)
    updates = {first + number: update for number, update in enumerate(checkpoints)}
    page = Page(f"{opened[0].name.name}: attention", [reader.name for reader in opened], updates)
    readings: dict[int, list[Reading]] = {}
    for number, (reader, statistics) in enumerate(zip(opened, tables, strict=True)):
        # Before the readings: a model that does not fit is refused at once.
        model = live_model(reader.trained) if values.live and not number else None
        is_checkpoint = number in updates
        for index, (text, target) in enumerate(texts):
            # All checkpoints read one target, so that their attention can be compared.
            translation = readings[0][index].translation if is_checkpoint else target
            task = f"{reader.name.name}, {reader.name.detail}" if len(opened) > 1 else "reading"
            _tell(f"{task}: text {index + 1} of {len(texts)} ...")
            options = {"with_gradients": values.gradients and not is_checkpoint, "with_importance": is_checkpoint}
            reading = reader.read(text, translation, index + 1, **options)
            readings.setdefault(number, []).append(reading)
            if values.search and not is_checkpoint:
                _tell(f"{task}: its beam search ...")
            search = reader.search(text, values.alternatives) if values.search and not is_checkpoint else None
            remarks = reader.trained.remarks("this text")
            remarks.read([text])
            page.add_reading(reading, search, remarks.lines(), text=index, run=number)
        page.add_statistics(statistics, run=number)
        if model:
            _tell("comparing the logits of the page with the run's ...")
            read = [(reading.text, reading.translation) for reading in readings[number]]
            page.add_model(model, logits_error(reader.trained, read))
    _add_curves(page, [readings[number] for number in updates], [tables[number] for number in updates])
    return page


def _add_curves(page: "Page", readings: "list[list[Reading]]", tables: "list[list[HeadStatistics]]") -> None:
    """Add the curves over checkpoints of each text, and of the statistics of all sentences."""
    from transformer_jax.tools.explorer.page import TITLES
    from transformer_jax.tools.explorer.readings import CURVES, curve_points

    for text, of_text in enumerate(zip(*readings, strict=True)):
        points = [curve_points(reading) for reading in of_text]
        for kind, curves in points[0].items() if points else ():
            for name in (name for name in curves if all(name in point[kind] for point in points)):
                page.add_curves(kind, CURVES[name], [point[kind][name] for point in points], text=text)
    for of_kind in zip(*tables, strict=True):
        for name in (name for name in of_kind[0].values if all(name in table.values for table in of_kind)):
            page.add_curves(of_kind[0].kind, TITLES[name], [table.values[name] for table in of_kind], text=None)


def _tell(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def _texts(values: flags.Values) -> list[str]:
    from transformer_jax.data.text_files import read_lines, says_nothing, visible

    lines = list(read_lines(Path(values.source))) if values.source else []
    texts = [(f"--text {number}", text) for number, text in enumerate(values.text, start=1)]
    texts += [(f"{values.source}, line {number}", text) for number, text in enumerate(lines, start=1)]
    for name, text in texts:
        if says_nothing(text):
            raise DataError(f"{name}: '{visible(text)}' has no visible character; give a text")
    return [text for _, text in texts]

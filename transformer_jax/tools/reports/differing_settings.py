"""The settings in which several runs differ."""

from collections.abc import Sequence

from transformer_jax.config import ExperimentConfig, flatten
from transformer_jax.tools.reports.document import Table


def differing_settings(configs: Sequence[ExperimentConfig]) -> dict[str, list[str]]:
    """Each setting that is not the same in all runs, sorted by key, with its value in every run.

    Values are texts as after ``--config.KEY=``; the empty text is ``''``, and a setting that a run's kind of model lacks is
    nothing: ``{"model.cell": ["", "lstm"], "model.dropout": ["0.1", "0.3"]}``.
    """
    settings = [flatten(config) for config in configs]
    keys = sorted({key for each in settings for key in each})
    values = {key: [_shown(each[key]) if key in each else "" for each in settings] for key in keys}
    return {key: shown for key, shown in values.items() if len(set(shown)) > 1}


def settings_table(names: Sequence[str], settings: dict[str, list[str]]) -> Table:
    """A row for each setting and a column for each run, or the other way round where there are more runs than settings."""
    columns = tuple(zip(*settings.values(), strict=True))
    if len(names) > len(settings):
        rows = tuple((name, *values) for name, values in zip(names, columns, strict=True))
        headings = ("run", *settings)
    else:
        rows = tuple((key, *values) for key, values in settings.items())
        headings = ("setting", *names)
    return Table(headings, rows, of_text=frozenset(range(len(headings))))


def _shown(value: object) -> str:
    return str(value) if value != "" else "''"

"""A trained run in Python."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, config_for_use
from transformer_jax.config.conversion import spelled_out
from transformer_jax.config.tasks import require_use
from transformer_jax.notebook import element, folded, settings_table, table
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.tasks.task import Evaluation, task_class
from transformer_jax.tasks.texts import Attention, TokenScores, open_text_or_none, require_targets
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tasks.translation.translation_options import TranslationOptions, require_bounds, sampling_of

if TYPE_CHECKING:
    from transformer_jax.tasks.translation.sampler import Sampler
    from transformer_jax.tasks.translation.translator import Translation

# A command, which is kept, or the dashes of a flag.
_COMMAND_OR_FLAG = re.compile(r"(`[^`]*`|transformer-jax .*)|(?<![\w-])--(?:config\.)?(?=[a-z])")


@contextmanager
def python_errors() -> Iterator[None]:
    """Replace the syntax of the command line in errors, except in commands.

    ``workdir`` for ``--workdir``, ``model.d_ff`` for ``--config.model.d_ff``,
    ``load_plugin("FILE.py")`` for ``--plugin=FILE.py``.
    """
    try:
        yield
    except (ConfigError, DataError) as error:
        plugin = r"(?<=may add it: )--plugin=([\w./]+\.py)", r'transformer_jax.load_plugin("\1")'
        message = re.sub(*plugin, str(error))
        error.args = (_COMMAND_OR_FLAG.sub(lambda match: match[1] or "", message), *error.args[1:])
        raise


class Scored(Protocol):
    """A result of a sentence with its score, a log-probability."""

    text: str
    score: float


class Run:
    """A trained run: its settings, its log, and its model, which is restored on first use.

    Raises ConfigError if a method is not for the task of the run.
    """

    def __init__(self, directory: RunDirectory, config: ExperimentConfig, checkpoint: str, average: int) -> None:
        self.directory, self.config = directory, config
        self._checkpoint, self._average = checkpoint, average

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.config.task}, checkpoint={self._checkpoint})"

    def _repr_html_(self) -> str:
        rows = [("folder", str(self.path)), ("task", self.config.task), ("checkpoint", self._checkpoint)]
        validations = [record for record in self.metrics if self.config.selection.key in record]
        for last in validations[-1:]:
            rows.append(("last validation", f"update {last['step']:,}"))
            rows += [
                (key, "not finite" if value is None else f"{value:.4g}")
                for key, value in last.items()
                if key.startswith("validation/")
            ]
        return element("div", table(rows), folded("settings", settings_table(self.config)))

    @property
    def path(self) -> Path:
        """The folder of the run, or its path at ``s3://`` or ``gs://``."""
        return self.directory.path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of the log so far, with their ``step``: ``pandas.DataFrame(run.metrics)``."""
        return read_metrics(self.directory.metrics)

    @property
    def params(self) -> PyTree:
        """The parameters of the checkpoint, nested dictionaries of arrays."""
        return self._trained.params

    @property
    def steps(self) -> tuple[int, ...]:
        """The update of the checkpoint, or the updates of the averaged checkpoints."""
        return self._trained.steps

    @overload
    def translate(self, text: str, **options: Unpack[TranslationOptions]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], **options: Unpack[TranslationOptions]) -> list[str]: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, n_best: int, **options: Unpack[TranslationOptions]
    ) -> "list[Translation]": ...
    @overload
    def translate(
        self, text: Sequence[str], *, n_best: int, **options: Unpack[TranslationOptions]
    ) -> "list[list[Translation]]": ...
    def translate(
        self,
        text: str | Sequence[str],
        *,
        n_best: int | None = None,
        prefix: str = "",
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        epsilon: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """Translate one sentence or several, by beam search or with options of sampling.

        With ``n_best`` the result for a sentence is a list of at most this number of translations,
        with their ``text`` and ``score``, the length-normalized log-probability: by beam search
        best first, samples in the order of sampling. ``prefix``: text that every translation by
        beam search begins with. ``temperature`` (0: greedy), ``top_k``, ``top_p`` and ``epsilon``
        (tokens with at least this probability) are the options of sampling, ``seed`` is its seed,
        by default 0.
        """
        options: dict[str, Any] = {"n_best": n_best, "prefix": prefix, "seed": seed}
        options |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "epsilon": epsilon}
        with python_errors():
            self._require("translate")
            options = {name: value for name, value in options.items() if value is not None}
            sampling, sentences = sampling_of(self.config.decoding, options), _as_texts(text)
            self._warn_of_unseen(sentences)
            if sampling:
                results = self._sampler(**sampling).translate(
                    self.params, sentences, num_results=n_best or 1, seed=seed or 0
                )
            else:
                translator = self._trained.task.translator
                begin = translator.prefix(prefix)
                results = translator.translate(self.params, sentences, num_results=n_best or 1, prefix=begin)
        return _in_form_of(text, n_best, results)

    @overload
    def parse(self, text: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, text: Sequence[str]) -> list[str]: ...
    @overload
    def parse(self, text: str, *, n_best: int) -> "list[Scored]": ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, text: Sequence[str], *, n_best: int) -> "list[list[Scored]]": ...
    def parse(self, text: str | Sequence[str], *, n_best: int | None = None) -> Any:
        """Parse one sentence of words separated by spaces, or several, into trees in brackets.

        With ``n_best`` the result for a sentence is a list, best first, of at most this number of
        trees, with their ``text`` and ``score``.
        """
        with python_errors():
            self._require("parse")
            sampling_of(self.config.decoding, {} if n_best is None else {"n_best": n_best})
            sentences = _as_texts(text)
            self._warn_of_unseen(sentences)
            trees = self._trained.task.parse(self.params, sentences, num_results=n_best or 1)
        return _in_form_of(text, n_best, trees)

    @overload
    def generate(self, prompt: str = "", seed: int | None = None) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[str], seed: int | None = None) -> list[str]: ...
    def generate(self, prompt: str | Sequence[str] = "", seed: int | None = None) -> str | list[str]:
        """Continue a prompt, or several, by a language model with the settings of the run.

        ``seed``: of the sampling, by default 0.
        """
        with python_errors():
            self._require("generate")
            if seed is not None:
                require_bounds("seed", seed)
                if self.config.decoding.beam_width > 1:
                    raise ConfigError("seed", "beam search has no random numbers", "leave it out")
            prompts = _as_texts(prompt, "prompt")
            generator = self._trained.task.generator
            self._warn_of_unseen(prompts)
            if remark := generator.windows(prompts).remark:
                warnings.warn(remark, stacklevel=2)
            texts = [sample.text for sample in generator.continuations(self.params, prompts, seed=seed or 0)]
        return texts[0] if isinstance(prompt, str) else texts

    def attention(self, text: str, translation: str | None = None) -> Attention:
        """Return all attention weights of a sentence and its translation, or of one text.

        ``translation``: by default the model's. A language model has one text.
        """
        with python_errors():
            has_target = translation is not None
            require_targets(self.config, "attention()", self.path, "translation", is_set=has_target, is_optional=True)
            self._warn_of_unseen(_as_texts([text]))
            _as_texts([] if translation is None else [translation], "translation")
            attention: Attention = self._trained.task.attention_of(self.params, text, translation)
            if not attention.layers:
                raise ConfigError(self.path, "the model has no attention")
        return attention

    @overload
    def score(self, source: str, target: str | None = None) -> TokenScores: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, source: Sequence[str], target: Sequence[str] | None = None) -> list[TokenScores]: ...
    def score(
        self, source: str | Sequence[str], target: str | Sequence[str] | None = None
    ) -> TokenScores | list[TokenScores]:
        """Return the log-probability of a translation, or of a text by a language model."""
        with python_errors():
            require_targets(self.config, "score()", self.path, "target", is_set=target is not None)
            if target is not None and isinstance(source, str) != isinstance(target, str):
                raise ConfigError("target", "give one sentence for one source, or a list for a list")
            sources, targets = _as_texts(source, "source"), None if target is None else _as_texts(target, "target")
            self._warn_of_unseen(sources)
            scores = self._trained.task.score_texts(self.params, sources, targets)
        return scores[0] if isinstance(source, str) else scores

    def evaluate(
        self,
        split: str | None = None,
        limit: int = 0,
        *,
        source: str | Path | None = None,
        references: str | Path | Sequence[str | Path] = (),
    ) -> Evaluation:
        """Score a split of the data of the run, or its first ``limit`` examples, or a text.

        The result prints as a table, and its ``metrics`` has numbers by name. ``split``: by default
        ``test``. ``source``: a file to score in place of a split; ``references``: the file of its
        translations, or several. Word vectors have the loss of the first blocks of the split,
        whatever ``limit`` is.
        """
        with python_errors():
            file = None if source is None else str(source)
            files = [str(references)] if isinstance(references, str | Path) else [*map(str, references)]
            text = open_text_or_none(self.config, self.path, file, files, has_split=split is not None)
            if source is not None:
                if limit:
                    raise ConfigError("limit", "source is scored whole", "leave it out")
                evaluation = self._trained.task.evaluate_text(self.params, text, Path(source).name)
            else:
                name = split or "test"
                task_class(self.config.task).require_split(self.config, name)
                evaluation = self._trained.evaluate(name, limit=limit)
            self._trained.remarks_on(evaluation, text, file or "").tell(partial(warnings.warn, stacklevel=3))
        return evaluation

    @cached_property
    def _sampler(self) -> "Callable[..., Sampler]":
        """Samplers by their options, which keep their compiled programs."""
        from transformer_jax.decoding.sampling import SamplingRule
        from transformer_jax.tasks.translation.sampler import Sampler

        return cache(lambda **sampling: Sampler(self._trained.task.translator, SamplingRule(**sampling)))

    @cached_property
    def _trained(self) -> TrainedRun[Any]:
        with python_errors():
            chosen = ChosenRun(str(self.path), self.config, self._checkpoint)
            return open_trained(chosen, average=self._average)

    def _warn_of_unseen(self, texts: Sequence[str]) -> None:
        """Warn of input that the model never saw in training, once for each kind."""
        remarks = self._trained.remarks("the input", "text")
        remarks.read(texts)
        remarks.tell(partial(warnings.warn, stacklevel=4))

    def _require(self, method: str) -> None:
        require_use(self.config.task, method, f"{self.path} is a run of task={self.config.task}; {method}()")


def _as_texts(text: str | Sequence[str], name: str = "text") -> list[str]:
    """Return one text or several as a list. Raises DataError for other values."""
    if isinstance(text, bytes) or text is None:
        raise DataError(f"{name}: expected a str or several, not {type(text).__name__}")
    texts = [text] if isinstance(text, str) else list(text)
    for number, line in enumerate(texts, start=1):
        which = name if len(texts) == 1 else f"{name} {number}"
        if not isinstance(line, str):
            raise DataError(f"{which}: expected a str, not {type(line).__name__}")
        try:
            line.encode("utf-8")
        except UnicodeEncodeError as error:
            wrong = f"U+{ord(line[error.start]):04X} at index {error.start} is half of a character"
            raise DataError(f"{which}: {wrong}; decode the text as UTF-8") from None
    return texts


def _in_form_of(text: str | Sequence[str], n_best: int | None, results: Sequence[Sequence[Any]]) -> Any:
    """Return the result for one ``text``, or a list for several.

    The result is the best text, or with ``n_best`` a list of translations.
    """
    values = [best[0].text if n_best is None else list(best) for best in results]
    return values[0] if isinstance(text, str) else values


def as_overrides(settings: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Return settings by dotted key as overrides; ``{"mesh": "data=2,fsdp=4"}`` gives two."""
    return [override for key, value in (settings or {}).items() for override in spelled_out(key, str(value))]


def load(
    path: str | Path, checkpoint: str | int = "best", *, average: int = 1, settings: Mapping[str, object] | None = None
) -> Run:
    """Return a trained run from its folder or its address (``s3://...``).

    ``checkpoint``: ``best``, ``last`` or the number of an update. ``average``: number of
    checkpoints up to it to average. ``settings``: settings of decoding, devices or the location of
    the data, such as ``{"decoding.beam_width": 1}``. Raises ConfigError when there is no such run
    or checkpoint, or the trained model cannot change a setting.
    """
    with python_errors():
        if average < 1:
            raise ConfigError("average", f"{average} must be at least 1")
        directory = RunDirectory(path)
        directory.require_run("path")
        config = config_for_use(directory.path, as_overrides(settings))
        chosen_step(directory, str(checkpoint), tells=False)
    return Run(directory, config, str(checkpoint), average)

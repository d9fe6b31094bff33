"""A trained run in Python."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Unpack, overload

import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, config_for_use
from transformer_jax.config.conversion import spelled_out
from transformer_jax.config.tasks import require_use
from transformer_jax.notebook import element, folded, settings_table, table
from transformer_jax.registry.index import single_behind
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.tasks.task import Evaluation, task_class
from transformer_jax.tasks.texts import TokenScores, open_text_or_none, require_targets
from transformer_jax.tasks.trained_run import TrainedRun, open_trained
from transformer_jax.tasks.translation.translation_options import TranslationOptions, sampling_of

if TYPE_CHECKING:
    from transformer_jax.tasks.translation.sampler import Sampler
    from transformer_jax.tasks.translation.translator import Translation

# A command, which stays, or the dashes of a flag.
_COMMAND_OR_FLAG = re.compile(r"(`[^`]*`|transformer-jax .*)|(?<![\w-])--(?:config\.)?(?=[a-z])")


@contextmanager
def python_errors() -> Iterator[None]:
    """Remove the syntax of the command line from errors: ``workdir`` for ``--workdir``,
    ``model.d_ff`` for ``--config.model.d_ff``, ``load_plugin("FILE.py")`` for ``--plugin=FILE.py``.
    Commands keep theirs.
    """
    try:
        yield
    except (ConfigError, DataError) as error:
        plugin = r"(?<=may add it: )--plugin=([\w./]+\.py)", r'transformer_jax.load_plugin("\1")'
        message = re.sub(*plugin, str(error))
        error.args = (_COMMAND_OR_FLAG.sub(lambda found: found[1] or "", message), *error.args[1:])
        raise


class Scored(Protocol):
    """A result of a sentence with its score, a log-probability."""

    text: str
    score: float


class AttentionLayer(NamedTuple):
    """Weights [head, query, key] of one layer, before dropout; ``queries`` and ``keys`` are the pieces of the axes.

    ``kind`` is ``cross`` (target to source), ``encoder`` (source to source) or ``decoder`` (target
    to target); ``layer`` is its number in the model, from 1. Row i of a decoder's weights belongs
    to the prediction of target piece i.
    """

    kind: str
    layer: int
    weights: np.ndarray
    queries: list[str]
    keys: list[str]

    @property
    def mean(self) -> np.ndarray:
        """The mean over the heads [query, key]."""
        return self.weights.mean(axis=0)


class Attention(Sequence[AttentionLayer]):
    """The attention of a model between a source and its translation, or inside the text of a
    language model, whose ``translation`` is None: a sequence of layers, first layer first.
    """

    def __init__(self, source: str, translation: str | None, layers: Sequence[AttentionLayer]) -> None:
        self.source, self.translation, self.layers = source, translation, tuple(layers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{each.kind} {each.layer} {list(each.weights.shape)}" for each in self.layers)
        target = "" if self.translation is None else f" -> {self.translation!r}"
        return f"Attention({self.source!r}{target}: {shapes})"

    def _repr_png_(self) -> bytes:
        with TemporaryDirectory() as folder:
            return self.draw(Path(folder) / "attention.png").read_bytes()

    def of(self, kind: str) -> "Attention":
        """Return the layers of one kind; raises ConfigError when the model has none."""
        found = [each for each in self.layers if each.kind == kind]
        if not found:
            kinds = dict.fromkeys(each.kind for each in self.layers)
            raise ConfigError("kind", f"{kind!r} is not one of {', '.join(kinds) or 'none at all'}")
        return Attention(self.source, self.translation, found)

    def draw(self, path: str | Path, kind: str | None = None) -> Path:
        """Return a picture of every layer and head of one kind, by default the first that the model has; returns its path."""
        draw = single_behind("draw_attention")
        if draw is None:
            raise ConfigError(
                "draw", "no tool that draws attention is installed", "reinstall the package with all its tools"
            )
        layers = self.of(kind or self.layers[0].kind).layers
        weights = {f"{each.kind} layer {each.layer}": each.weights for each in layers}
        title = self.source if self.translation is None else f"{self.source}\n{self.translation}"
        return Path(draw(weights, layers[0].queries, layers[0].keys, path, title=title))


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
        validated = [each for each in self.metrics if self.config.selection.key in each]
        rows = [
            ("folder", str(self.path)),
            ("task", self.config.task),
            ("checkpoint", self._checkpoint),
        ]
        rows += [("last validation", f"update {each['step']:,}") for each in validated[-1:]]
        rows += [
            (key, "not finite" if value is None else f"{value:.4g}")
            for each in validated[-1:]
            for key, value in each.items()
            if key.startswith("validation/")
        ]
        return element("div", table(rows), folded("settings", settings_table(self.config)))

    @property
    def path(self) -> Path:
        """The folder of the run, or its path at ``s3://`` or ``gs://``."""
        return self.directory.path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of the log so far, each with its ``step``: ``pandas.DataFrame(run.metrics)``."""
        return read_metrics(self.directory.metrics)

    @property
    def params(self) -> PyTree:
        """The parameters of the checkpoint, nested dictionaries of arrays."""
        return self._trained.params

    @property
    def steps(self) -> tuple[int, ...]:
        """The update of the checkpoint, or the updates of the averaged checkpoints."""
        return tuple(self._trained.steps)

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
        """Translate one sentence, or each of several: by beam search, or by sampling if one of its options is given.

        With ``n_best`` the result for a sentence is a list of at most this number of translations,
        each with its ``text`` and its ``score``, the length-normalized log-probability: by beam
        search best first; samples in the order in which they are drawn. ``prefix``: text that every
        translation by beam search begins with. ``temperature`` (0: greedy), ``top_k``, ``top_p``
        and ``epsilon`` (tokens with at least this probability) are the options of sampling,
        ``seed`` is its seed, by default 0.
        """
        options: dict[str, Any] = {"n_best": n_best, "prefix": prefix, "seed": seed}
        options |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "epsilon": epsilon}
        with python_errors():
            self._require("translate")
            stated = {name: value for name, value in options.items() if value is not None}
            sampling, sentences = sampling_of(self.config.decoding, stated), _as_texts(text)
            self._warn_of_unseen(sentences)
            if sampling:
                found = self._sampler(**sampling).translate(
                    self.params, sentences, num_results=n_best or 1, seed=seed or 0
                )
            else:
                translator = self._trained.task.translator
                begin = translator.prefix(prefix)
                found = translator.translate(self.params, sentences, num_results=n_best or 1, prefix=begin)
        return _as_given(text, n_best, found)

    @overload
    def parse(self, text: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, text: Sequence[str]) -> list[str]: ...
    @overload
    def parse(self, text: str, *, n_best: int) -> "list[Scored]": ...  # type: ignore[overload-overlap]
    @overload
    def parse(self, text: Sequence[str], *, n_best: int) -> "list[list[Scored]]": ...
    def parse(self, text: str | Sequence[str], *, n_best: int | None = None) -> Any:
        """Parse one sentence of words with spaces between them, or each of several, into a constituency tree in brackets.

        With ``n_best`` the result for a sentence is a list, best first, of at most this number of
        trees, each with its ``text`` and its ``score``.
        """
        with python_errors():
            self._require("parse")
            sampling_of(self.config.decoding, {} if n_best is None else {"n_best": n_best})
            sentences, number = _as_texts(text), n_best or 1
            self._warn_of_unseen(sentences)
            found = self._trained.task.parse(self.params, sentences, num_results=number)
        return _as_given(text, n_best, found)

    @overload
    def generate(self, prompt: str = "", seed: int = 0) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[str], seed: int = 0) -> list[str]: ...
    def generate(self, prompt: str | Sequence[str] = "", seed: int = 0) -> str | list[str]:
        """Return the continuation of a prompt by a language model, or of each of several, with the
        decoding settings of the run.
        """
        with python_errors():
            self._require("generate")
            prompts = _as_texts(prompt, "prompt")
            generator = self._trained.task.generator
            self._warn_of_unseen(prompts)
            if remark := generator.windows(prompts).remark:
                warnings.warn(remark, stacklevel=2)
            found = generator.continuations(self.params, prompts, seed=seed)
        return found[0].text if isinstance(prompt, str) else [each.text for each in found]

    def attention(self, text: str, translation: str | None = None) -> Attention:
        """All attention weights of a sentence and its translation (default: the model's own), or of a language model's text."""
        with python_errors():
            is_set = translation is not None
            require_targets(self.config, "attention()", self.path, "translation", is_set=is_set, is_optional=True)
            self._warn_of_unseen(_as_texts([text]))
            _as_texts([] if translation is None else [translation], "translation")
            attention = self._trained.task.attention_of(self.params, text, translation)
            if not attention.kinds:
                raise ConfigError(self.path, "the model has no attention")
            layers = [
                AttentionLayer(kind, number, weights, found.rows, found.columns)
                for kind, found in attention.kinds.items()
                for number, weights in zip(found.layers, found.weights.values(), strict=True)
            ]
        return Attention(text, attention.translation, layers)

    @overload
    def score(self, source: str, target: str | None = None) -> TokenScores: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, source: Sequence[str], target: Sequence[str] | None = None) -> list[TokenScores]: ...
    def score(
        self, source: str | Sequence[str], target: str | Sequence[str] | None = None
    ) -> TokenScores | list[TokenScores]:
        """Return the log-probability of a given translation, or of each of several; of a language
        model, of ``source`` itself.
        """
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
        """Score a split of the data of the run, by default ``test``, or its first ``limit`` examples, or a text.

        The result prints as a table, and its ``metrics`` has numbers by name. ``source``: a file to
        score in place of a split; ``references``: the file of its translations, or several. Word
        vectors have the loss of the first blocks of the split, whatever ``limit`` is.
        """
        with python_errors():
            file, files = None if source is None else str(source), [*map(str, _as_list(references))]
            text = open_text_or_none(self.config, self.path, file, files, has_split=split is not None)
            if source is not None:
                if limit:
                    raise ConfigError("limit", "source is scored whole", "leave it out")
                evaluation: Evaluation = self._trained.task.evaluate_text(self.params, text, Path(source).name)
                return evaluation
            name = split or "test"
            task_class(self.config.task).require_split(self.config, name)
            return self._trained.evaluate(name, limit=limit)

    @cached_property
    def _sampler(self) -> "Callable[..., Sampler]":
        """By sampling options; a sampler keeps its compiled programs."""
        from transformer_jax.decoding.sampling import SamplingRule
        from transformer_jax.tasks.translation.sampler import Sampler

        return cache(lambda **sampling: Sampler(self._trained.task.translator, SamplingRule(**sampling)))

    @cached_property
    def _trained(self) -> TrainedRun[Any]:
        with python_errors():
            chosen = ChosenRun(str(self.path), self.config, self._checkpoint)
            return open_trained(chosen, average=self._average)

    def _warn_of_unseen(self, texts: Sequence[str]) -> None:
        """Warn of what the model never saw in training: a warning for each kind."""
        remarks = self._trained.remarks("the input", "text")
        remarks.read(list(texts))
        remarks.tell(partial(warnings.warn, stacklevel=4))

    def _require(self, method: str) -> None:
        require_use(self.config.task, method, f"{self.path} is a run of task={self.config.task}; {method}()")


def _as_list(text: Any) -> list[Any]:
    return [text] if isinstance(text, str | Path) else list(text)


def _as_texts(text: str | Sequence[str], name: str = "text") -> list[str]:
    """Return one text, or each of several; raises DataError where one is no text, or has a lone surrogate, as no file has."""
    if isinstance(text, bytes) or text is None:
        raise DataError(f"{name}: expected a str or several, not {type(text).__name__}")
    texts = [text] if isinstance(text, str) else list(text)
    for number, each in enumerate(texts, start=1):
        which = name if len(texts) == 1 else f"{name} {number}"
        if not isinstance(each, str):
            raise DataError(f"{which}: expected a str, not {type(each).__name__}")
        try:
            each.encode("utf-8")
        except UnicodeEncodeError as error:
            wrong = f"U+{ord(each[error.start]):04X} at index {error.start} is half of a character"
            raise DataError(f"{which}: {wrong}; decode the text as UTF-8") from None
    return texts


def _as_given(text: str | Sequence[str], n_best: int | None, found: Sequence[Sequence[Any]]) -> Any:
    """Return the results of each of several texts, or of one: its best text, or with ``n_best`` all results."""
    results = [best[0].text if n_best is None else list(best) for best in found]
    return results[0] if isinstance(text, str) else results


def as_overrides(settings: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Settings by dotted key as overrides; ``{"mesh": "data=2,fsdp=4"}`` gives two."""
    return [each for key, value in (settings or {}).items() for each in spelled_out(key, str(value))]


def load(
    path: str | Path,
    checkpoint: str | int = "best",
    *,
    average: int = 1,
    settings: Mapping[str, object] | None = None,
) -> Run:
    """Return a trained run, from its folder or its address (``s3://...``).

    ``checkpoint``: ``best``, ``last`` or the number of an update. ``average``: number of
    checkpoints up to it to average. ``settings``: settings of decoding, devices or the location of
    the data, such as ``{"decoding.beam_width": 1}``.

    Raises:
        ConfigError: no such run or checkpoint, or a setting that the trained model cannot change.
    """
    with python_errors():
        directory = RunDirectory(path)
        directory.require_run("path")
        config = config_for_use(directory.path, as_overrides(settings))
        chosen_step(directory, str(checkpoint), tells=False)
    return Run(directory, config, str(checkpoint), average)

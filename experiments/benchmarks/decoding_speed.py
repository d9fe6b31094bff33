"""How long does a trained model translate a text, here and in CTranslate2?

    transformer-jax export --workdir=runs/m30k --format=ctranslate2 --output=m30k-ct2
    python experiments/benchmarks/decoding_speed.py --workdir=runs/m30k --source=test_2016.en --ctranslate2=m30k-ct2 \
        --config.decoding.beam_width=5 --config.decoding.compute_dtype=float32

Prints, for every pass over the lines, wall seconds, CPU seconds (user + system), lines and target
tokens a second, tokenizing included and loading not, in turn for each; at last the ratios of the
medians of all passes but the first, which compiles. CTranslate2 gets the same beam and batch, runs
on the device that JAX has, a batch on each core of a CPU, and computes in each of
``--compute_types`` (on a GPU ``float16``); its length penalty divides by length ** alpha, it stops
at the first hypotheses (here decoding.stop=first_beams), and its token limit follows the longest
source for all, where ours follows each source: so translations differ a little. ``--references``
prints the BLEU of each. ``--commands=3`` also runs whole commands, each a process that loads the
model and translates the file: wall and CPU seconds and peak memory, the median of 3 after one that
is not counted. ``--output`` writes our translations, to compare two versions. Greedy:
``--config.decoding.beam_width=1``.

``--huggingface``: one more contestant, a Marian folder of ``export``, 32 sentences of like length
at a time. ``--tokens=30`` compares forced work instead, of a randomly initialized model: only
sources of the commonest length are read, of which it ends no translation itself, and every
hypothesis of every contestant has 30 tokens.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from transformer_jax.config import DecodingConfig, config_for_use
from transformer_jax.data.text_files import read_lines
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.runtime.hardware import batch_tokens_on, start_jax
from transformer_jax.tasks.trained_run import TrainedRun, open_trained

Translate = Callable[[Sequence[str]], list[str]]


def main() -> None:
    """Translates the lines several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--source", required=True, help="sentences, one a line, plain, .gz or .xz")
    parser.add_argument("--references", help="their translations, for BLEU")
    parser.add_argument("--ctranslate2", help="folder that export wrote")
    parser.add_argument("--compute_types", default="float32,int8", help="of CTranslate2")
    parser.add_argument("--huggingface", help="Marian folder that export wrote")
    parser.add_argument("--tokens", type=int, default=0, help="forced length of every translation; 0: as it comes")
    parser.add_argument("--separately", action="store_true", help="a sentence at a time, as for a user who waits")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--cache", default="", help="folder of compiled programs; none: the first pass compiles")
    parser.add_argument("--commands", type=int, default=0, help="whole commands to time; 0: none")
    parser.add_argument("--output", type=Path)
    arguments, overrides = parser.parse_known_args()
    stated = [tuple(each.removeprefix("--config.").split("=", 1)) for each in overrides]
    config = config_for_use(arguments.workdir, stated)
    if arguments.cache:
        start_jax(arguments.cache)
    run = open_trained(ChosenRun(str(arguments.workdir), config, arguments.checkpoint))
    lines = list(read_lines(Path(arguments.source)))
    if arguments.tokens:
        lines, extra = of_commonest_length(run, lines, arguments.tokens)
        stated.append(("decoding.max_extra_tokens", str(extra)))
        config = config_for_use(arguments.workdir, stated)
        run = open_trained(ChosenRun(str(arguments.workdir), config, arguments.checkpoint))
        lines = unended(run, lines, arguments.tokens)
    contestants: dict[str, Translate] = {"ours": ours(run)}
    compute_types = arguments.compute_types.split(",") if arguments.ctranslate2 else []
    for each in compute_types:
        contestants[f"CTranslate2 {each}"] = theirs(run, arguments.ctranslate2, each, arguments.tokens)
    target = run.tokenizers.target
    if arguments.huggingface:
        contestants["transformers"] = in_transformers(run, arguments.huggingface, arguments.tokens)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    found = {}
    for number in range(1, arguments.passes + 1):
        for name, translate in contestants.items():
            started, cpu = time.perf_counter(), sum(os.times()[:2])
            parts = [[line] for line in lines] if arguments.separately else [lines]
            found[name] = [text for part in parts for text in translate(part)]
            wall, cpu = time.perf_counter() - started, sum(os.times()[:2]) - cpu
            seconds[name].append((wall, cpu))
            tokens = sum(map(len, target.encode_batch(found[name])))
            rates = f"{len(lines) / wall:.1f} lines/s, {tokens / wall:,.0f} tokens/s"
            print(f"pass {number}, {name}: {len(lines):,} lines, {wall:.1f} s, {cpu:.1f} CPU s, {rates}", flush=True)
    _compare(seconds)
    if arguments.references:
        references = list(read_lines(Path(arguments.references)))
        for name, translations in found.items():
            print(f"BLEU {score_translations(translations, references).values['bleu']:.2f}, {name}")
    if arguments.commands:
        whole_commands(
            arguments,
            overrides,
            config.decoding,
            batch_tokens_on(run.mesh, config.decoding.batch_tokens),
            compute_types,
        )
    if arguments.output:
        arguments.output.write_text("".join(f"{text}\n" for text in found["ours"]), encoding="utf-8")


def of_commonest_length(run: TrainedRun, lines: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """The lines with the commonest number of tokens, and the extra tokens that make ``tokens`` of
    it, EOS included."""
    lengths = [len(ids) - 1 for ids in run.tokenizers.source.encode_batch(list(lines))]
    ((commonest, _),) = collections.Counter(lengths).most_common(1)
    return [line for line, length in zip(lines, lengths, strict=True) if length == commonest], tokens - commonest - 2


def unended(run: TrainedRun, lines: Sequence[str], tokens: int) -> list[str]:
    """The lines whose translations have ``tokens`` tokens: the model ends none of them itself."""
    found = run.task.translator.translate(run.params, lines)
    kept = [line for line, (best, *_) in zip(lines, found, strict=True) if len(best.token_ids) == tokens]
    print(f"{len(kept)} of {len(lines)} lines with translations of {tokens} tokens", flush=True)
    return kept


def ours(run: TrainedRun) -> Translate:
    """The search of this package."""
    return lambda lines: [best.text for best, *_ in run.task.translator.translate(run.params, lines)]


def in_transformers(run: TrainedRun, folder: str, tokens: int) -> Translate:
    """Marian of the transformers library with the weights of the same run, float32."""
    import torch
    from transformers import MarianMTModel

    model, decoding, (source, target) = (
        MarianMTModel.from_pretrained(folder).eval(),
        run.config.decoding,
        run.tokenizers,
    )
    # Rows of its vocabulary are pieces in another order; PAD starts a translation.
    order = json.loads((Path(folder) / "vocab.json").read_text(encoding="utf-8"))
    to_theirs = [order[piece] for piece in source.pieces(range(source.vocabulary_size))]
    to_ours = {order[piece]: number for number, piece in enumerate(target.pieces(range(target.vocabulary_size)))}
    pad = model.config.pad_token_id

    def translate(lines: Sequence[str]) -> list[str]:
        sources = [[to_theirs[each] for each in ids] for ids in source.encode_batch(list(lines))]
        places = sorted(range(len(sources)), key=lambda place: len(sources[place]))
        found = [""] * len(lines)
        for start in range(0, len(places), 32):
            batch = places[start : start + 32]
            longest = max(len(sources[place]) for place in batch)
            ids = torch.tensor([sources[place] + [pad] * (longest - len(sources[place])) for place in batch])
            limits = {"min_new_tokens": tokens, "max_new_tokens": tokens or longest + decoding.max_extra_tokens}
            options = {
                "num_beams": decoding.beam_width,
                "length_penalty": decoding.length_penalty,
                "early_stopping": True,
            }
            with torch.inference_mode():
                output = model.generate(ids, attention_mask=(ids != pad).long(), do_sample=False, **options, **limits)
            for place, row in zip(batch, output.tolist(), strict=True):
                found[place] = target.decode([to_ours[each] for each in row if each in to_ours])
        return found

    return translate


def theirs(run: TrainedRun, folder: str, compute_type: str, tokens: int) -> Translate:
    """CTranslate2 with the weights of the same run."""
    from ctranslate2_command import open_translator, translated

    decoding, (source, target) = run.config.decoding, run.tokenizers
    translator = open_translator(folder, compute_type, their_device())
    ids = {piece: number for number, piece in enumerate(target.pieces(range(target.vocabulary_size)))}

    def translate(lines: Sequence[str]) -> list[str]:
        pieces = [source.pieces(each) for each in source.encode_batch(list(lines))]
        found = translated(
            translator,
            pieces,
            beam=decoding.beam_width,
            penalty=decoding.length_penalty,
            extra=decoding.max_extra_tokens,
            batch_tokens=batch_tokens_on(run.mesh, decoding.batch_tokens),
            fewest=tokens,
        )
        return [target.decode([ids[piece] for piece in each]) for each in found]

    return translate


def their_device() -> str:
    """What CTranslate2 calls the device of JAX."""
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def whole_commands(
    arguments: argparse.Namespace,
    overrides: Sequence[str],
    decoding: DecodingConfig,
    batch_tokens: int,
    compute_types: Sequence[str],
) -> None:
    """Times the commands of both sides, in turn."""
    output = f"--output={os.devnull}"
    ours = [sys.executable, "-m", "transformer_jax", "translate", f"--checkpoint={arguments.checkpoint}", *overrides]
    commands = {"ours": [*ours, f"--workdir={arguments.workdir}", f"--source={arguments.source}", output]}
    for each in compute_types:
        program = Path(__file__).with_name("ctranslate2_command.py")
        options = {
            "beam": decoding.beam_width,
            "penalty": decoding.length_penalty,
            "extra": decoding.max_extra_tokens,
            "batch_tokens": batch_tokens,
            "compute_type": each,
            "device": their_device(),
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        files = [arguments.ctranslate2, arguments.source, os.devnull]
        commands[f"CTranslate2 {each}"] = [sys.executable, str(program), *files, *flags]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(arguments.commands + 1):
        for name, command in commands.items():
            found[name].append(cost_of(command))
    for name, costs in found.items():
        wall, cpu, memory = (statistics.median(column) for column in zip(*costs[1:], strict=True))
        print(f"whole command, {name}: {wall:.1f} s, {cpu:.1f} CPU s, {memory:,.0f} MiB at most")


# A process started by a large one would count that one's memory as its own.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def cost_of(command: Sequence[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and the largest resident memory, MiB, of a process."""
    started = time.perf_counter()
    printed = subprocess.run([sys.executable, "-c", MEASURE, *command], check=True, stdout=subprocess.PIPE, text=True)
    cpu, memory = map(float, printed.stdout.split())
    return time.perf_counter() - started, cpu, memory


def _compare(seconds: dict[str, list[tuple[float, float]]]) -> None:
    """Prints how much faster ours is than each of the others, by the medians of all passes but the
    first."""
    if len(seconds["ours"]) == 1:
        return
    medians = {
        name: [statistics.median(column) for column in zip(*passes[1:], strict=True)]
        for name, passes in seconds.items()
    }
    wall, cpu = medians.pop("ours")
    for name, (their_wall, their_cpu) in medians.items():
        print(f"speed over {name}: {their_wall / wall:.2f} by wall time, {their_cpu / cpu:.2f} by CPU time")


if __name__ == "__main__":
    main()

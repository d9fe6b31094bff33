"""Translates a file with CTranslate2 and nothing of this package: a model with subwords that
``export`` wrote.

python experiments/benchmarks/ctranslate2_command.py m30k-ct2 test_2016.en out.de --beam=5
--penalty=0.6 --compute_type=int8
"""

import argparse
import os
from pathlib import Path

import ctranslate2
import sentencepiece


def main() -> None:
    """Reads all lines, writes all translations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--penalty", type=float, required=True)
    parser.add_argument("--batch_tokens", type=int, default=4096)
    parser.add_argument("--extra", type=int, default=50)
    parser.add_argument("--compute_type", default="float32")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    models = sorted(arguments.folder.rglob("tokenizer.*.model"))
    source, target = (sentencepiece.SentencePieceProcessor(model_file=str(each)) for each in (models[0], models[-1]))
    # Unlike splitlines, this ends no line at a Unicode separator.
    lines = arguments.input.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    pieces = [source.encode(line, out_type=str) for line in lines]
    translator = open_translator(str(arguments.folder), arguments.compute_type, arguments.device)
    found = translated(
        translator,
        pieces,
        beam=arguments.beam,
        penalty=arguments.penalty,
        extra=arguments.extra,
        batch_tokens=arguments.batch_tokens,
    )
    text = "".join(f"{target.decode(each)}\n" for each in found)
    arguments.output.write_text(text, encoding="utf-8")


def open_translator(folder: str, compute_type: str, device: str = "cpu") -> ctranslate2.Translator:
    """A batch at a time on each core, or on the GPU."""
    workers = len(os.sched_getaffinity(0)) if device == "cpu" else 1
    return ctranslate2.Translator(
        folder, device=device, compute_type=compute_type, inter_threads=workers, intra_threads=1
    )


def translated(
    translator: ctranslate2.Translator,
    pieces: list[list[str]],
    *,
    beam: int,
    penalty: float,
    extra: int,
    batch_tokens: int,
    fewest: int = 0,
) -> list[list[str]]:
    """The best pieces for each source, at most ``extra`` more than the longest source has, at least
    ``fewest``."""
    found = translator.translate_batch(
        pieces,
        beam_size=beam,
        length_penalty=penalty,
        max_input_length=0,
        min_decoding_length=fewest,
        max_decoding_length=max(fewest, max(map(len, pieces)) + extra),
        max_batch_size=batch_tokens,
        batch_type="tokens",
    )
    return [each.hypotheses[0] for each in found]


if __name__ == "__main__":
    main()

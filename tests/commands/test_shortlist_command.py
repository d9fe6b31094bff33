"""A shortlist made for a run, and used by it, through the command line."""

import numpy as np

from transformer_jax.__main__ import main
from transformer_jax.data.tokenizers import load_tokenizers


def test_translations_consist_of_the_candidates_of_their_tokens(run, tmp_path, capsys):
    file, flags = tmp_path / "short.npz", [f"--workdir={run}"]
    assert main(["shortlist", *flags, f"--output={file}", "--candidates=1", "--frequent=2"]) == 0
    with np.load(file) as stored:
        best, frequent = stored["best"], stored["frequent"]
    target = load_tokenizers(run / "tokenizer").target
    (tmp_path / "in").write_text("a b\n\nc d e f g\n")
    flags += ["--checkpoint=last", f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"]
    flags += [f"--config.decoding.shortlist={file}"]
    assert main(["translate", *flags, "--prefix=j"]) == 0
    first, empty, second = (tmp_path / "out").read_text().split("\n")[:3]
    assert empty == "" and first.startswith("j")
    for text, source in ((first, "a b"), (second, "c d e f g")):
        ids = load_tokenizers(run / "tokenizer").source.encode(source)
        assert set(target.encode(text)) <= {*target.encode("j"), *best[[*ids, 2]].ravel().tolist(), *frequent.tolist()}

    for more, key in (([f"--ensemble={run}"], "an ensemble"), (["--top_k=2"], "samples are of the whole vocabulary")):
        assert main(["translate", *flags, *more]) == 2
        assert "decoding.shortlist: " in (said := capsys.readouterr().err) and key in said

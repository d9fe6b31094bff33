r"""A Transformer for your own parallel text, sized for the corpus and a budget of time.

    transformer-jax train --config=text --config.data.train=corpus/train.{en,de} \
        --config.data.validation=corpus/dev.{en,de} --budget=20m --workdir=runs/mine
    transformer-jax train --config=text --config.data.train=corpus/all.tsv \
        --config.data.held_out=2000 --workdir=runs/mine

Files are plain, .gz or .xz: two files, one a language, with a sentence a line, or one .tsv file.
Settings of the command are kept. The length is estimated for the CPU before training starts, and
again every minute. An accelerator is faster. Two to eight validations decode 96 to 1,920 sentences
greedily and take a twentieth of the time. Not yet run on a corpus of millions of pairs.

``student``: a small model that decodes fast, for text that a teacher translated
(experiments/students): four encoder layers and one decoder layer with a recurrent unit instead of
self-attention, greedy search. Scores: experiments/own_text.
"""

from ml_collections import ConfigDict

BUDGET = "1h"
VARIANTS = ("", "student")
MEASURED = {
    "": ("2 shared CPU cores", "--budget=3m: 193 CPU s", "validation BLEU 45.8, 29,000 captions En-Fr"),
    "student": (
        "2 shared CPU cores",
        "1,613 updates on translations of its teacher",
        "test BLEU 36.3, greedy, 29,000 captions En-De",
    ),
}


def get_config(variant: str = "") -> ConfigDict:
    """Return the settings that do not depend on the corpus."""
    config = ConfigDict()
    config.data = {"source": "text"}
    config.tokenizer = {"kind": "bpe"}
    config.model = {"kind": "transformer", "compute_dtype": "auto"}
    config.training = {"validation_beam_width": 1, "keep_last": 5}
    config.decoding = {"beam_width": 5}
    return student(config) if variant == "student" else config


def student(config: ConfigDict) -> ConfigDict:
    """Train a fast student: one recurrent decoder layer (SSRU) and four encoder layers.

    The layers are from Kim et al. 2019. A student of beam search needs no beam search (Kim and Rush
    2016, section 4).
    """
    config.model.update(num_encoder_layers=4, num_decoder_layers=1, mixers="ssru")
    config.decoding.beam_width = 1
    return config

"""The tokenizers of a run: in its folder, and in every checkpoint."""

import base64

from transformer_jax.checkpoints import Checkpoints
from transformer_jax.config import ExperimentConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.tokenizers import (
    TokenizerPair,
    load_tokenizers,
    save_tokenizers,
    tokenizer_files,
    train_tokenizers,
)
from transformer_jax.files import write_whole
from transformer_jax.run_directory import RunDirectory


def tokenizers_for_training(config: ExperimentConfig, run: RunDirectory) -> TokenizerPair:
    """The tokenizers that the run has; if it has none, new ones of its training split, which it then has."""
    if not _are_there(run):
        corpus = open_corpus(config.data, config.seed)
        tokenizers = train_tokenizers(config.tokenizer, corpus, config.data.train_split, config.seed)
        save_tokenizers(tokenizers, run.tokenizer)
    return load_tokenizers(run.tokenizer)


def tokenizers_of_run(run: RunDirectory) -> TokenizerPair:
    """The tokenizers that the run has; raises DataError when it has none, or damaged ones."""
    _are_there(run)
    return load_tokenizers(run.tokenizer)


def tokenizers_to_json(tokenizers: TokenizerPair) -> dict[str, str]:
    """The files of the tokenizers in base 64, by name: what a checkpoint holds of them."""
    return {name: base64.b64encode(data).decode() for name, data in tokenizer_files(tokenizers).items()}


def _are_there(run: RunDirectory) -> bool:
    """Whether the folder of the run holds tokenizers; if not, they are taken from its newest checkpoint, if it has one."""
    if (run.tokenizer / "tokenizer.json").is_file():
        return True
    if not run.checkpoints.is_dir():
        return False
    checkpoints = Checkpoints(run.checkpoints, read_only=True)
    steps = checkpoints.steps()
    saved = checkpoints.progress(steps[-1])["tokenizer"] if steps else {}
    checkpoints.close()
    for name, content in saved.items():
        write_whole(run.tokenizer / name, base64.b64decode(content))
    return bool(saved)

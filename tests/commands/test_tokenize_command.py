"""``tokenize`` leaves tokenizers and tokens where training finds them."""

from transformer_jax.__main__ import main
from transformer_jax.config import resolve
from transformer_jax.data import tokenization
from transformer_jax.tasks.new_tokenizers import cached_tokenizers
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.training.sharding import make_mesh


def test_training_tokenizes_nothing_after_it(tmp_path, monkeypatch, capsys):
    overrides = {"data.generated_pairs": "60", "tokenizer.kind": "word", "data.cache_directory": str(tmp_path)}
    flags = ["--config=quickstart", *(f"--config.{key}={value}" for key, value in overrides.items())]
    assert main(["tokenize", *flags]) == 0
    assert f"the training split is tokenized in {tmp_path}" in capsys.readouterr().out
    monkeypatch.setattr(TranslationTask, "new_tokenizers", None)
    monkeypatch.setattr(tokenization, "encoded_chunks", None)
    config = resolve("quickstart", [*overrides.items(), ("model.compute_dtype", "float32"), ("mesh.data", "-1")])
    task = TranslationTask(config, cached_tokenizers(config, TranslationTask), make_mesh(config.mesh))
    assert task.training_data().store.num_pairs == 60

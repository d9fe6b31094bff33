"""Flags and settings as users of other toolkits write them lead to ours."""

import pytest

from transformer_jax.commands import flags
from transformer_jax.commands.config_command import config
from transformer_jax.commands.evaluate import evaluate
from transformer_jax.commands.train import train
from transformer_jax.commands.translate import translate
from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import leaf_keys, other_toolkits, unknown_key

UPDATES, LENGTH = "--config.training.num_updates", "--config.batching.tokens_per_update"
MISTAKES = [
    (train, "--lr=5e-4", "--config.optimizer.learning_rate"),
    (train, "--learning_rate=5e-4", "--config.optimizer.learning_rate"),
    (train, "--learning-rate=5e-4", "--config.optimizer.learning_rate"),
    (train, "--epochs=10", UPDATES),
    (train, "--max-epoch=10", UPDATES),
    (train, "--num_train_epochs=3", UPDATES),
    (train, "--max_steps=1000", UPDATES),
    (train, "--train_steps=1000", UPDATES),
    (train, "--max-update=1000", UPDATES),
    (train, "--batch_size=64", LENGTH),
    (train, "--max-tokens=4096", LENGTH),
    (train, "--per_device_train_batch_size=8", LENGTH),
    (train, "--update-freq=4", "--config.batching.accumulation_steps"),
    (train, "--gradient_accumulation_steps=4", "--config.batching.accumulation_steps"),
    (train, "--warmup-updates=4000", "--config.optimizer.warmup_updates"),
    (train, "--warmup_steps=4000", "--config.optimizer.warmup_updates"),
    (train, "--lr-scheduler=inverse_sqrt", "--config.optimizer.schedule"),
    (train, "--decay_method=noam", "--config.optimizer.schedule"),
    (train, "--optimizer=adam", "--config.optimizer.name"),
    (train, "--adam-betas=(0.9,0.98)", "--config.optimizer.b1 or --config.optimizer.b2"),
    (train, "--clip-norm=1", "--config.optimizer.clip_norm"),
    (train, "--max_grad_norm=1", "--config.optimizer.clip_norm"),
    (train, "--label_smoothing_factor=0.1", "--config.training.label_smoothing"),
    (train, "--dropout=0.3", "--config.model.dropout"),
    (train, "--attention-dropout=0.1", "--config.model.attention_dropout"),
    (train, "--arch=transformer", "--config.model.kind"),
    (train, "--encoder-layers=6", "--config.model.num_encoder_layers"),
    (train, "--layers=6", "--config.model.num_encoder_layers or --config.model.num_decoder_layers"),
    (train, "--heads=8", "--config.model.num_heads"),
    (train, "--transformer_ff=2048", "--config.model.d_ff"),
    (train, "--hidden_size=512", "--config.model.d_model"),
    (train, "--share-all-embeddings", "--config.model.tying"),
    (train, "--fp16", "--config.model.compute_dtype"),
    (train, "--vocab_size=32000", "--config.tokenizer.vocabulary_size"),
    (train, "--seed=1", "--config.seed"),
    (train, "--save-dir=runs/a", "--workdir"),
    (train, "--output_dir=runs/a", "--workdir"),
    (train, "--save_steps=500", "--config.training.checkpoint_every"),
    (train, "--valid_steps=500", "--config.training.evaluate_every"),
    (train, "--keep-last-epochs=5", "--config.training.keep_last"),
    (train, "--patience=5", "--config.training.patience"),
    (train, "--source_lang=en", "--config.data.source_language"),
    (translate, "--beam_size=4", "--config.decoding.beam_width"),
    (translate, "--beam=4", "--config.decoding.beam_width"),
    (translate, "--num_beams=4", "--config.decoding.beam_width"),
    (translate, "--lenpen=0.6", "--config.decoding.length_penalty"),
    (translate, "--batch_size=32", "--config.decoding.batch_tokens"),
    (translate, "--nbest=5", "--n_best"),
    (translate, "--src=input.en", "--input"),
    (translate, "--ckpt=best", "--checkpoint"),
    (evaluate, "--gen-subset=test", "--split"),
    (evaluate, "--num_beams=4", "--config.decoding.beam_width"),
]


@pytest.mark.parametrize(("command", "written", "meant"), MISTAKES, ids=[written for _, written, _ in MISTAKES])
def test_a_flag_of_another_toolkit_names_the_setting(command, written, meant):
    with pytest.raises(ConfigError) as raised:
        flags.parse(command.flags, [written])
    assert str(raised.value) == f"{written.partition('=')[0]}: unknown flag; did you mean {meant}?"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lr", "optimizer.learning_rate"),
        ("optimizer.lr", "optimizer.learning_rate"),
        ("training.epochs", "training.num_updates"),
        ("training.batch_size", "batching.tokens_per_update or decoding.batch_tokens"),
        ("model.heads", "model.num_heads"),
        ("decoding.beam_size", "decoding.beam_width"),
    ],
)
def test_a_key_of_another_toolkit_names_the_setting(key, meant):
    assert str(unknown_key(key)) == f"{key}: unknown key; did you mean {meant}?"


def test_hints_name_settings_and_flags_that_exist_and_no_other_name_is_ours():
    keys = [key for key, _ in leaf_keys()]
    settings, named = other_toolkits("settings"), other_toolkits("flags")
    assert {key for meant in settings.values() for key in meant} <= {*keys}
    assert not settings.keys() & {key.rpartition(".")[2] for key in keys}
    ours = flags.Values()
    for define in (flag for command in (train, translate, evaluate, config) for flag in command.flags):
        define(ours)
    assert {flag for meant in named.values() for flag in meant} <= ours.keys()

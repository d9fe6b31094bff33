"""Flags and settings as users of other toolkits write them lead to ours."""

import pytest

from transformer_jax.commands import flags
from transformer_jax.commands.config_command import config
from transformer_jax.commands.evaluate import evaluate
from transformer_jax.commands.registry import load_command
from transformer_jax.commands.score import score
from transformer_jax.commands.train import train
from transformer_jax.commands.translate import translate
from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import leaf_keys, other_toolkits, unknown_key
from transformer_jax.registry.index import commands
from transformer_jax.tools.pictures.attention_command import attention

LAYERS = "--config.model.num_encoder_layers and --config.model.num_decoder_layers"
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
    (train, "--adam-betas=(0.9,0.98)", "--config.optimizer.b1 and --config.optimizer.b2"),
    (train, "--clip-norm=1", "--config.optimizer.clip_norm"),
    (train, "--max_grad_norm=1", "--config.optimizer.clip_norm"),
    (train, "--label_smoothing_factor=0.1", "--config.training.label_smoothing"),
    (train, "--dropout=0.3", "--config.model.dropout"),
    (train, "--attention-dropout=0.1", "--config.model.attention_dropout"),
    (train, "--arch=transformer", "--config.model.kind"),
    (train, "--encoder-layers=6", "--config.model.num_encoder_layers"),
    (train, "--layers=6", LAYERS),
    (train, "--num_layers=6", LAYERS),
    (train, "--source=x", "--config.data.train"),
    (train, "--data=corpus", "--config.data.train"),
    (train, "--path=corpus", "--config.data.train"),
    (train, "--model=rnn", "--config.model.kind"),
    (train, "--max_length=100", "--config.data.max_source_tokens and --config.data.max_target_tokens"),
    (train, "--optimizer.lr=1e-3", "--config.optimizer.learning_rate"),
    (train, "--mesh=data=2", "--config.mesh"),
    (train, "--eval_every=5", "--config.training.evaluate_every"),
    (train, "--evaluate_evry=5", "--config.training.evaluate_every"),
    (train, "--training.log_evry=5", "--config.training.log_every"),
    (train, "--initial-learning-rate=1", "--config.optimizer.learning_rate"),
    (train, "--max-num-checkpoint-not-improved=8", "--config.training.patience"),
    (train, "--transformer-model-size=512", "--config.model.d_model"),
    (train, "--weight-tying-type=src_trg", "--config.model.tying"),
    (train, "--prepared-data=folder", "--config.data.store"),
    (train, "--per_device_batch_size=8", LENGTH),
    (train, "--base_output_directory=a", "--workdir"),
    (train, "--resume_from_checkpoint=a", "--workdir"),
    (train, "--evaluation_strategy=steps", "--config.training.evaluate_every"),
    (train, "--metric_for_best_model=bleu", "--config.evaluation.selection"),
    (train, "--model_name_or_path=t5", "--config.init.run"),
    (train, "--user-dir=a", "--plugin"),
    (train, "--restore-file=a.pt", "--config.init.run"),
    (translate, "--restore-file=a.pt", "--checkpoint"),
    (translate, "--model=runs/a", "--workdir"),
    (translate, "--path=a.pt", "--workdir"),
    (translate, "--alpha=0.6", "--config.decoding.length_penalty"),
    (translate, "--max_length=200", "--config.decoding.max_extra_tokens"),
    (translate, "--beam_widht=4", "--config.decoding.beam_width"),
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
    (translate, "--src=input.en", "--source"),
    (translate, "--text=input.en", "--source"),
    (score, "--hypothesis=output.de", "--target"),
    (score, "--translation=output.de", "--target"),
    (attention, "--source=A dog.", "--text"),
    (attention, "--target=Ein Hund.", "--translation"),
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
        ("decoding.batch_size", "decoding.batch_tokens"),
        ("decoding.max_length", "decoding.max_extra_tokens"),
        ("decoding.alpha", "decoding.length_penalty"),
        ("data.max_length", "data.max_source_tokens and data.max_target_tokens"),
        ("model.activation", "model.feed_forward"),
        ("model.tie_word_embeddings", "model.tying"),
        ("optimizer.betas", "optimizer.b1 and optimizer.b2"),
        ("model.num_head", "model.num_heads"),
    ],
)
def test_a_key_of_another_toolkit_names_the_setting(key, meant):
    assert str(unknown_key(key)) == f"{key}: unknown key; did you mean {meant}?"


def test_hints_name_settings_and_flags_that_exist_and_no_other_name_is_ours():
    keys = [key for key, _ in leaf_keys()]
    settings, named = other_toolkits("settings"), other_toolkits("flags")
    assert {key for meant in settings.values() for key in meant} <= {*keys}
    # In other toolkits these are of the usual models.
    assert settings.keys() & {key.rpartition(".")[2] for key in keys} == {"alpha", "num_layers", "tokenizer"}
    assert not settings.keys() & {*keys}
    of_commands = (train, translate, evaluate, config, score, attention)
    ours = {flag for command in of_commands for flag in flags.Parser(command.flags).flags}
    assert {flag for meant in named.values() for flag in meant} <= ours | {f"config.{key}" for key in keys}
    assert {name for meant in other_toolkits("commands").values() for name in meant} <= commands().keys()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("interactive", "translate"), ("test", "evaluate"), ("preprocess", "tokenize"), ("trian", "train")],
)
def test_a_command_of_another_toolkit_names_ours(name, meant):
    with pytest.raises(ConfigError, match=f"^'{name}' is not a command; did you mean {meant}"):
        load_command(name)


def test_an_unknown_key_leads_to_no_block_and_advice_needs_no_flag():
    assert str(unknown_key("model.xyz")).startswith("model.xyz: unknown key; model has ")
    with pytest.raises(ConfigError, match="^--cpu: unknown flag; set JAX_PLATFORMS=cpu before the command$"):
        flags.parse(train.flags, ["--cpu"])

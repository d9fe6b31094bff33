"""Settings and digests that earlier versions saved, and the errors for settings that no longer
exist."""

import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, TransformerConfig, from_dict, from_json, migration
from transformer_jax.config.conversion import apply_overrides, leaf_keys
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.config.translation import DecodingConfig

LANGUAGE_MODEL = {"task": "language_model"}
AS_BEFORE = EvaluationConfig(bleu_tokenizer="13a", selection="bleu")


def test_renamed_settings_are_read_under_their_new_names():
    old = {"schema_version": 1, "config": {"seed": 4, "model": {"d_ff": 64, "rematerialise": "full"}}}
    model = TransformerConfig(d_ff=64, rematerialize="full")
    assert from_json(old) == ExperimentConfig(seed=4, model=model, evaluation=AS_BEFORE)
    assert old["config"]["model"]["rematerialise"] == "full", "the argument must stay as it was"
    text = LANGUAGE_MODEL | {"data": {"source": "text", "file": "a.txt", "held_out": 0.1}}
    assert from_json({"schema_version": 2, "config": text}).data.train == "a.txt"
    with pytest.raises(ConfigError, match="data.file: unknown key; it is data.train now"):
        from_json({"schema_version": 3, "config": text})


def test_a_part_that_had_two_names_is_read_under_the_one_that_stayed():
    saved = {"schema_version": 3, "config": {"model": {"feed_forward": "gated_silu"}}}
    assert from_json(saved).model.feed_forward == "swiglu"


def test_runs_keep_their_scores():
    data = {"source": "text", "directory": "here", "target_language": "ja"}
    old = from_json({"schema_version": 2, "config": {"data": data}})
    assert old.evaluation.resolved("ja") == old.evaluation == AS_BEFORE and old.selection.name == "bleu"
    new = from_json({"schema_version": 2, "config": {"data": data, "evaluation": {}}})
    assert new.evaluation.resolved("ja") != AS_BEFORE
    assert from_json({"schema_version": 2, "config": LANGUAGE_MODEL}).evaluation == EvaluationConfig()


def test_removed_settings_are_left_out_of_saved_runs_and_refused_elsewhere():
    removed = {"shortlist": "", "diverse_groups": 1, "diversity": 0.5}
    saved = {"decoding": {"beam_width": 3, **removed}, "training": {"local_checkpoint_every": 0}}
    assert from_json({"schema_version": 3, "config": saved}).decoding == DecodingConfig(beam_width=3)
    saved["training"]["local_checkpoint_every"] = 20
    with pytest.warns(UserWarning, match="training.local_checkpoint_every=20 is ignored: the setting was removed"):
        assert from_json({"schema_version": 3, "config": saved}).decoding.beam_width == 3
    with pytest.raises(ConfigError, match="^training.local_checkpoint_every: was removed; leave it out$"):
        from_dict({"training": saved["training"]})
    with pytest.raises(ConfigError, match="^decoding.shortlist: was removed; leave it out$"):
        apply_overrides({}, [("decoding.shortlist", "a.npz")])


def test_the_tables_name_settings_that_exist_now_or_do_not():
    known = {key for key, _ in leaf_keys()}
    assert set(migration.RENAMED.values()) <= known
    assert known.isdisjoint({*migration.RENAMED, *migration.REMOVED})


def test_reports_have_the_defaults_of_settings_that_did_not_exist():
    saved = {"beam_width": 2, "mbr": ""}
    assert migration.decoding_of_report(saved, DecodingConfig()) == migration.decoding_of_report(
        {"beam_width": 2}, DecodingConfig(beam_width=9)
    )


def test_a_digest_with_the_time_of_a_file_is_that_of_earlier_checkpoints(tmp_path, monkeypatch):
    from transformer_jax.data import text_files
    from transformer_jax.data.corpora import open_corpus
    from transformer_jax.data.sentence_pairs import content_of

    monkeypatch.setattr(text_files, "WHOLE_HASH_BYTES", 1)
    monkeypatch.setattr(text_files, "_SAMPLE_BYTES", 1)
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("a b\n")
    config = from_dict({"data": {"source": "text", "directory": str(tmp_path)}})
    earlier = migration.earlier_digest(config, lambda config: open_corpus(config.data, 0))
    assert earlier and earlier != content_of(open_corpus(config.data, 0), "train")

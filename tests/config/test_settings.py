"""Every setting is explained and checked by its facts, and combinations that exclude each other are
refused."""

from pathlib import Path

import pytest
from libraries import with_all_tools

from transformer_jax.__main__ import main
from transformer_jax.commands.config_command import all_explained, explained, settings_page
from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, from_dict
from transformer_jax.config.conversion import from_json, keys_of_parts, leaf_keys, to_json
from transformer_jax.config.optimization import decays
from transformer_jax.config.tasks import TASKS
from transformer_jax.registry.plugins import _REGISTERED

LM, PACKED = "task=language_model & ", "batching.kind=packed & batching.packed_length="
MIXERS, SMOOTHED = "model.mixers=ssru attention", "training.loss_terms=unigram_smoothing"
LEARNED = "data.max_source_tokens=32 & model.positions=learned & "
MUP = "optimizer.name=mup & optimizer.schedule=constant & model.initialization=mup & model.tying=none & "
REFUSED = [
    ("data.source=copy & data.generated_words=2 & data.generated_pairs=16", "data.generated_words: sequences of up to"),
    ("data.source=sql", "data.source: 'sql' is not one of grammar, copy, reverse, text, mixture, tfds, "),
    ("data.source=text", "data.directory: must be the folder of the text files; or name the files,"),
    ("data.source=text & data.directory=x & data.source_language=de", "data.target_language: is 'de', the same as"),
    ("tokenizer.joint=False", "model.tying: 'all' shares both embeddings, which needs"),
    ("batching.tokens_per_update=1000", "batching.tokens_per_update: 1000 is less than"),
    (PACKED + "128", "batching.packed_length: 128 positions do not fit a"),
    ("model.num_heads=7", "model.num_heads: d_model=512 is not divisible by num_heads=7; change one, or set model."),
    ("model.d_model=2 & model.num_heads=1 & model.positions=fairseq", "model.d_model: fairseq positions need at least"),
    ("model.d_model=511 & model.d_key=8 & model.d_value=8", "model.d_model: 511 must be even: sinusoids come in pairs"),
    (MIXERS, "model.mixers: 2 names for the 6 layers of the decoder; give one for each"),
    (MIXERS + " & model.num_decoder_layers=2 & model.scan_layers=True", "model.scan_layers: model.mixers='ssru attent"),
    ("model.attention=biased,qk_norm", "model.attention: biased takes no changes, only multi_head does; leave"),
    (LEARNED + "model.max_positions=255", "model.max_positions: 255 learned positions are too few to translate the"),
    ("optimizer.weight_decay=0.1", "optimizer.weight_decay: adam has none; use optimizer.name=adamw"),
    ("optimizer.schedule=cosine & training.num_updates=4000", "optimizer.warmup_updates: 4000 must be less than"),
    ("init.run=a & init.checkpoint=lst", "init.checkpoint: 'lst' is not best, last or the number of an"),
    ("init.run=a & init.rename=b=>\\1", "init.rename: '\\\\1' cannot replace 'b': invalid group reference 1"),
    (f"training.num_updates={10**20}", f"training.num_updates: {10**20} must be at most 2147483647"),
    ("mesh.data=2 & mesh.fsdp=3", "batching.row_multiple: 8 is not a multiple of 6 (mesh data 2 x fsdp 3 x accumulati"),
    (PACKED + "260 & mesh.context=8", "mesh.context: 8 does not divide rows of 260"),
    (LM + "tokenizer.kind=word", "tokenizer.kind: 'word' loses text, so bits per byte are not"),
    (LM + "data.source=text", "data.train: data.source=text needs either a file here or"),
    (LM + "data.evaluation_stride=8 & batching.kind=packed", "data.evaluation_stride: rows overlap only with"),
    (LM + "decoding.max_new_tokens=300", "decoding.max_new_tokens: 300 tokens do not fit into"),
]
ALLOWED = [
    "model.num_heads=7 & model.d_key=64 & model.d_value=64",
    "tokenizer.joint=False & model.tying=output",
    "batching.tokens_per_update=1000 & data.max_source_tokens=100 & data.max_target_tokens=124",
    "mesh.data=2 & mesh.fsdp=4",
    "data.source=copy & data.source_language=en & data.target_language=en",
    LEARNED + "model.max_positions=256",
]
NOT_BEGUN = [
    (LM + "decoding.beam_width=4 & decoding.top_k=9", "decoding.top_k: 9 has no effect here: decoding.beam_width=4 is"),
    (
        LEARNED + "data.max_target_tokens=32 & model.max_positions=111 & batching.kind=packed",
        "model.max_positions: 111 learned positions do not reach rows of 256 positions; use 256",
    ),
    (LEARNED + "model.max_positions=256 & batching.width_multiple=96", "model.max_positions: 256 learned positions do"),
    (
        "model.attention=talking_heads,sigmoid",
        "model.attention: sigmoid replaces the softmax, which talking_heads chan",
    ),
    ("model.attention=sigmoid,sink", "model.attention: sigmoid replaces the softmax, which sink changes; choose one"),
    (SMOOTHED, "training.label_smoothing: 0.1 would smooth twice, since unigram_smoothing replaces it; use 0"),
    ("training.loss_terms=load_balance", "training.loss_terms: load_balance needs model.feed_forward=mixture_of_ex"),
    ("training.watch=gradient_noise", "training.watch: gradient_noise needs batching.accumulation_steps of at least 2"),
    (LM + "model.mixers=ssru & training.watch=attention_entropy", "training.watch: attention_entropy needs layers wit"),
    ("model.kind=rnn & training.watch=largest_logit", "training.watch: largest_logit reads activations of Transf"),
    ("model.normalization=deepnorm", "model.initialization: DeepNorm is model.normalization=deepnorm and model.initia"),
    (
        "data.source=mixture & data.train=a=a.tsv b=b.tsv & data.tags=a=<a> & training.corruptions=word_dropout",
        "training.corruptions: word_dropout would replace the tags of data.tags; leave out one of the two",
    ),
    ("optimizer.name=mup", "optimizer.name: mup needs a Transformer with model.initialization=mup"),
    (MUP + "model.num_heads=4", "model.attention: optimizer.name=mup needs mup here too: the size of a head is 128, n"),
    (MUP + "model.attention=mup,qk_norm", "model.attention: qk_norm erases the factor of mup; put mup after it"),
    (MUP + "model.attention=latent,mup", "model.attention: mup does not scale the latent projection; use another"),
    (MUP + "model.attention=talking_heads,mup & model.num_heads=4", "model.attention: mup does not scale the mixtures"),
    (MUP + "model.attention=grouped_query,mup & model.num_heads=8", "model.attention: has too few parts.grouped_query"),
    (MUP + "model.tying=all", "model.tying: mup has other output weights than embeddings, not all; use none"),
    (MUP + "optimizer.schedule=noam", "optimizer.schedule: noam falls with the width, as the rates of mup do; use"),
]
BEGUN = [
    MUP + "model.attention=qk_norm,mup",
    MUP + "model.attention=talking_heads,mup & model.num_heads=2",
    MUP + "model.attention=grouped_query,mup & model.num_heads=4",
    "model.attention=sigmoid,talking_heads",
    "model.normalization=deepnorm & model.initialization=deepnorm",
    MUP + "model.num_heads=4 & parts.mup.base_key_size=128",
    SMOOTHED + " & training.label_smoothing=0",
    LM + "decoding.beam_width=4 & decoding.length_penalty=1",
    "training.loss_terms=load_balance & model.feed_forward=mixture_of_experts",
    "training.watch=gradient_noise,attention_entropy & batching.accumulation_steps=2",
    "model.kind=rnn & training.watch=gradient_norms",
    LEARNED + f"model.max_positions=258 & {PACKED}258 & batching.count=positions & data.max_target_tokens=32",
]


def settings_of(text: str) -> ExperimentConfig:
    return from_dict(apply_overrides({}, [each.partition("=")[::2] for each in text.split(" & ")]))


@with_all_tools
@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_an_impossible_setting_is_refused_with_its_remedy(text, message):
    with pytest.raises(ConfigError) as raised:
        settings_of(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(("text", "message"), NOT_BEGUN)
def test_no_run_begins_with_settings_that_saved_runs_may_have(text, message):
    saved = settings_of(text)
    with pytest.raises(ConfigError) as raised:
        saved.check_new_run()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("text", ALLOWED + BEGUN)
def test_the_remedies_work(text):
    settings_of(text).check_new_run()


def test_every_setting_has_a_meaning_and_a_reader_and_is_listed_with_its_task(capsys):
    for task in TASKS:
        assert main(["config", "--list", f"--config.task={task}"]) == 0
    printed = capsys.readouterr().out
    for each in all_explained():
        assert all(reader.declared.meaning for reader in each.readers) and each.readers, each.key
        assert f"  {each.key} " in printed or f"  {each.key}\n" in printed
    keys = [key for key, _ in leaf_keys()] + list(keys_of_parts())
    assert [each.key for each in all_explained()] == keys


@with_all_tools
def test_an_explanation_has_meanings_values_defaults_and_readers(capsys):
    assert main(["config", "--explain", "model.normalization"]) == 0
    printed = capsys.readouterr().out
    assert "values: post, pre, " in printed
    assert "default: post  [translation transformer, parsing transformer]\n  default: pre  [language_model]" in printed
    assert explained("model.kind").by("values")[0] == ("transformer, rnn", "translation, parsing")
    assert "and of the output of the decoder. [translation rnn, parsing rnn]" in explained("model.dropout").meaning
    with pytest.raises(ConfigError, match=r"did you mean model\.normalization"):
        explained("model.normalisation")
    assert main(["config", "--explain=mesh"]) == 0
    printed = capsys.readouterr().out
    assert "mesh.fsdp" in printed and "model." not in printed


def test_a_word_finds_settings_by_name_by_meaning_and_by_the_name_of_another_toolkit(capsys):
    for word, keys in (("beam", ["decoding.beam_width", "decoding.stop"]), ("lr", ["optimizer.learning_rate"])):
        assert main(["config", f"--explain={word}"]) == 0
        printed = capsys.readouterr().out
        assert all(f"  {key} " in printed for key in keys), printed
    assert main(["config", "--explain=model.normalisation"]) == 2
    assert capsys.readouterr().err.endswith("unknown key; did you mean model.normalization?\n")


@pytest.mark.parametrize("columns", [60, 100])
def test_lists_fit_the_terminal_and_break_no_word(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in (["config", "--list"], ["config", "--explain=model.attention"], ["recipes"]):
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > columns and len(line.split()) > 1 and "files: " not in line] == []
    assert main(["config", "--explain=decoding.stop"]) == 0
    assert "as in most toolkits: faster, may miss the best)." in " ".join(capsys.readouterr().out.split())


def test_a_list_of_names_has_one_saved_form_and_no_name_twice():
    config = settings_of("model.attention= grouped_query,,qk_norm, & training.loss_terms=z_loss ,r_drop")
    assert (config.model.attention, config.training.loss_terms) == ("grouped_query,qk_norm", "r_drop,z_loss")
    assert settings_of("training.loss_terms=r_drop,z_loss").training == config.training
    assert settings_of("model.attention=qk_norm,grouped_query").model.attention == "qk_norm,grouped_query"
    assert settings_of("model.mixers=ssru  attention & model.num_decoder_layers=2").model.mixers == "ssru attention"
    for text in ("training.loss_terms=z_loss,z_loss", "training.corruptions=word_dropout, word_dropout"):
        with pytest.raises(ConfigError, match="names .* twice; name it once"):
            settings_of(text)
    saved = to_json(config)
    saved["config"]["training"]["loss_terms"] = "z_loss,,r_drop,z_loss"
    assert from_json(saved) == config


def test_a_schedule_says_whether_it_decays(monkeypatch):
    monkeypatch.setitem(_REGISTERED["schedule"], "flat_here", _flat)
    settings_of("optimizer.schedule=flat_here & optimizer.warmup_updates=50 & training.num_updates=10")
    assert not decays("flat_here") and decays("wsd") and decays("cosine") and not decays("noam")
    monkeypatch.setattr(_flat, "decays", True)
    long_warmup = "optimizer.schedule=flat_here & optimizer.warmup_updates=50 & training.num_updates=10"
    with pytest.raises(ConfigError, match="the flat_here schedule decays after the warm-up"):
        settings_of(long_warmup)
    monkeypatch.setattr(_flat, "decays", "no")
    with pytest.raises(ConfigError, match="optimizer.schedule: decays = 'no' of flat_here; write True or False"):
        settings_of(long_warmup)
    monkeypatch.delattr(_flat, "decays")
    with pytest.raises(ConfigError, match="the flat_here schedule does not say decays = False"):
        settings_of(long_warmup)
    silent = settings_of("optimizer.schedule=flat_here")
    with pytest.raises(ConfigError, match=r"flat_here does not say .*; write _flat\.decays = True or False below it$"):
        silent.check_new_run()


def _flat(settings, hyperparameters, d_model):
    return lambda step: 1.0


_flat.decays = False


@with_all_tools
def test_the_page_of_settings_is_not_stale():
    page = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_page(), "transformer-jax config --list --markdown > docs/settings.md"


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("norm", "rmsnrm", "rmsnorm"),
        ("attention", "rop", "model.positions=rope"),
        ("normalization", "rmsnorm", "model.norm=rmsnorm"),
    ],
)
def test_the_error_of_a_misspelled_part_has_its_name_and_its_setting(key, value, meant):
    with pytest.raises(ConfigError, match=rf"^model\.{key}: '{value}' is not .* \(did you mean {meant}\?\); a plugin"):
        from_dict({"model": {key: value}})

import importlib
import inspect
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from transformer_jax.config import ConfigError
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import register, registered
from transformer_jax.registry.python_files import load_plugin
from transformer_jax.tools.conform import conformity as checks
from transformer_jax.tools.conform import costs, references
from transformer_jax.tools.conform.comparison import Broken, require_near, require_same_bits
from transformer_jax.tools.conform.conformity import checked, findings, trial_of
from transformer_jax.tools.conform.costs import costs_of
from transformer_jax.tools.conform.ideas import KINDS, NEEDED, Idea, find_ideas, with_values
from transformer_jax.tools.conform.model_properties import left_padding_changes_nothing
from transformer_jax.tools.conform.reference import equals_reference, find_reference
from transformer_jax.tools.conform.task_properties import OF_TASKS
from transformer_jax.tools.conform.trials import Trial, trial_config

PROPERTIES = checks.PROPERTIES["language_model"]
INCOMPLETE = """
import transformer_jax
from transformer_jax.layers.modified_attention import AttentionChange

@transformer_jax.register("positions", "incomplete")
def incomplete(settings, model, site):
    return AttentionChange(site=site)
"""

KIT = [part for part, listed in own_parts().items() if listed.owner.is_kit]


class AcausalKeys(AttentionChange):
    def keys(self, key_BGMK, positions):
        return key_BGMK + jnp.roll(key_BGMK, -1, axis=2)


class KeysByIndex(AttentionChange):
    def keys(self, key_BGMK, positions):
        # In a cache the index in the array is not the position.
        return key_BGMK * (1.0 + jnp.arange(key_BGMK.shape[2], dtype=jnp.float32))[None, None, :, None]


class OddWidth(nn.Module):
    """A width that no axis of a mesh divides."""

    @nn.compact
    def __call__(self, inputs, *, train):
        wide = self.param("wide_kernel", nn.initializers.normal(), (inputs.shape[-1], 7))
        narrow = self.param("narrow_kernel", nn.initializers.normal(), (7, inputs.shape[-1]))
        return jnp.einsum("BLD,DF,FE->BLE", inputs, wide, narrow)


@pytest.fixture(scope="module", autouse=True)
def broken_ideas(plugins_of_this_file):
    register("attention", "acausal_keys")(AcausalKeys)
    register("attention", "keys_by_index")(KeysByIndex)
    register("feed_forward", "odd_width")(lambda settings, config, site, *, dropout, precision: OddWidth())
    register("optimizer", "ascending")(lambda hyperparameters: [optax.scale(-1.0)])


@pytest.mark.parametrize(
    ("idea", "name", "smaller", "expected"),
    [
        (
            Idea("attention", "acausal_keys"),
            "causal by gradient",
            (2, 3),
            "of length 3: the logits of token 2 depend on",
        ),
        pytest.param(
            Idea("attention", "keys_by_index"),
            "a decoding step equals the full pass",
            (1, 2),
            "of length 2: token 2",
            marks=pytest.mark.slow,
        ),
        (Idea("feed_forward", "odd_width"), "meshes equal one device", (), "7 in params/"),
        pytest.param(
            Idea("optimizer", "ascending"), "learns a batch", (), "the loss goes from", marks=pytest.mark.slow
        ),
    ],
)
def test_a_broken_idea_is_named_with_its_smallest_case(idea, name, smaller, expected):
    trial = Trial(trial_config("language_model", idea.settings({"model": {"num_layers": 1}})))
    finding = checked(trial, "language_model", name, PROPERTIES[name], smaller)
    assert not finding.holds and expected in finding.detail


FAULTS = Path(__file__).with_name("planted_faults.py")


@pytest.mark.parametrize(
    ("name", "property_name", "line", "expected"),
    [
        ("other_equation", "equals its reference", "def score_mod", "self_attention: differs by"),
        ("not_trained", "every parameter gets a gradient", '"temperature"', "changes_not_trained/temperature"),
        ("changes_nothing", "differs from the base", "def score_mod", "computes the same as the model without it"),
        ("rounds_scores", "float32 stays float32", "astype(jnp.bfloat16)", "rounds float32 to bfloat16"),
    ],
)
def test_a_planted_fault_is_found_by_one_property_of_the_idea_with_a_line_of_its_file(
    name, property_name, line, expected
):
    load_plugin(str(FAULTS))
    trial = trial_of("language_model", Idea("attention", name), {"model": {"num_layers": 1}})
    of_idea = ("equals its reference", *checks.AT_ONE_LENGTH)
    every = [checked(trial, "", name, PROPERTIES[name], smaller=()) for name in of_idea]
    (finding,) = [finding for finding in every if not finding.holds]
    assert finding.name == property_name and expected in finding.detail
    number = int(re.search(rf"{FAULTS}, line (\d+): ", finding.detail)[1])
    assert line in FAULTS.read_text().splitlines()[number - 1]


def test_a_weight_that_begins_at_0_differs_from_the_base():
    values = {"model": {"num_layers": 1}, "parts": {"z_loss": {"weight": "linear(0,1e-4)"}}}
    trial = trial_of("language_model", Idea("loss_term", "z_loss"), values)
    assert PROPERTIES["differs from the base"](trial, 4).startswith("by ")


def test_a_part_that_reads_its_layer_is_checked_in_two_layers_of_an_encoder_decoder():
    load_plugin(str(FAULTS))
    trial = trial_of("translation", Idea("attention", "acausal_second_layer"))
    with pytest.raises(Broken, match="depend on token"):
        PROPERTIES["causal by gradient"](trial, 3)
    assert trial_of("translation", Idea("attention", "qk_norm")).config.model.num_decoder_layers == 1


def test_the_reference_of_a_part_of_the_kit_is_in_the_module_of_its_kind():
    kinds = KINDS.keys() - {"corruption", "statistic"}
    without = [part for part in KIT if part[0] in kinds and find_reference(Idea(*part)) is None]
    assert without == []
    folder = Path(references.__file__).parent
    for file in sorted(folder.glob("[a-z]*.py")):
        module = importlib.import_module(f"{references.__name__}.{file.stem}")
        functions = {name for name, value in vars(module).items() if inspect.isfunction(value)}
        functions = {name for name in functions if vars(module)[name].__module__ == module.__name__}
        assert {name for name in functions if not name.startswith("_")} <= {*registered(file.stem)}


@pytest.mark.parametrize(
    ("idea", "model", "others"),
    [
        (Idea("attention", "gated"), {"attention": "latent,sink", "positions": "rope"}, "rope, latent, sink"),
        pytest.param(Idea("residual", "sandwich"), {"norm": "rmsnorm"}, "rmsnorm", marks=pytest.mark.slow),
    ],
)
def test_a_reference_is_not_compared_beside_parts_that_it_does_not_compute(idea, model, others):
    words = f"not compared: the reference does not compute {others}"
    assert equals_reference(trial_of("language_model", idea, {"model": model}), 3) == words
    assert float(equals_reference(trial_of("language_model", idea), 3)) < 1e-5


class DrawnInOrder:
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def training_data(self):
        return self

    def batches(self, first_update):
        while True:
            yield {"rows": self.generator.integers(0, 9, (2, 3))}


def test_a_task_whose_batches_depend_on_the_order_of_calls_is_named():
    trial = SimpleNamespace(task=DrawnInOrder(), new_task=DrawnInOrder)
    finding = checked(trial, "task", "batches follow the update", OF_TASKS["batches follow the update"], smaller=())
    assert not finding.holds and finding.detail == "update 3, read again from update 3: rows differs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["language_model", "parsing", "translation", "word_vectors"])
def test_every_task_conforms(name):
    assert [finding for finding in findings("task", Idea("task", name)) if not finding.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [part for part in sorted(KIT) if part[0] in KINDS])
def test_every_part_of_the_kit_conforms(kind, name):
    for model in KINDS[kind].models:
        assert [finding for finding in findings(model, Idea(kind, name)) if not finding.holds] == []


# Each part of the kit that changes a model or an update once, by the setting that selects it.
OTHERS = "statistic", "corruption", "after_update"
COMBINATIONS = [
    dict(pair.split("=") for pair in text.split("; "))
    for text in (
        "model.attention=grouped_query,qk_norm,soft_cap; model.positions=rope; model.norm=rmsnorm; "
        "model.normalization=sandwich; model.feed_forward=swiglu; optimizer.name=muon; training.loss_terms=z_loss",
        "model.attention=multi_query,latent,gated,sink,talking_heads; model.positions=t5; model.normalization=rezero; "
        "model.feed_forward=mixture_of_experts; optimizer.name=lion; optimizer.averaging=ema; "
        "training.loss_terms=r_drop,load_balance",
        "model.attention=sliding_window,sigmoid; model.positions=shaw; model.mixers=attention gated_linear_attention; "
        "model.normalization=deepnorm; model.initialization=deepnorm; model.feed_forward=reglu; optimizer.name=soap; "
        "optimizer.schedule=wsd",
        "model.attention=mup,softmax_one; model.positions=alibi; model.mixers=ssru attention; model.feed_forward=geglu; "
        "model.projection=soft_capped; model.initialization=mup; model.tying=none; optimizer.name=mup; "
        "optimizer.averaging=schedule_free; training.loss_terms=multi_token,unigram_smoothing",
        "model.attention=value_residual; model.mixers=attention gated_delta_net attention; "
        "model.normalization=hyper_connections; model.feed_forward=swiglu",
        "model.attention=softpick; model.positions=ngpt; model.normalization=ngpt; model.feed_forward=ngpt; "
        "model.projection=ngpt; optimizer.after_update=ngpt",
        "model.attention=differential; model.feed_forward=mixture_of_experts; optimizer.after_update=balance_bias",
        "model.feed_forward=relu_squared",
    )
]


def config_of(settings):
    """A language model with a layer for every mixer."""
    values = {"model": {"num_layers": settings.get("model.mixers", "").count(" ") + 1}}
    for path, each in settings.items():
        block, _, key = path.partition(".")
        values = with_values(values, {block: {key: each}})
    for name in (name for names in settings.values() for name in split(names)):
        values = with_values(NEEDED.get(name, {}), values)
    return trial_config("language_model", values, small=True)


def split(names):
    return [name for name in re.split("[, ]", names) if name != "attention"]


def broken(trial, *names):
    results = [checked(trial, "language_model", name, PROPERTIES[name]) for name in names]
    return [finding for finding in results if not finding.holds]


GROUPED = {"model.attention": "grouped_query,qk_norm", "model.positions": "rope"}
CHEAP = {"model.mixers": "ssru", "model.normalization": "sandwich"}


@pytest.mark.parametrize(
    "settings", [CHEAP, *(pytest.param(settings, marks=pytest.mark.slow) for settings in (GROUPED, *COMBINATIONS[:-1]))]
)
def test_combinations_of_the_kit_keep_the_promises_of_decoding(settings):
    names = "a decoding step equals the full pass", "causal by gradient", "packed equals apart"
    assert broken(Trial(config_of(settings)), *names, *checks.OF_LANGUAGE_MODELS) == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", COMBINATIONS[:-1])
def test_combinations_of_the_kit_learn(settings):
    assert broken(Trial(config_of(settings)), "learns a batch") == []


def test_the_cache_of_a_window_is_a_ring_that_holds_one_window_also_after_a_longer_prompt():
    trial = Trial(config_of({"model.attention": "grouped_query,sliding_window", "model.positions": "rope"}))
    params = trial.params
    cache = jax.eval_shape(lambda: trial.start(params, jnp.ones((2, 9), jnp.int32), 2, 8)).kv_cache
    assert {leaf.shape for leaf in jax.tree.leaves(cache)} == {(2, 2, 4, 6), (2, 2, 6, 4)}
    assert left_padding_changes_nothing(trial, 14)


def test_combinations_are_the_whole_kit():
    kinds = {kind.setting: name for name, kind in KINDS.items() if name not in ("rnn_attention", "task", *OTHERS)}
    parts = [(path, name) for settings in COMBINATIONS for path, names in settings.items() for name in split(names)]
    combined = {(kinds[path], name) for path, name in parts if path in kinds}
    assert combined == {part for part in KIT if part[0] in kinds.values()}


def test_costs_count_every_step_of_a_loop(monkeypatch):
    monkeypatch.setattr(costs, "optimized", nullcontext)
    found = costs_of(Trial(trial_config("rnn", {})))
    # Two FLOPs for a parameter in the forward pass, four in the backward pass; embeddings have
    # none.
    assert found.flops > 4 * costs.ROWS * costs.LENGTH * found.parameters


def test_ideas_are_found_by_name_kind_and_file(tmp_path):
    assert find_ideas("rope") == [Idea("positions", "rope")]
    assert find_ideas("deepnorm") == [Idea("residual", "deepnorm"), Idea("initialization", "deepnorm")]
    assert find_ideas("residual:deepnorm") == [Idea("residual", "deepnorm")]
    assert find_ideas("parsing") == [Idea("task", "parsing")]
    with pytest.raises(ConfigError, match=r"no part 'ropes'; did you mean rope\?"):
        find_ideas("ropes")
    file = tmp_path / "mine.py"
    first = "import transformer_jax\ntransformer_jax.register('attention', 'mine')(type('Mine', (), {}))\n"
    file.write_text(first)
    assert find_ideas(str(file)) == [Idea("attention", "mine")]
    file.write_text(f"{first}transformer_jax.register('optimizer', 'mine')(lambda hyperparameters: [])\n")
    load_plugin(str(file))
    assert find_ideas(str(file)) == [Idea("attention", "mine"), Idea("optimizer", "mine")]
    file.write_text("")
    with pytest.raises(ConfigError, match="registers none of attention, "):
        find_ideas(str(file))


def test_not_a_number_and_other_bits_are_differences():
    with pytest.raises(Broken, match="differs by nan"):
        require_near({"a": np.array([np.nan])}, {"a": np.array([1.0])})
    with pytest.raises(Broken, match="a differs"):
        require_same_bits({"a": np.array([0.0])}, {"a": np.array([-0.0])})


def test_a_model_that_cannot_be_built_is_one_finding_with_the_line(tmp_path):
    file = tmp_path / "incomplete.py"
    file.write_text(INCOMPLETE)
    load_plugin(str(file))
    (finding,) = findings("language_model", Idea("positions", "incomplete"))
    assert (finding.name, finding.holds) == ("model and loss can be built", False)
    assert f"{file}, line 7: TypeError: " in finding.detail and "num_heads" in finding.detail


def test_an_idea_is_added_to_a_list_and_only_the_idea_is_missing_in_the_base():
    idea, overrides = Idea("attention", "qk_norm"), {"model": {"attention": "grouped_query,qk_norm"}}
    parts = {"parts": {"grouped_query": {"key_value_heads": 1}}}
    assert idea.settings({"model": {"attention": "grouped_query"}} | parts) == overrides | parts
    assert idea.settings(overrides) == overrides
    assert idea.settings_without(overrides) == {"model": {"attention": "grouped_query"}, "parts": {}}
    assert idea.settings_without({"model": {"attention": "qk_norm"}}) == {"model": {}, "parts": {}}
    for kind in ("optimizer", "attention", "initialization"):
        base = trial_config("translation", Idea(kind, "mup").settings_without({}))
        assert "mup" not in [part.name for part in base.selections] and base.model.tying == "none"

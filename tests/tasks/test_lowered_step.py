"""The loss's gradient lowered for NVIDIA GPUs, which need not be here: types and kernels."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax._src.cudnn import fused_attention_stablehlo
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.config import ExperimentConfig, MeshConfig, TransformerConfig, from_dict, hyperparameters_of
from transformer_jax.config.recipes import load_recipe
from transformer_jax.layers.attention_backends import BY_HEAD, CudnnAttention, TpuFlashAttention
from transformer_jax.layers.masks import SentenceMask, Window
from transformer_jax.layers.scaled_dot_product import AttentionOptions
from transformer_jax.models import devices
from transformer_jax.models.interface import call
from transformer_jax.precision import POLICIES
from transformer_jax.sequence_types import batch_shape
from transformer_jax.tasks import objective as task_objective
from transformer_jax.tasks.language_model.language_model_task import LanguageModelObjective
from transformer_jax.tasks.translation import translation_objective
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.update import Update

SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 48, "num_heads": 2}
ROWS, SOURCE, TARGET, VOCABULARY = 2, 72, 88, 300
FILLED = 384
ATTENTIONS = 3


class Client(NamedTuple):
    platform_version: str = "cuda 13000"


class Gpu(NamedTuple):
    platform: str = "gpu"
    device_kind: str = "NVIDIA H100"
    client: Client = Client()
    compute_capability: str = "9.0"


@contextmanager
def pretended_gpu(capability: str = "9.0") -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (devices, task_objective, translation_objective):
            patch.setattr(module, "device_of", lambda mesh: Gpu(compute_capability=capability))
        yield make_mesh(MeshConfig(data=1), jax.devices()[:1])


def objective_on_a_gpu(**settings: object) -> TranslationObjective:
    model = TransformerConfig(**(SIZES | {"compute_dtype": "bfloat16"} | settings))
    with pretended_gpu() as mesh:
        return TranslationObjective(ExperimentConfig(model=model), VOCABULARY, VOCABULARY, mesh)


def shapes_of(objective: TranslationObjective) -> tuple:
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(objective.init_params, key), batch_shape(ROWS, SOURCE, TARGET), key


@pytest.fixture(scope="module", autouse=True)
def pretended_cudnn():
    # JAX asks for its version, which is known only where the GPU is.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91002)
        yield


@pytest.fixture(scope="module")
def program() -> str:
    objective = objective_on_a_gpu()

    def loss(params, batch, key):
        return objective.loss(params, batch, key, hyperparameters_of(objective.config)).loss

    return jax.jit(jax.grad(loss)).trace(*shapes_of(objective)).lower(lowering_platforms=("cuda",)).as_text()


def products(program: str) -> list[tuple[list[str], str]]:
    """Types of the operands and of the result of every matrix product."""
    actual = re.findall(r"stablehlo\.dot_general .*: \((.*)\) -> tensor<(.*)>", program)
    return [(re.findall(r"tensor<([^>]*)>", operands), result) for operands, result in actual]


def elements(array: str) -> int:
    return jnp.prod(jnp.array([int(size) for size in array.split("x")[:-1]])).item()


def test_every_product_takes_bfloat16_and_only_gradients_of_parameters_and_biased_sums_are_float32(program):
    actual = products(program)
    assert len(actual) > 30
    assert all(array.endswith("xbf16") for operands, _ in actual for array in operands)
    wide = {result for _, result in actual if result.endswith("xf32")}
    parameters = {"16x2x8xf32", "2x8x16xf32", "16x48xf32", "48x16xf32", f"{FILLED}x16xf32"}
    # They get their bias, and are rounded in the same kernel.
    with_bias = {f"{ROWS}x{length}x{size}xf32" for length in (SOURCE, TARGET) for size in (16, 48)}
    assert wide <= parameters | with_bias
    assert parameters <= wide


def test_logits_and_their_gradient_are_bfloat16_and_the_vocabulary_whole_tiles(program):
    logits = [result for _, result in products(program) if f"x{FILLED}x" in result]
    assert logits == [f"1x{ROWS * TARGET}x{FILLED}xbf16"]
    # Where the compiler has to write an array down as it is.
    written = re.findall(r"stablehlo\.optimization_barrier .* : tensor<(.*)>", program)
    assert f"1x{ROWS * TARGET}x{FILLED}xbf16" in written
    assert not [array for array in written if array.endswith("xf32") and elements(array) >= ROWS * SOURCE * 16]


def test_attention_is_cudnn_with_lengths_and_without_a_mask(program):
    calls = re.findall(r"custom_call @([\w$]+)", program)
    assert sorted(call for call in calls if "cudnn" in call) == [
        *["__cudnn$fmhaSoftmax"] * ATTENTIONS,
        *["__cudnn$fmhaSoftmaxBackward"] * ATTENTIONS,
    ]
    assert len(re.findall("PADDING_CAUSAL", program)) == 2
    for shape in (f"{SOURCE}x{SOURCE}x", f"{TARGET}x{TARGET}x", f"{TARGET}x{SOURCE}x"):
        assert shape not in program


def arrays_with(program: str, queries: int, keys: int) -> set[str]:
    """Arrays that have both axes, except blocks of scores inside of cuDNN's kernels."""
    functions = {item.split("(")[0]: item for item in re.split(r"func\.func \w+ @", program)}
    written = set(functions) - set(re.findall(r"called_computations = \[@(\w+)\]", program))
    result = re.findall(r"tensor<([\dx]+)x\w+>", "".join(functions[name] for name in written))
    needed = Counter([queries, keys])
    return {shape for shape in result if not needed - Counter(int(size) for size in shape.split("x"))}


@pytest.mark.parametrize("recipe", ["transformer_base", "transformer_base:big"])
def test_the_step_of_the_paper_has_no_array_of_queries_and_keys(recipe):
    """With packed rows, as they are, on an H100; of one layer, since all have the same shapes."""
    config = from_dict(load_recipe(recipe).to_dict())
    model = replace(config.model, num_encoder_layers=1, num_decoder_layers=1)
    config, vocabulary = replace(config, model=model), config.tokenizer.vocabulary_size
    with pretended_gpu() as mesh:
        objective = TranslationObjective(config, vocabulary, vocabulary, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    batch = batch_shape(112, 240, 256)
    step = update.jitted.trace(update.state_shapes, batch, update.hyperparameter_shapes)
    program = step.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall(r"custom_call @__cudnn\$fmhaSoftmaxBackward", program)) == ATTENTIONS
    for queries, keys in ((256, 256), (240, 240), (256, 240)):
        assert not arrays_with(program, queries, keys)


@pytest.mark.parametrize(
    ("kind", "capability", "has_mask"), [("split", "9.0", False), ("packed", "9.0", False), ("packed", "8.0", True)]
)
def test_a_language_model_needs_masks_only_for_several_documents_before_hopper(kind, capability, has_mask):
    model = {"num_layers": 2, "d_model": 16, "d_ff": 48, "num_heads": 2}
    model.update(compute_dtype="bfloat16", attention_backend="cudnn")
    batching = {"kind": kind, "context_length": SOURCE, "tokens_per_update": 8 * SOURCE}
    settings = {"task": "language_model", "model": model, "batching": batching, "tokenizer": {"kind": "byte"}}
    config = from_dict(settings | {"decoding": {"max_new_tokens": 8}})
    with pretended_gpu(capability) as mesh:
        objective = LanguageModelObjective(config, VOCABULARY, mesh)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, rows = jax.eval_shape(objective.init_params, key), batch_shape(ROWS, SOURCE, SOURCE).target

    def loss(params, rows, key):
        training = objective.loss(params, rows, key, hyperparameters_of(config))
        return training.loss + objective.unsmoothed_loss(params, rows, rows.segments != 0).loss

    def prefill(params, ids):
        return call(objective.model, params, "init_cache", ids, beam_width=1, max_length=1)

    def masks(function, *arguments):
        program = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
        assert "__cudnn" in program
        return bool(arrays_with(program, SOURCE, SOURCE))

    assert masks(jax.grad(loss), params, rows, key) is has_mask
    assert masks(prefill, params, rows.ids) is (capability == "8.0"), "prompts are padded on the left"


LONG = 1024


def kernels(backend, platform: str, mask_mod, score_mod=None) -> tuple[list[str], str]:
    """Kernels that a gradient calls for two query heads with one key head, and the program."""
    query, key = (jax.ShapeDtypeStruct((ROWS, heads, LONG, 128), jnp.bfloat16) for heads in (2, 1))
    segments = jax.ShapeDtypeStruct((ROWS, LONG), jnp.int32)

    def loss(query, key, segments):
        mask = SentenceMask(segments, segments, is_causal=True, mask_mod=mask_mod)
        precision = POLICIES["bfloat16"]
        return jnp.sum(backend(query, key, key, mask, AttentionOptions(None, precision, score_mod)) ** 2)

    lowered = jax.jit(jax.grad(loss, argnums=(0, 1))).trace(query, key, segments).lower(lowering_platforms=(platform,))
    program = lowered.as_text()
    return re.findall(r"custom_call @(__cudnn[\w$]+|tpu_custom_call)", program), program


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_kernels_take_windows_and_shared_key_heads_without_a_mask_and_no_change_of_scores(platform):
    mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
    backend = CudnnAttention(one_sentence=True) if platform == "cuda" else TpuFlashAttention(mesh, BY_HEAD)
    calls, program = kernels(backend, platform, Window(99, 0))
    assert calls and f"{LONG}x{LONG}x" not in program
    assert platform == "tpu" or program.count("sliding_window_length\\22: 100") == 2
    assert not kernels(backend, platform, Window(99, 0), Partial(lambda scores, at: 2 * scores))[0]


@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_layers_in_a_loop_hand_on_what_they_take(normalization):
    objective = objective_on_a_gpu(normalization=normalization, scan_layers=True, attention_backend="einsum")
    params, batch, _ = shapes_of(objective)
    factors = jax.eval_shape(
        lambda params, batch: call(objective.model, params, "factors", *batch, train=False), params, batch
    )
    assert factors.hidden.dtype == jnp.bfloat16 and objective.evaluation_dtype == "bfloat16"

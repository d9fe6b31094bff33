"""The largest arrays of a program: those that it makes itself, each once, with the shapes of one device."""

import jax

from transformer_jax.config import ExperimentConfig, MeshConfig, TransformerConfig
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.largest_arrays import largest_arrays
from transformer_jax.tools.preflight.program import compile_program

PROGRAM = """\
HloModule jit_step, is_scheduled=true

%fused (p: f32[900]) -> f32[900] {
  ROOT %inside = f32[99999]{0} broadcast(%p)
}

%cond (state: (s32[], f32[8])) -> pred[] {
  ROOT %less = pred[] compare(%counter, %limit), direction=LT
}

%body (state: (s32[], f32[70])) -> (s32[], f32[70]) {
  %p = (s32[], f32[600]{0}) parameter(0)
  %got = f32[600]{0} get-tuple-element(%p), index=1
  %scores = bf16[50,8]{1,0:T(8,128)(2,1)S(1)} fusion(%got), calls=%fused, metadata={op_name="jit(step)/transpose(jvp(Model))/encode/layer/attention/scores" stack_frame_id=4}
  %written = f32[600]{0} fusion(%got), calls=%fused, metadata={op_name="jit(step)/while/body/write"}
}

ENTRY %main (a: f32[300]) -> f32[300] {
  %a = f32[300]{0} parameter(0), metadata={op_name="state.params[\\'table\\']"}
  %copied = (f32[300]{0}, f32[300]{0:S(1)}, u32[]{:S(2)}) copy-start(%a)
  %closer = f32[300]{0:S(1)} copy-done(%copied)
  %gradient = f32[300]{0} fusion(%closer), calls=%fused, metadata={op_name="jit(step)/jvp(Model)/table"}
  %kept = f32[600]{0} broadcast(%zero), metadata={op_name="broadcast.182"}
  %loop = (s32[], f32[600]{0}) while(%kept), condition=%cond, body=%body
  ROOT %out = (f32[300]{0}) tuple(%gradient)
}
"""  # noqa: E501


def test_arrays_of_loops_and_arguments_but_not_what_is_fused_or_handed_on():
    assert largest_arrays(PROGRAM, 10) == [
        ("jit(step)/while/body/write", "f32[600]", 2400),
        ("state.params['table']", "f32[300]", 1200),
        ("jit(step)/jvp(Model)/table", "f32[300]", 1200),
        ("encode/layer/attention/scores (backward pass)", "bf16[50,8]", 800),
    ]
    assert largest_arrays(PROGRAM, 1) == [("jit(step)/while/body/write", "f32[600]", 2400)]


def test_sizes_are_those_of_one_device():
    config = ExperimentConfig(
        data=DataConfig(max_source_tokens=15, max_target_tokens=15),
        tokenizer=TokenizerConfig(vocabulary_size=64),
        batching=BatchingConfig(kind="buckets", tokens_per_update=256, row_multiple=8),
        model=TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=1024, num_heads=4),
        mesh=MeshConfig(data=2, tensor=4),
    )
    program = compile_program(config, Topology("cpu:8", jax.devices()[:8], None))
    # Half of 16 rows of 16 positions, with a quarter of the inner layer's width.
    assert program.largest[0].bytes == 4 * 8 * 16 * 256
    assert "feed_forward" in program.largest[0].name

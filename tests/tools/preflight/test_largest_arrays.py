"""The largest arrays of a program, and out-of-memory messages of the TPU compiler."""

import pytest

from transformer_jax.tools.preflight.largest_arrays import largest_arrays, needed_and_available

PROGRAM = """\
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


@pytest.mark.parametrize(
    ("message", "needed", "available"),
    [
        # Compiled with libtpu 0.0.52 for v5e: the sum of three arguments of 40,000 x 40,000 float32
        # numbers.
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (17.91G) exceeds available HBM (15.75G). HLO module: jit_f.",
            0.03,
            15.75,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
            "Used 23.81G of 15.48G hbm. Exceeded hbm capacity by 8.32G.",
            5.93,
            15.48,
        ),
    ],
)
def test_messages_about_memory_count_the_arguments(message, needed, available):
    memory = needed_and_available(message, argument_bytes=3 * 4 * 40_000**2)
    assert memory == (pytest.approx(needed * 2**30, abs=0.01 * 2**30), available * 2**30)
    assert needed_and_available("INTERNAL: Mosaic failed to compile TPU kernel", argument_bytes=0) is None

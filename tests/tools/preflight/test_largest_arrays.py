"""The largest arrays of a program, and out-of-memory messages of the compiler for TPUs."""

import pytest

from transformer_jax.tools.preflight.largest_arrays import largest_arrays, oom_error_of

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


MANY = """\
RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (53.42G) \
exceeds available HBM (15.75G). HLO module: jit_train_step.
See https://openxla.org/xla/errors/error_1000 for more details.
"""
FEW = """\
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 23.81G of 15.48G hbm. \
Exceeded hbm capacity by 8.32G.

  Largest program allocations in hbm:

  1. Size: 3.81G
     Operator: op_name="jit(train_step)/transpose(jvp(Model))/Model.decode/layers_5/cross_attention/dot" source_file="a.py" source_line=59
     Shape: f32[32,4096,4096]{1,2,0:T(8,128)}
     Unpadded size: 3.81G
     XLA label: fusion.1265.remat3 = fusion(custom-call.224, custom-call.22), kind=kOutput, calls=fused_computation.9
     Allocation type: HLO temp
     ==========================

  2. Size: 3.81G
     Operator: op_name="jit(train_step)/transpose(jvp(Model))/Model.decode/layers_4/cross_attention/dot" source_file="a.py" source_line=59
     Shape: f32[32,4096,4096]{1,2,0:T(8,128)}
     Unpadded size: 3.81G
     XLA label: fusion.1266.remat3 = fusion(custom-call.225, custom-call.22), kind=kOutput, calls=fused_computation.9
     Allocation type: HLO temp
     ==========================

  3. Size: 570.00M
     Shape: bf16[4,512,512,64]{3,0,2,1:T(4,128)(2,1)}
     Unpadded size: 285.00M
     Extra memory due to padding: 285.00M (2.0x expansion)
     XLA label: fusion.20231 = (bf16[4,512,512,64]) fusion(get-tuple-element.73199), kind=kLoop, calls=fused_computation.10
     Allocation type: HLO temp
     ==========================
"""  # noqa: E501
GIB, MIB = 2**30, 2**20


def test_messages_about_memory():
    assert oom_error_of(MANY, state_bytes=5 * GIB) == (int(53.42 * GIB), 15.75 * GIB, [])
    error = oom_error_of(FEW, state_bytes=6 * GIB)
    assert error.temporaries == pytest.approx((23.81 - 6) * GIB)
    assert error.available == 15.48 * GIB
    assert error.largest == [
        ("Model.decode/layers_5/cross_attention/dot (backward pass)", "f32[32,4096,4096]", int(3.81 * GIB)),
        ("without a name", "bf16[4,512,512,64]", 570 * MIB),
    ]
    assert oom_error_of("INTERNAL: Mosaic failed to compile TPU kernel", state_bytes=0) is None

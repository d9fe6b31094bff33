"""Memory traffic of a compiled program, by hand and by the compiler's own count, and its kinds."""

import jax
import jax.numpy as jnp
import pytest

from transformer_jax.tools.preflight.memory_traffic import kind_of, traffic_by_kind

LOOP = """\
%takes_a_slice (stack: f32[5,4], place: s32[]) -> f32[4] {
  %stack = f32[5,4]{1,0} parameter(0)
  %place = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,4]{1,0} dynamic-slice(%stack, %place, %zero), dynamic_slice_sizes={1,4}
  ROOT %row = f32[4]{0} bitcast(%slice)
}
%writes_a_slice (place: s32[], row: f32[4], stack: f32[5,4]) -> f32[5,4] {
  %stack.1 = f32[5,4]{1,0} parameter(2)
  %row.1 = f32[4]{0} parameter(1)
  %place.1 = s32[] parameter(0)
  %zero.1 = s32[] constant(0)
  %doubled = f32[4]{0} add(%row.1, %row.1)
  %wide = f32[1,4]{1,0} bitcast(%doubled)
  ROOT %written = f32[5,4]{1,0} dynamic-update-slice(%stack.1, %wide, %place.1, %zero.1)
}
%writes_a_row (stack.2: f32[5,4], row.3: f32[4]) -> f32[5,4] {
  %stack.2 = f32[5,4]{1,0} parameter(0)
  %row.3 = f32[4]{0} parameter(1)
  %zero.3 = s32[] constant(0)
  %wide.1 = f32[1,4]{1,0} bitcast(%row.3)
  ROOT %written.1 = f32[5,4]{1,0} dynamic-update-slice(%stack.2, %wide.1, %zero.3, %zero.3)
}
%slices_near (all: f32[5,4]) -> f32[2,4] {
  %all = f32[5,4]{1,0} parameter(0)
  ROOT %part = f32[2,4]{1,0:S(1)} slice(%all), slice={[0:2], [0:4]}
}
%body (state: (s32[], f32[5,4])) -> (s32[], f32[5,4]) {
  %state = (s32[], f32[5,4]{1,0}) parameter(0)
  %counter = s32[] get-tuple-element(%state), index=0
  %rows = f32[5,4]{1,0} get-tuple-element(%state), index=1
  %row.2 = f32[4]{0} fusion(%rows, %counter), kind=kLoop, calls=%takes_a_slice
  %rows.1 = f32[5,4]{1,0} fusion(%counter, %row.2, /*index=2*/%rows), kind=kLoop, calls=%writes_a_slice
  ROOT %next = (s32[], f32[5,4]{1,0}) tuple(%counter, %rows.1)
}
%goes_on (state.1: (s32[], f32[5,4])) -> pred[] {
  %state.1 = (s32[], f32[5,4]{1,0}) parameter(0)
  ROOT %always = pred[] constant(true)
}
ENTRY %main (argument: f32[5,4]) -> f32[5,4] {
  %argument = f32[5,4]{1,0} parameter(0)
  %zero.2 = s32[] constant(0)
  %initial = (s32[], f32[5,4]{1,0}) tuple(%zero.2, %argument)
  %loop = (s32[], f32[5,4]{1,0}) while(%initial), condition=%goes_on, body=%body, config={"known_trip_count":{"n":"5"}}
  %result = f32[5,4]{1,0} get-tuple-element(%loop), index=1
  %begun = (f32[5,4]{1,0:T(8,128)S(1)}, f32[5,4]{1,0}, u32[]{:S(2)}) copy-start(%result)
  %near = f32[5,4]{1,0:T(8,128)S(1)} copy-done(%begun)
  %part.1 = ((f32[5,4]{1,0}), f32[2,4]{1,0:S(1)}, s32[]{:S(2)}) async-start(%result), calls=%slices_near
  %part.2 = f32[2,4]{1,0:S(1)} async-done(%part.1)
  %last = f32[4]{0} fusion(%result, %zero.2), kind=kLoop, calls=%takes_a_slice
  %writing = ((f32[5,4]{1,0}, f32[4]{0}), f32[5,4]{1,0}, u32[]) fusion-start(%result, %last), kind=kLoop, calls=%writes_a_row
  %rows.2 = f32[5,4]{1,0} fusion-done(%writing)
  ROOT %summed = f32[5,4]{1,0} add(%near, %rows.2)
}
"""


def test_a_loop_moves_its_slices_each_time_and_the_chip_its_own_arrays_never():
    index, row = 4, 4 * 4
    taken = row + index + row
    written = index + row + row
    copied, part, summed = 5 * row, 2 * row, 5 * row + 5 * row
    beside = row + row
    assert sum(traffic_by_kind(LOOP).values()) == 5 * (taken + written) + copied + part + taken + beside + summed


def test_a_program_without_loops_as_the_compiler_counts_it():
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 64), (64, 64))]
    program = jax.jit(jax.grad(lambda hidden, kernel: jnp.sum(jnp.tanh(hidden @ kernel)))).lower(*shapes).compile()
    moved = sum(traffic_by_kind(program.as_text()).values())
    assert moved == pytest.approx(program.cost_analysis()["bytes accessed"], rel=0.1)


ENCODER = "jit(train_step)/transpose(jvp(Transformer.factors))/Transformer.encode/encoder_layers_3"
ATTENTION = f"{ENCODER}/self_attention"
LOSS = "jit(train_step)/jvp()/while/body/closed_call/transpose(jvp())"

NAMED = f"""\
%fused_pad (p: f32[100]) -> bf16[128] {{
  %p = f32[100]{{0}} parameter(0)
  %cast = bf16[100]{{0}} convert(%p), metadata={{op_name="{LOSS}/convert_element_type"}}
  ROOT %pad = bf16[128]{{0}} pad(%cast, %zero)
}}
ENTRY %main (a: f32[100]) -> f32[100] {{
  %a = f32[100]{{0}} parameter(0)
  %padded = bf16[128]{{0}} fusion(%a), kind=kLoop, calls=%fused_pad
  %scores = f32[100]{{0}} dot(%a, %a), metadata={{op_name="{ATTENTION}/cond/branch_0_fun/BHQK,BHMK->BHQM/dot_general"}}
  %moved = f32[100]{{0}} copy(%scores)
  %useless = f32[100]{{0}} copy(%a)
  ROOT %updated = f32[100]{{0}} add(%a, %moved), metadata={{op_name="jit(train_step)/jit(_where)/select_n"}}
}}
"""


def test_each_byte_is_of_one_kind():
    traffic = traffic_by_kind(NAMED)
    # The copy is one for the update, and what nothing uses and nothing names is of no kind.
    assert traffic == {"optimizer": 1200 + 800, "attention": 1200, "other": 800, "logits and loss": 400 + 256}
    assert list(traffic) == ["optimizer", "attention", "other", "logits and loss"]


def test_kinds_by_scopes():
    kinds = {
        f"{ATTENTION}/self_attention.project_memory/project_heads/BLHK,DHK->BLD/dot_general": "products of layers",
        f"{ENCODER}/feed_forward/reduce_sum": "casts, biases, activations",
        f"{ATTENTION}/reduce_sum": "attention",
        f"{ENCODER}/self_attention_residual.after/sublayer_dropout/sublayer_dropout.mask/xor": "norms, residuals, dropout",
        f"{LOSS}/mul": "logits and loss",
        "jit(train_step)/transpose(jvp(Transformer.factors))/Transformer._embed/embedding.embed/scatter-add": "embeddings",
        "jit(train_step)/while/body/transpose(jvp(row_loss))/rtd,rjd->rtj/dot_general": "scores of pairs",
        "jit(train_step)/while/body/scatter-add": "rows of the tables",
        "jit(step)/jit(take_along_axis)/gather": "search",
    }
    assert {name: kind_of(name) for name in kinds} == kinds

"""What a compiled program reads and writes, by hand and against the compiler's own count."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from transformer_jax.tools.preflight.memory_traffic import memory_traffic

LOOP = """\
HloModule written_by_hand

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
  ROOT %summed = f32[5,4]{1,0} add(%near, %result)
}
"""


def test_a_loop_moves_its_slices_each_time_and_the_chip_its_own_arrays_never():
    index, row = 4, 4 * 4
    taken = row + index + row
    written = index + row + row
    copied, part, summed = 5 * row, 2 * row, 5 * row + 5 * row
    assert memory_traffic(LOOP) == 5 * (taken + written) + copied + part + summed


NESTED = """\
HloModule fusions_in_fusions

%shows (in: f32[5,4]) -> f32[20] {
  %in = f32[5,4]{1,0} parameter(0)
  ROOT %flat = f32[20]{0} bitcast(%in)
}

%copies (in.1: f32[5,4]) -> f32[5,4] {
  %in.1 = f32[5,4]{1,0} parameter(0)
  ROOT %copied = f32[5,4]{1,0} copy(%in.1)
}

%two_results (stack: f32[5,4], row: f32[1,4], place: s32[]) -> (f32[5,4], f32[20]) {
  %stack = f32[5,4]{1,0} parameter(0)
  %row = f32[1,4]{1,0:T(8,128)S(1)} parameter(1)
  %place = s32[] parameter(2)
  %zero = s32[] constant(0)
  %same = f32[5,4]{1,0} fusion(%stack), kind=kLoop, calls=%copies
  %written = f32[5,4]{1,0} dynamic-update-slice(%same, %row, %place, %zero)
  %seen = f32[20]{0} fusion(%stack), kind=kLoop, calls=%shows
  %negated = f32[20]{0} negate(%seen)
  ROOT %both = (f32[5,4]{1,0}, f32[20]{0}) tuple(%written, %negated)
}

%fills (indices: s32[2,1], rows: f32[2,4]) -> f32[5,4] {
  %indices = s32[2,1]{1,0} parameter(0)
  %rows = f32[2,4]{1,0} parameter(1)
  %nothing = f32[] constant(0)
  %empty = f32[5,4]{1,0} broadcast(%nothing), dimensions={}
  ROOT %filled = f32[5,4]{1,0} scatter(%empty, %indices, %rows), to_apply=%adds
}

ENTRY %main (argument: f32[5,4], index: s32[], indices.1: s32[2,1], rows.1: f32[2,4]) -> f32[5,4] {
  %argument = f32[5,4]{1,0} parameter(0)
  %index = s32[] parameter(1)
  %indices.1 = s32[2,1]{1,0} parameter(2)
  %rows.1 = f32[2,4]{1,0} parameter(3)
  %reserved = f32[100]{0} custom-call(), custom_call_target="AllocateBuffer"
  %near = f32[1,4]{1,0:T(8,128)S(1)} slice(%argument), slice={[0:1], [0:4]}
  %results = (f32[5,4]{1,0}, f32[20]{0}) fusion(%argument, %near, %index), kind=kLoop, calls=%two_results
  ROOT %sums = f32[5,4]{1,0} fusion(%indices.1, %rows.1), kind=kCustom, calls=%fills
}
"""


def test_what_a_fusion_only_shows_is_read_as_its_users_read_it():
    index, row, stack = 4, 4 * 4, 5 * 4 * 4
    near = row
    # The negation reads all of the stack, the update none of it; one row of the first result is new, all of the second.
    results = stack + index + row + stack
    # Into an array that the fusion makes itself every entry is written.
    sums = 2 * index + 2 * row + stack
    assert memory_traffic(NESTED) == near + results + sums


def layer(hidden, kernel):
    """One of a stack."""
    return jnp.tanh(hidden @ kernel), None


def loss_of_loop(kernels, hidden):
    """The layers in a loop."""
    return jnp.sum(lax.scan(layer, hidden, kernels)[0])


def loss_of_layers(kernels, hidden):
    """The same, written out."""
    for kernel in kernels:
        hidden, _ = layer(hidden, kernel)
    return jnp.sum(hidden)


def compiled(loss, layers=8):
    """Its gradient."""
    shapes = jax.ShapeDtypeStruct((layers, 64, 64), jnp.float32), jax.ShapeDtypeStruct((256, 64), jnp.float32)
    return jax.jit(jax.grad(loss)).lower(*shapes).compile()


def test_a_program_without_loops_as_the_compiler_counts_it():
    program = compiled(loss_of_layers)
    assert memory_traffic(program.as_text()) == pytest.approx(program.cost_analysis()["bytes accessed"], rel=0.1)


def test_a_loop_of_twice_as_many_layers_moves_twice_as_much():
    few, many = compiled(loss_of_loop, 8), compiled(loss_of_loop, 16)
    assert memory_traffic(many.as_text()) == pytest.approx(2 * memory_traffic(few.as_text()), rel=0.05)
    # The compiler's own count takes the body of a loop once.
    assert few.cost_analysis()["bytes accessed"] < 0.5 * memory_traffic(few.as_text())

"""Collectives of programs written out by hand, in each of the ways that compilers write them."""

import pytest

from transformer_jax.preflight.collectives import Collective, collectives_of

PROGRAM = """\
HloModule jit_step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%x, %y)
}

%cond.1 (state: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(6)
  ROOT %less = pred[] compare(%counter, %limit), direction=LT
}

%body.1 (state: (s32[], /*index=5*/f32[8])) -> (s32[], f32[8]) {
  %start.1 = (bf16[4]{0}, bf16[16]{0}, u32[]) fusion(%p), kind=kCustom, calls=%starting
  %inner = f32[] while(%t), condition=%cond.2, body=%body.2, backend_config={"known_trip_count":{"n":"3"}}
}

%starting (p: bf16[4]) -> (bf16[4], bf16[16]) {
  %gather.1 = bf16[16]{0} all-gather(%p), channel_id=7, replica_groups=[2,4]<=[8], dimensions={0}
}

%finishing (p: bf16[4]) -> bf16[16] {
  %gather.2 = bf16[16]{0} all-gather(%p), channel_id=7, replica_groups=[2,4]<=[8], dimensions={0}
}

%cond.2 (state: s32[]) -> pred[] {
  ROOT %less.2 = pred[] compare(%a, %b), direction=LT
}

%body.2 (state: s32[]) -> s32[] {
  %permuted = f32[10]{0} collective-permute(%q), channel_id=9, source_target_pairs={{0,1},{1,0}}
}

%all-reduce-scatter.3 (p: f32[64]) -> f32[16] {
  %summed = f32[64]{0} all-reduce(%p), channel_id=12, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  ROOT %mine = f32[16]{0} dynamic-slice(%summed, %place), dynamic_slice_sizes={16}
}

%never (p: f32[4]) -> f32[4] {
  %unused = f32[4]{0} all-reduce(%p), channel_id=99, replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %both = (f32[2,3]{1,0:T(8,128)}, s32[]) all-reduce(%a, %c), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}
  %loop = (s32[], f32[8]) while(%t), condition=%cond.1, body=%body.1, metadata={op_name="x"}
  %end = bf16[16]{0} fusion(%loop), kind=kCustom, calls=%finishing
  %scattered = f32[2]{0} reduce-scatter(%z), channel_id=2, replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}, to_apply=%add
  %asynchronous = (f32[4]{0}, f32[32]{0}) all-gather-start(%y), channel_id=3, replica_groups={}, dimensions={0}
  %part = f32[16]{0} fusion(%z), kind=kCustom, calls=%all-reduce-scatter.3
  %alone = f32[100]{0} all-reduce(%a), channel_id=4, replica_groups=[8,1]<=[8], to_apply=%add
}
"""


def test_kinds_bytes_groups_and_times():
    assert sorted(collectives_of(PROGRAM, 8)) == sorted(
        [
            Collective("all-reduce", 4 * 6 + 4, 2, 1),
            Collective("all-gather", 2 * 16, 4, 6),
            Collective("collective-permute", 4 * 10, 2, 18),
            Collective("reduce-scatter", 4 * 2, 4, 1),
            Collective("reduce-scatter", 4 * 16, 4, 1),
            Collective("all-gather", 4 * 32, 8, 1),
        ]
    )


@pytest.mark.parametrize(
    ("collective", "sent"),
    [
        (Collective("all-reduce", 800, 4, 1), 2 * 600),
        (Collective("all-gather", 800, 4, 2), 2 * 600),
        # The result is a quarter of what is reduced.
        (Collective("reduce-scatter", 200, 4, 1), 600),
        (Collective("collective-permute", 800, 2, 1), 800),
    ],
)
def test_bytes_that_a_device_sends_around_a_ring(collective, sent):
    assert collective.wire_bytes == sent

"""Collectives of programs written out by hand, in each of the ways that compilers write them."""

import jax
import pytest

from transformer_jax.tools.preflight import collectives
from transformer_jax.tools.preflight.collectives import Collective, bytes_along_axes, collectives_of, members_of

PROGRAM = """\
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
  %exchanged.1 = (f32[8]{0}, f32[8]{0}) all-to-all(%u, %v), channel_id=5, replica_groups={{0,2},{1,3},{4,6},{5,7}}
  %exchanged.2 = (f32[8]{0}, f32[8]{0}) all-to-all(%w, %x), channel_id=5, replica_groups={{0,2},{1,3},{4,6},{5,7}}
  %sent = (f32[2,8]{1,0}, u32[]{:S(2)}, token[]) send(%z), frontend_attributes={SLICES"ALL_REDUCE"}
  %part.2 = (f32[8]{0}, u32[]{:S(2)}, token[]) send(%z), frontend_attributes={SLICES"REDUCE_SCATTER"}
  %whole = (f32[2]{0}, u32[]{:S(2)}, token[]) send(%z), frontend_attributes={SLICES"ALL_GATHER"}
  %begun = f32[50]{0} all-reduce-start(%s), channel_id=8, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %alone = f32[100]{0} all-reduce(%a), channel_id=4, replica_groups=[8,1]<=[8], to_apply=%add
}
""".replace("SLICES", '_xla_megascale_target="{1,2,3,4}x{0:3}",_xla_megascale_transfer_type=')


def test_kinds_bytes_groups_and_times():
    assert sorted(map(tuple, collectives_of(PROGRAM, 8))) == [
        ("all-gather", 2 * 16, (0, 1, 2, 3), 6, False),
        ("all-gather", 32, (1, 2, 3, 4), 1, True),
        ("all-gather", 4 * 32, tuple(range(8)), 1, False),
        ("all-reduce", 4 * 6 + 4, (0, 1), 1, False),
        ("all-reduce", 4 * 16, (1, 2, 3, 4), 1, True),
        ("all-reduce", 4 * 50, (0, 1, 2, 3), 1, False),
        ("all-to-all", 2 * 4 * 8, (0, 2), 1, False),
        ("all-to-all", 2 * 4 * 8, (0, 2), 1, False),
        ("collective-permute", 4 * 10, (0, 1), 18, False),
        # Between four slices, each device keeps a quarter of its data, or receives a quarter from
        # each slice.
        ("reduce-scatter", 8, (0, 1, 2, 3), 1, False),
        ("reduce-scatter", 8, (1, 2, 3, 4), 1, True),
        ("reduce-scatter", 4 * 16, (0, 1, 2, 3), 1, False),
    ]


def test_bytes_that_a_device_sends_around_a_ring():
    assert Collective("all-reduce", 800, (0, 1, 2, 3), 1).wire_bytes == 2 * 600
    assert Collective("all-gather", 800, (0, 2, 4, 6), 2).wire_bytes == 2 * 600
    # The result has a quarter of the reduced bytes.
    assert Collective("reduce-scatter", 200, (0, 1, 2, 3), 1).wire_bytes == 600
    assert Collective("collective-permute", 800, (0, 5), 1).wire_bytes == 800


@pytest.mark.parametrize(
    ("written", "members"),
    [
        ("replica_groups={{0,2,4,6},{1,3,5,7}}, to_apply=%add", (0, 2, 4, 6)),
        ("replica_groups={}, dimensions={0}", tuple(range(16))),
        ("replica_groups=[2,4]<=[8], dimensions={0}", (0, 1, 2, 3)),
        ("replica_groups=[4,4]<=[8,2]T(1,0), dimensions={1}", (0, 2, 4, 6)),
        ("replica_groups=[8,2]<=[2,4,2]T(2,1,0), use_global_device_ids=true", (0, 8)),
        ("replica_groups=mesh['axis_0'=8,'axis_1'=2] {'axis_0'}, dimensions={0}", tuple(range(0, 16, 2))),
        ("replica_groups=mesh['a'=2,'b'=4,'c'=2] {'a','c'}", (0, 1, 8, 9)),
        # Two of the eight along the axis that are two apart: part of size 2 below one of size 2.
        ("replica_groups=mesh['a'=8] {'a':(2)2}", (0, 2)),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", (0, 2)),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", (0, 2, 4, 6)),
        ("source_target_pairs={{0,0},{2,8},{8,2}}, frontend_attributes={}", (2, 8)),
        ("source_target_pairs={{0,0},{1,1}}", (0,)),
    ],
)
def test_members_of_the_first_group_in_every_notation(written, members):
    assert members_of(f"%x = f32[4]{{0}} all-gather(%y), channel_id=3, {written}", 16) == members


def test_bytes_are_spread_over_the_axes_in_which_members_differ():
    grid = [(x, y) for x in range(4) for y in range(4)]
    for members, along in {(0, 1): (0, 600), (0, 12): (600, 0), (0, 5): (300, 300)}.items():
        assert bytes_along_axes([Collective("collective-permute", 600, members, 1)], grid) == along
    of_all, of_a_row = (
        Collective("all-gather", 1600, tuple(range(16)), 2),
        Collective("all-reduce", 400, (4, 5, 6, 7), 1),
    )
    assert bytes_along_axes([of_all, of_a_row], grid) == (1500, 1500 + 600)
    # The network between slices is the last axis.
    two_slices = [(x, y, slice_index) for slice_index in range(2) for x in range(2) for y in range(2)]
    between = Collective("all-reduce", 100, (1, 2), 1, is_between_slices=True)
    assert bytes_along_axes([Collective("all-reduce", 400, (0, 1, 2, 3), 1), between], two_slices) == (300, 300, 100)
    assert collectives.coordinates_of(jax.devices()[:4]) == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("kind", "size", "members", "nvlink", "network"),
    [
        # Four of a host; two, each in another; all, eight in each of two.
        ("all-gather", 1024, range(4), 1024 * 3 / 4, 0),
        ("reduce-scatter", 400, (0, 8), 0, 400),
        ("all-reduce", 4000, range(16), 2 * 4000 * 15 / 16 * 7 / 8, 2 * 4000 * 15 / 16 / 8),
        # A sixteenth for each device, eight of which are in the other host.
        ("all-to-all", 640, range(16), 7 * 40, 8 * 40),
    ],
)
def test_a_group_within_a_host_goes_by_nvlink_and_one_across_by_the_network(kind, size, members, nvlink, network):
    sent = collectives.bytes_within_and_between([Collective(kind, size, tuple(members), 1)], [0] * 8 + [1] * 8)
    assert sent == pytest.approx((nvlink, network))

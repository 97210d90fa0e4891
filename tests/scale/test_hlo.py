"""Costs of compiled programs: loops count as often as they run, and exchanges are read off."""

import functools

import jax
import jax.numpy as jnp
import pytest

from spanloom.scale.hlo import Collective, Cost, Program, xla_cost

X, W = jnp.ones((64, 128)), jnp.ones((128, 128))


def compiled_text(function, *arrays) -> str:
    return jax.jit(function).lower(*arrays).compile().as_text()


def product(x, w):
    return jnp.tanh(x @ w)


def nested(x, w, *, unroll):
    """5 times: one product, and 3 times 2 products."""

    def inner(x, _):
        return product(product(x, w), w), None

    def outer(x, _):
        return jax.lax.scan(inner, product(x, w), length=3, unroll=3 if unroll else 1)[0], None

    return jax.lax.scan(outer, x, length=5, unroll=5 if unroll else 1)[0]


def test_nested_loops_count_as_often_as_they_run():
    one = 2 * 64 * 128 * 128
    looped, unrolled = (Program(compiled_text(functools.partial(nested, unroll=flag), X, W)) for flag in (False, True))
    assert sorted(loop.trips for loop in looped.loops()) == [3, 5] and unrolled.loops() == []
    assert looped.cost().flops == pytest.approx(5 * 7 * one, rel=0.02)
    assert looped.cost().flops == pytest.approx(unrolled.cost().flops, rel=0.02)
    assert looped.cost().bytes == pytest.approx(unrolled.cost().bytes, rel=0.3)


def test_xla_itself_counts_a_loop_once():
    """Were it otherwise one day, this module would count twice."""
    text = compiled_text(functools.partial(nested, unroll=False), X, W)
    assert xla_cost(text).flops == pytest.approx(3 * 2 * 64 * 128 * 128, rel=0.02)


def test_a_program_without_loops_costs_what_xla_says():
    text = compiled_text(product, X, W)
    assert Program(text).cost() == xla_cost(text)
    assert Cost(2.0, 3.0) + Cost(1.0, 1.0) * 2 == Cost(4.0, 5.0)


def test_a_loop_whose_end_only_the_data_know_counts_once_and_is_told():
    def collatz(n, x):
        return jax.lax.while_loop(
            lambda state: state[0] != 1, lambda s: (jnp.where(s[0] % 2, 3 * s[0] + 1, s[0] // 2), s[1] @ W), (n, x)
        )

    program = Program(compiled_text(collatz, 7, X))
    assert [loop.trips for loop in program.loops()] == [None]
    assert program.cost().flops == pytest.approx(2 * 64 * 128 * 128, rel=0.01)


LOOPED = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%less (p: (s32[], f32[8])) -> pred[] {
  %bound = s32[]{:T(128)} constant(6)
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %bound), direction=LT
}

%body (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %q = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%j, %one)
  %x = f32[8]{0} get-tuple-element(%q), index=1
  %all = f32[8]{0:T(256)} all-reduce(%x), channel_id=1, replica_groups=GROUPS, to_apply=%add
  ROOT %t = (s32[], f32[8]) tuple(%next, %all)
}

ENTRY %main (x0: f32[8]) -> f32[8] {
  %x0 = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]) tuple(%zero, %x0)
  %while.1 = (s32[], f32[8]) while(%start), condition=%less, body=%body
  ROOT %out = f32[8] get-tuple-element(%while.1), index=1
}
"""


@pytest.mark.parametrize(
    "groups",
    [
        "{{0,1,2,3},{4,5,6,7}}",
        "[2,4]<=[8]",
        "[2,4]<=[4,2]T(1,0)",
        "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}",
        "mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_0','axis_1'}",
    ],
)
def test_an_exchange_in_a_loop_counts_as_often_as_the_loop_runs_in_groups_however_written(groups):
    """TPU's compiler writes no trip counts: the bound of the counter is taken."""
    program = Program(LOOPED.replace("GROUPS", groups))
    assert [loop.trips for loop in program.loops()] == [6]
    assert list(program.collectives()) == [Collective("all-reduce", 6 * 2 * 3 / 4 * 8 * 4)]


@pytest.mark.parametrize(("kind", "step", "trips"), [("s32", 1, 6), ("u32", 2, 3), ("s32", 4, 2)])
def test_a_counter_may_go_up_by_more_than_one(kind, step, trips):
    """As that of a product that is taken apart to run beside its exchange does."""
    text = LOOPED.replace("GROUPS", "[1,4]<=[4]").replace("constant(1)", f"constant({step})").replace("s32", kind)
    assert [loop.trips for loop in Program(text).loops()] == [trips]


@pytest.mark.parametrize(
    ("line", "kind", "sent"),
    [
        ("%g = bf16[16,4]{1,0} all-gather(%x), replica_groups=[1,4]<=[4], dimensions={0}", "all-gather", 128 * 3 / 4),
        (
            "%g = (f32[4]{0}, f32[16]{0}) all-gather-start(%x), replica_groups=[1,4]<=[4], dimensions={0}",
            "all-gather",
            64 * 3 / 4,
        ),
        ("%r = f32[4]{0} reduce-scatter(%x), replica_groups={{0,1,2,3}}, dimensions={0}", "reduce-scatter", 16 * 3),
        ("%a = s8[16]{0} all-to-all(%x), replica_groups=[1,4]<=[4]", "all-to-all", 16 * 3 / 4),
        ("%p = pred[16]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}", "collective-permute", 16),
        (
            "%p = (f32[8]{0}, f32[8]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%x), channel_id=1",
            "collective-permute",
            32,
        ),
        ("%r = f32[4]{0} all-reduce(%x), replica_groups=[4,1]<=[4]", "all-reduce", 0),
    ],
)
def test_bytes_that_each_device_sends(line, kind, sent):
    text = "HloModule m\n\nENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4] parameter(0)\n  " + line + "\n}\n"
    assert list(Program(text).collectives()) == [Collective(kind, pytest.approx(sent))]


def test_what_the_tpu_fuses_into_a_reduce_scatter_is_one():
    text = LOOPED.replace("GROUPS", "[1,4]<=[4]").replace("%body", "%all-reduce-scatter.1")
    assert list(Program(text).collectives()) == [Collective("reduce-scatter", 6 * 3 / 4 * 32)]


def test_an_exchange_that_is_repeated_under_its_channel_counts_once():
    line = "  %g = f32[16]{0} all-gather(%x), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}\n"
    text = "HloModule m\n\nENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4] parameter(0)\n" + 3 * line + "}\n"
    assert list(Program(text).collectives()) == [Collective("all-gather", 48.0)]
    assert len(list(Program(text.replace("channel_id=7, ", "")).collectives())) == 3


def test_what_is_fused_into_several_reduce_scatters_under_one_channel_counts_each_time():
    fused = """
%all-reduce-scatter.NUMBER (x: f32[16], y: f32[16]) -> (f32[4], f32[4]) {
  %x = f32[16] parameter(0)
  %y = f32[16] parameter(1)
  %s = (f32[16]{0}, f32[16]{0}) all-reduce(%x, %y), channel_id=1, replica_groups=[1,4]<=[4], to_apply=%add
}
"""
    call = "  %NAME = (f32[4], f32[4]) fusion(%x, %x), kind=kCustom, calls=%all-reduce-scatter.NUMBER\n"
    entry = "\nENTRY %main (x: f32[16]) -> f32[16] {\n  %x = f32[16] parameter(0)\n"
    calls = "".join(call.replace("NUMBER", number).replace("NAME", f"r{number}") for number in "12")
    text = "HloModule m\n" + "".join(fused.replace("NUMBER", number) for number in "12") + entry + calls + "}\n"
    assert list(Program(text).collectives()) == 2 * [Collective("reduce-scatter", 2 * 64 * 3 / 4)]


def test_other_text_is_refused():
    with pytest.raises(ValueError, match="no HLO text"):
        Program("module @jit_f {}")

"""Fewer names, the same program: what may be moved where."""

from __future__ import annotations

from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.cuda.text.emit import emit
from stitchtune.kernels.cuda.text.tidy import simplify, tidy_body
from stitchtune.kernels.loops import Apply, Assign, Declare, Expr, For, If, Let, Literal, Load, Local, Stmt, Store, Sync

from tests.kernels.cuda.programs import BOOL, BUFFERS, F32, I32, TASK, THREAD, apply, group, index, kernel

A, B, C = (Local(name, F32) for name in ("t1", "t2", "t3"))
I = Local("i9", I32)  # noqa: E741
X = Load("x0", THREAD, F32)


def _f(op: str, *operands: Expr) -> Apply:
    return Apply(op, F32, operands)


def _put(value: Expr) -> Store:
    return Store("y0", THREAD, value)


def _lines(*body: Stmt) -> list[str]:
    """The emitted body, without indentation."""
    source = emit([kernel((group(*body),), buffers=BUFFERS)], ["k"]).source
    inside = source.split("st_grid()) {\n", 1)[1].rsplit("  }\n}", 1)[0]
    return [line.strip() for line in inside.splitlines() if line.strip()]


def test_a_name_used_once_gives_way() -> None:
    assert _lines(Let(A, X), Let(B, _f("exp", A)), _put(_f("mul", B, B))) == [
        "const float t1 = expf(st_load(x0, thread));",
        "st_store(y0, thread, t1 * t1);",
    ]


def test_a_load_does_not_pass_what_may_change_it() -> None:
    assert _lines(Let(A, X), Sync("block"), _put(A)) == [
        "const float t1 = st_load(x0, thread);",
        "st_sync_block();",
        "st_store(y0, thread, t1);",
    ]
    both = _lines(Let(A, Load("y0", THREAD, F32)), _put(_f("neg", X)), Store("y0", TASK, A))
    assert both[1] == "const float t1 = st_load_cg(y0, thread);"


def test_nothing_is_computed_more_often_or_only_sometimes() -> None:
    once = Let(A, _f("exp", Local("a7", F32)))
    start = Let(Local("a7", F32), X)
    loop = For(I, index(0), index(9), (Store("y0", I, A),))
    assert _lines(start, once, loop)[0] == "const float t1 = expf(st_load(x0, thread));"
    chosen = _f("select", Apply("lt", BOOL, (Local("a7", F32), Literal(0.0, F32))), A, Literal(1.0, F32))
    lanes = _lines(start, Let(A, _f("shuffle_xor", Local("a7", F32), index(1))), _put(chosen))
    assert lanes[1:] == ["const float t2 = st_shuffle_xor(a1, 1);", "st_store(y0, thread, a1 < 0.0f ? t2 : 1.0f);"]


def test_exchanges_that_nobody_reads_stay() -> None:
    assert "st_shuffle_xor" in _lines(Let(A, X), Let(B, _f("shuffle_xor", A, index(1))), _put(A))[1]


def test_a_variable_that_is_final_needs_no_other_name() -> None:
    total = Local("a7", F32)
    loop = For(I, index(0), index(9), (Let(C, Load("x0", I, F32)), Assign(total, _f("add", total, C))))
    lines = _lines(Let(total, Literal(0.0, F32), mutable=True), loop, Let(A, total), _put(_f("mul", A, A)))
    assert lines[0] == "float a1 = 0.0f;"
    assert lines[2] == "a1 += st_load(x0, i2);"
    assert lines[-1] == "st_store(y0, thread, a1 * a1);"


def test_a_variable_that_changes_keeps_its_old_value_under_another_name() -> None:
    total = Local("a7", F32)
    body = (Let(total, X, mutable=True), Let(A, total), Assign(total, _f("exp", A)), _put(_f("add", total, A)))
    assert _lines(*body)[1:3] == ["const float t2 = a1;", "a1 = expf(t2);"]


def test_constants_reach_where_they_are_used() -> None:
    zero, at = Local("s5", I32), Local("i6", I32)
    body = (
        Let(zero, index(0)),
        Let(at, apply("plus", THREAD, apply("times", zero, index(8)))),
        If(Literal(True, BOOL), (_put(X),)),
        Store("y0", at, X),
    )
    assert _lines(*body) == ["st_store(y0, thread, st_load(x0, thread));"] * 2


def test_equal_values_share_a_name_and_conditions_join() -> None:
    lane, again = Local("t5", I32), Local("t6", I32)
    first = Apply("eq", BOOL, (lane, index(0)))
    second = Apply("lt", BOOL, (TASK, again))
    body = (
        Let(lane, apply("rest_u32", THREAD, index(32))),
        Let(again, apply("rest_u32", THREAD, index(32))),
        If(first, (If(second, (_put(X),)),)),
        Store("y0", again, X),
    )
    assert _lines(*body)[1:3] == ["const int lane = thread % 32;", "if (lane == 0 && task < lane) {"]


def test_a_number_taken_apart_and_put_together_is_the_number() -> None:
    lane, warp, whole = (Local(name, I32) for name in ("t5", "t6", "t7"))
    body = (
        Let(lane, apply("rest_u32", THREAD, index(32))),
        Let(warp, apply("quotient_u32", THREAD, index(32))),
        Let(whole, apply("plus", lane, apply("times", warp, index(32)))),
        Store("y0", whole, X),
        Store("y0", lane, Load("x0", warp, F32)),
    )
    assert _lines(*body)[0] == "st_store(y0, thread, st_load(x0, thread));"


def test_what_nobody_needs_goes() -> None:
    body = (Declare("v1", F32, 4), Let(A, X), For(I, index(0), index(4), (Let(B, Load("x0", I, F32)),)), _put(X))
    assert _lines(*body) == ["st_store(y0, thread, st_load(x0, thread));"]


def test_names_are_unique_and_in_order() -> None:
    inner = (Let(B, Load("x0", I, F32)), Store("y0", I, _f("mul", B, B)))
    done = tidy_body((For(I, index(0), index(4), inner), For(I, index(0), index(4), inner)), {"i1", "lane"})
    loops = [s for s in done if isinstance(s, For)]
    assert [loop.local.name for loop in loops] == ["i2", "i4"]
    assert [s.local.name for loop in loops for s in loop.body if isinstance(s, Let)] == ["t3", "t5"]


def test_index_arithmetic_with_constants() -> None:
    five, zero, one = index(5), index(0), index(1)
    assert simplify(apply("plus", five, five)) == index(10)
    assert simplify(apply("minus", THREAD, zero)) == THREAD
    assert simplify(apply("times", THREAD, one)) == THREAD
    assert simplify(apply("times", zero, THREAD)) == zero
    assert simplify(apply("rest_u32", zero, five)) == zero
    assert simplify(Apply("lt", BOOL, (THREAD, one))) == Apply("eq", BOOL, (THREAD, zero))
    assert simplify(Apply("add", DType.I32, (THREAD, zero))) == Apply("add", DType.I32, (THREAD, zero))

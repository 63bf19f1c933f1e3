"""The emitted CUDA C++: parentheses, packs, caches, the loop over virtual blocks; every operation compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.cuda.built import Parameter
from stitchtune.kernels.cuda.nvrtc import Compiled, compile_unit, find_nvrtc
from stitchtune.kernels.cuda.report import parse
from stitchtune.kernels.cuda.text.emit import Bounds, emit
from stitchtune.kernels.cuda.text.tables import Text, literal, spell
from stitchtune.kernels.loops import (
    Apply,
    Argument,
    Declare,
    Expr,
    For,
    Let,
    Literal,
    Load,
    LoadPack,
    Local,
    LoopKernel,
    Stmt,
    Store,
    StorePack,
)

from tests.kernels.cuda.programs import (
    BOOL,
    BUFFERS,
    F32,
    I32,
    TASK,
    THREAD,
    apply,
    array,
    group,
    index,
    kernel,
    row_sums,
    scale,
)


def _f(op: str, *operands: Expr) -> Apply:
    return Apply(op, F32, operands)


A, B, C = (Local(name, F32) for name in "abc")


def _text(expr: Expr) -> str:
    """How an expression of locals is spelled."""
    output = array("y0", "output", 0, dtype=expr.dtype)
    source = emit([kernel((group(Store("y0", THREAD, expr)),), buffers=(output,))], ["k"]).source
    return source.split("st_store(y0, thread, ", 1)[1].split(");\n", 1)[0]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (_f("add", _f("mul", A, B), C), "a * b + c"),
        (_f("mul", _f("add", A, B), C), "(a + b) * c"),
        (_f("sub", A, _f("sub", B, C)), "a - (b - c)"),
        (_f("sub", _f("sub", A, B), C), "a - b - c"),
        (_f("add", A, _f("add", B, C)), "a + (b + c)"),  # sums of floats keep their order
        (_f("div", A, _f("mul", B, C)), "a / (b * c)"),
        (_f("neg", _f("add", A, B)), "-(a + b)"),
        (_f("neg", _f("neg", A)), "-(-a)"),
        (_f("recip", _f("sqrt", A)), "1.0f / sqrtf(a)"),
        (_f("select", Apply("lt", BOOL, (A, B)), A, _f("add", A, B)), "a < b ? a : a + b"),
        (_f("mul", _f("select", Apply("isnan", BOOL, (A,)), A, B), C), "(st_isnan(a) ? a : b) * c"),
        (
            Apply("and", BOOL, (Apply("or", BOOL, (Local("p", BOOL), Local("q", BOOL))), Local("r", BOOL))),
            "(p || q) && r",
        ),
        (
            Apply("and", BOOL, (Local("p", BOOL), Apply("and", BOOL, (Local("q", BOOL), Local("r", BOOL))))),
            "p && q && r",
        ),
        (Apply("not", BOOL, (Apply("eq", BOOL, (A, B)),)), "!(a == b)"),
        (apply("plus", apply("times", TASK, index(4)), THREAD), "task * 4 + thread"),
        (apply("plus", TASK, apply("plus", THREAD, index(1))), "task + thread + 1"),
        (apply("plus", TASK, apply("minus", THREAD, index(1))), "task + (thread - 1)"),
        (_f("max", A, B), "st_max(a, b)"),
        (Apply("min", DType.I64, (Local("i", DType.I64), Literal(5, DType.I64))), "st_min<int64_t>(i, 5)"),
        (apply("rest", apply("plus", TASK, index(1)), index(7)), "(task + 1) % 7"),
        (Apply("cast", DType.I8, (A,)), "int8_t(int(a))"),
        (Apply("cast", BOOL, (A,)), "a != 0"),
        (Apply("cast", F32, (TASK,)), "float(task)"),
        (_f("shuffle_xor", A, index(16)), "st_shuffle_xor(a, 16)"),
        (Apply("hidden", I32, (index(5),)), "5"),
    ],
)
def test_parentheses_are_those_that_a_reader_needs(expr: Expr, text: str) -> None:
    assert _text(expr) == text


def test_literals_are_exact_and_short() -> None:
    assert literal(Literal(0.044714998453855515, F32)).text == "0.044715f"
    assert literal(Literal(0.1, DType.F64)).text == "0.1"
    assert literal(Literal(float("-inf"), F32)) == Text("-ST_INFINITY", 15)
    assert literal(Literal(float("nan"), DType.F64)).text == "ST_NAN"
    assert literal(Literal(-(2**63), DType.I64)).text == "-0x7fffffffffffffffll - 1"
    assert literal(Literal(2**40, DType.I64)).text == "1099511627776ll"
    assert literal(Literal(2**64 - 1, DType.U64)).text == "18446744073709551615ull"
    assert literal(Literal(-3, DType.I8)).text == "int8_t(-3)"


def _pack(dtype: DType, width: int, align: int, store: bool = False) -> str:
    buffers = (array("x0", "input", 0, dtype=dtype), array("y0", "output", 1, dtype=dtype))
    inside = F32 if dtype.is_low_precision else dtype
    body: list[Stmt] = [Declare("v1", inside, width), LoadPack("v1", "x0", THREAD, width, align)]
    if store:
        body.append(StorePack("y0", THREAD, "v1", width, align))
    lines = emit([kernel((group(*body),), buffers=buffers)], ["k"]).source.splitlines()
    return "\n".join(line.strip() for line in lines if "_pack" in line or "[" in line)


def test_packs_are_split_into_16_bytes_or_what_alignment_allows() -> None:
    assert _pack(F32, 8, 8) == (
        "float v1[8];\nst_unpack(v1, st_load_pack<4>(x0, thread));\nst_unpack(v1 + 4, st_load_pack<4>(x0, thread + 4));"
    )
    assert _pack(F32, 4, 2).count("st_load_pack<2>") == 2
    assert _pack(DType.F16, 8, 8) == "float v1[8];\nst_unpack_f16(v1, st_load_pack<8>(x0, thread));"
    assert _pack(F32, 2, 1) == "float v1[2];\nv1[0] = st_load(x0, thread);\nv1[1] = st_load(x0, thread + 1);"
    stored = _pack(DType.BF16, 8, 8, store=True).splitlines()[-1]
    assert stored == "st_store_pack<8>(y0, thread, st_packed_bf16<8>(v1));"
    assert _pack(DType.U8, 16, 16, store=True).splitlines()[-1].endswith("st_packed<16>(v1));")
    assert _pack(BOOL, 16, 16, store=True).splitlines()[-1].endswith("st_packed_as<16, uint8_t>(v1));")


def test_what_a_launch_writes_and_reads_is_loaded_past_the_first_level_cache() -> None:
    unit = emit([row_sums()], ["k"], [Bounds(4)])
    assert (
        "void __launch_bounds__(128, 4)\nk(const float* __restrict__ x0, float* __restrict__ y0, float* g0,"
        in unit.source
    )
    assert "st_load_cg(g0, task)" in unit.source
    assert "st_load(x0, k1)" in unit.source
    assert unit.source.count("st_sync_grid(barrier);") == 1
    [parameters] = unit.parameters
    assert parameters == (
        Parameter("buffer", 0, F32),
        Parameter("buffer", 1, F32, written=True),
        Parameter("buffer", 2, F32, written=True),
        Parameter("barrier", 0, DType.U32, written=True),
    )


def test_arrays_that_share_memory_are_neither_restrict_nor_cached() -> None:
    shared = tuple(a.__class__(a.name, a.dtype, a.space, a.elements, a.position, alone=False) for a in BUFFERS)
    source = emit([kernel((scale(),), buffers=shared)], ["k"]).source
    assert "k(const float* x0, float* y0)" in source
    assert "st_load_cg(x0, k1)" in source


def test_virtual_blocks_of_groups_lie_one_after_the_other() -> None:
    source = emit([kernel((scale(60), scale(30, per_block=4)), buffers=BUFFERS)], ["k"]).source
    assert "for (int block = st_block(); block < 68; block += st_grid()) {" in source
    assert "if (block < 60) {\n      const int task = block;" in source
    assert "const int end = st_min((block - 60) * 4 + 4, 30);" in source
    assert "for (int task = (block - 60) * 4; task < end; ++task) {" in source


def test_a_grid_of_all_virtual_blocks_needs_no_loop() -> None:
    source = emit([row_sums(rows=60)], ["k"], [Bounds(4, once=True)]).source
    assert source.count("if (const int block = st_block(); block < 60) {") == 2
    assert "st_grid()" not in source


def test_sizes_known_at_launch_are_arguments() -> None:
    count = Argument(1)
    rows = scale().__class__(count, 2, TASK, (), scale().body)
    unit = emit([LoopKernel(kernel((rows,), buffers=BUFFERS).phases, True, BUFFERS, (), index(0), 2, 128)], ["k"])
    assert "float* __restrict__ y0, int64_t n1)" in unit.source
    assert "int64_t block = st_block(); block < (n1 + 1) / 2;" in unit.source
    assert unit.parameters[0][-1] == Parameter("argument", 1, DType.I64)


def test_loops_over_register_arrays_are_unrolled() -> None:
    i, k = Local("i1", I32), Local("k2", I32)
    inner = (Let(k, apply("plus", i, index(1))), Store("v1", k, Load("x0", THREAD, F32)))
    plain = For(Local("i3", I32), index(0), index(4), (Store("y0", THREAD, Load("x0", THREAD, F32)),))
    body = (
        Declare("v1", F32, 8),
        For(i, index(0), index(4), inner),
        plain,
        Store("y0", TASK, Load("v1", index(2), F32)),
    )
    lines = [line.strip() for line in emit([kernel((group(*body),), buffers=BUFFERS)], ["k"]).source.splitlines()]
    first, second = (number for number, line in enumerate(lines) if line.startswith("for (int i"))
    assert lines[first - 1] == "#pragma unroll"
    assert lines[second - 1] != "#pragma unroll"


FLOAT_1 = (
    "neg sign abs floor ceil trunc round sqrt recip exp log log1p expm1 sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf"
).split()
FLOAT_2 = "add sub mul div mod fmod pow max min maximum minimum".split()
COMPARE = "eq ne lt le gt ge".split()
INTEGER_2 = (
    "add sub mul div mod fmod pow shl shr max min maximum minimum bitand bitor bitxor plus minus times quotient rest"
).split()


def _operations() -> list[tuple[str, DType, tuple[DType, ...]]]:
    """(op, result, operands) of all that a loop program may ask for."""
    found: list[tuple[str, DType, tuple[DType, ...]]] = []
    for dtype in (d for d in DType if not d.is_low_precision and d is not BOOL):
        unary, binary = (FLOAT_1, FLOAT_2) if dtype.is_float else ("neg abs sign bitnot".split(), INTEGER_2)
        found += [(op, dtype, (dtype,)) for op in unary]
        found += [(op, dtype, (dtype, dtype)) for op in binary]
        found += [(op, BOOL, (dtype, dtype)) for op in COMPARE]
        found += [("select", dtype, (BOOL, dtype, dtype)), ("shuffle_xor", dtype, (dtype, I32))]
        for end in ("argmax_first", "argmax_last", "argmin_first", "argmin_last"):
            found += [(f"before_{end}", BOOL, (dtype, i, dtype, i)) for i in (I32, DType.I64)]
    for dtype in (F32, DType.F64):
        found += [(op, BOOL, (dtype,)) for op in ("isnan", "isinf")]
    for dtype in (I32, DType.I64):
        found += [(op, dtype, (dtype, dtype)) for op in "quotient_u32 rest_u32 floordiv remainder".split()]
    found += [(op, F32, (F32,)) for op in ("round_f16", "round_bf16")] + [("sum_error", F32, (F32, F32))]
    found += [(op, BOOL, (BOOL, BOOL)) for op in "and or xor eq ne max min maximum minimum".split()]
    found += [("not", BOOL, (BOOL,)), ("select", BOOL, (BOOL,) * 3), ("shuffle_xor", BOOL, (BOOL, I32))]
    return found + [("cast", b, (a,)) for a in DType for b in DType]


def _one(op: str, result: DType, operands: tuple[DType, ...]) -> LoopKernel:
    inside = {d: F32 if d.is_low_precision else d for d in DType}
    inputs = [array(f"x{k}", "input", k, dtype=d) for k, d in enumerate(operands)]
    value = Apply(op, inside[result], tuple(Load(a.name, THREAD, inside[a.dtype]) for a in inputs))
    output = array("y0", "output", len(inputs), dtype=result)
    return kernel((group(Store("y0", THREAD, value)),), buffers=(*inputs, output))


@pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC")
def test_every_operation_of_every_dtype_compiles_without_a_stack(tmp_path: Path) -> None:
    operations = _operations()
    names = [f"k{n}_{op}_{result.value}" for n, (op, result, _) in enumerate(operations)]
    made = compile_unit(emit([_one(*o) for o in operations], names).source, "sm_80", tmp_path / "cache")
    assert isinstance(made, Compiled), made
    reports = parse(made.log)
    assert reports.keys() == set(names)
    stacked = {name.split("_", 1)[1] for name, report in reports.items() if report.stack_bytes}
    assert stacked == {"sin_f64", "cos_f64", "tan_f64"}  # CUDA's own; see build.library_stack


def test_unknown_operations_are_refused() -> None:
    with pytest.raises(KeyError):
        spell("matmul", F32, F32, [Text("a"), Text("b")])

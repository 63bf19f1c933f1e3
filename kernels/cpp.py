"""Loop kernels as C++17: one static function per group, one exported function per kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..graphs.dtypes import DType
from .cpp_tables import FUNCTIONS, MEMORY, SCALAR, literal, spell
from .loops import (
    Apply,
    Argument,
    Array,
    Assign,
    Declare,
    Expr,
    Fold,
    For,
    GroupProgram,
    If,
    Let,
    Literal,
    Load,
    Local,
    LoopKernel,
    Stmt,
    Store,
    Stream,
)

_RUNTIME = Path(__file__).parent / "runtime"

VECTOR_MATH = FUNCTIONS
"""Functions of one argument that glibc's libmvec has vector forms of."""


def prelude(vector_math: bool) -> str:
    """The helpers of every unit, and the C library's functions, with vector forms where the library has them.

    exp, log, tanh and erf of float32 are branch-free ones of our own: libmvec leaves the vector loop for every lane
    that underflows, which made a masked softmax 20 times slower (docs/decisions.md).
    """
    pragma = "#pragma omp declare simd notinbranch\n" if vector_math else ""
    lines = [(_RUNTIME / name).read_text() for name in ("prelude.h", "arithmetic.h")]
    lines.append('extern "C" {\n')
    for kind, suffix in (("float", "f"), ("double", "")):
        for name in VECTOR_MATH:
            lines.append(f"{pragma}__attribute__((const)) {kind} {name}{suffix}({kind}) noexcept;\n")
        lines.append(f"{pragma}__attribute__((const)) {kind} pow{suffix}({kind}, {kind}) noexcept;\n")
    lines.append("}\n")
    lines.append((_RUNTIME / "functions.h").read_text())
    return "".join(lines)


def emit(kernels: Sequence[LoopKernel], names: Sequence[str], vector_math: bool = True) -> str:
    """The source of one unit: `names[k]` is exported for `kernels[k]`."""
    parts = [prelude(vector_math)]
    for kernel, name in zip(kernels, names, strict=True):
        parts.append(_kernel(kernel, name))
    return "\n".join(parts)


_SIGNATURE = "void* const* buffers, const int64_t* args, char* block"


def _kernel(kernel: LoopKernel, name: str) -> str:
    known = {a.name: a for a in (*kernel.buffers, *kernel.scratch)}
    parts: list[str] = []
    body: list[str] = []
    arguments: set[int] = set()
    for p, phase in enumerate(kernel.phases):
        if p:
            body.append("  team->barrier(team, thread);")
        blocks: list[str] = []
        calls: list[str] = []
        for g, group in enumerate(phase.groups):
            function = f"{name}_p{p}_g{g}"
            parts.append(_group(group, function, known))
            size = _Text({})
            tasks, per = size.expr(group.tasks), group.tasks_per_block
            arguments |= size.arguments
            blocks.append(f"    const int64_t tasks{g} = {tasks}, blocks{g} = (tasks{g} + {per - 1}) / {per};")
            before = " + ".join(["0", *(f"blocks{k}" for k in range(g))])
            calls.append(
                f"    {{ int64_t from = st_max<int64_t>(lo - ({before}), 0) * {per}, "
                f"to = st_min<int64_t>(st_min<int64_t>(hi - ({before}), blocks{g}) * {per}, tasks{g});\n"
                f"      if (from < to) {function}(buffers, args, block, from, to); }}"
            )
        total = " + ".join(f"blocks{g}" for g in range(len(phase.groups)))
        body.append("  {")
        body += blocks
        body.append(f"    const int64_t all = {total};")
        body.append("    const int64_t lo = all * thread / threads, hi = all * (thread + 1) / threads;")
        body += calls
        body.append("  }")
    head = f'extern "C" void {name}({_SIGNATURE}, int32_t thread, int32_t threads, st_team* team) {{'
    unused = "  (void)buffers; (void)args; (void)block; (void)team;"
    sizes = [f"  const int64_t n{k} = args[{k}];" for k in sorted(arguments)]
    return "\n".join([*parts, head, unused, *sizes, *body, "}", ""])


def _group(group: GroupProgram, function: str, known: dict[str, Array]) -> str:
    arrays = {**known, **{a.name: a for a in group.arrays}}
    text = _Text(arrays)
    body = list(text.block(group.body, 2))
    head = [
        f"{'ST_MASKED ' if text.masked else ''}{_vector(group.vector_bytes)}ST_GROUP",
        f"{function}({_SIGNATURE}, int64_t first, int64_t last) {{",
        "  (void)buffers; (void)args; (void)block;",
    ]
    for name in sorted(text.used, key=lambda n: (n[0], int(n[1:]))):
        array = arrays[name]
        source = f"block + {text.expr(array.start)}" if array.space == "block" else f"buffers[{array.position}]"
        const = "const " if name not in text.written else ""
        kind = f"{const}{MEMORY[array.dtype]}*{' __restrict__' if array.alone else ''}"
        aligned = f"__builtin_assume_aligned({source}, 64)" if array.space in ("block", "scratch") else f"({source})"
        head.append(f"  {kind} {name} = ({const}{MEMORY[array.dtype]}*){aligned};")
    head[3:3] = [f"  const int64_t n{k} = args[{k}];" for k in sorted(text.arguments)]
    head += [f"  const int64_t h{n} = st_hidden({literal(Literal(n, DType.I64))});" for n in sorted(text.hidden)]
    loop = f"  for (int64_t {group.task.name} = first; {group.task.name} < last; ++{group.task.name}) {{"
    fence = ["  st_stream_fence();"] if text.streams else []
    return "\n".join([*head, loop, *body, "  }", *fence, "}", ""])


def _vector(size: int) -> str:
    """The attribute that asks for vectors of so many bytes, of the sizes that there are."""
    return f"ST_VECTOR({8 * max(s for s in (16, 32, 64) if s <= max(size, 16))}) " if size else ""


class _Text:
    """Spells expressions and statements; collects which arrays are used and written."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.local_arrays: dict[str, DType] = {}
        self.used: set[str] = set()
        self.arguments: set[int] = set()
        self.hidden: set[int] = set()
        self.streams = False
        self.masked = False
        self.written: set[str] = set()

    # --- expressions

    def expr(self, expr: Expr) -> str:
        match expr:
            case Literal():
                return literal(expr)
            case Local(name):
                return name
            case Argument(position):
                self.arguments.add(position)
                return f"n{position}"
            case Load(array, offset, _, mask):
                return self._load(array, offset, mask)
            case Fold(op, array, lanes, dtype):
                form = "st_fold" if dtype.is_float or op in ("max", "min") else "st_fold_wrapping"
                return f"{form}<st_fold_{op}, {lanes}>({array})"
            case Apply("hidden", _, (Literal(value),)):
                self.hidden.add(int(value))
                return f"h{value}"
            case Apply(op, dtype, operands):
                texts = [self.expr(o) for o in operands]
                kind = operands[1 if op == "select" else 0].dtype
                return spell(op, dtype, kind, texts)

    def _load(self, array: str, offset: Expr, mask: Expr | None) -> str:
        dtype = self._touch(array)
        element = f"{array}[{self.expr(offset)}]"
        if dtype.is_low_precision:
            element = f"st_widen_{dtype.value}({element})"
        elif dtype is DType.BOOL:
            element = f"({element} != 0)"
        if mask is None:
            return element
        self.masked = True
        return f"({self.expr(mask)} ? {element} : {SCALAR[DType.F32 if dtype.is_low_precision else dtype]}(0))"

    def _touch(self, array: str) -> DType:
        if array in self.local_arrays:
            return self.local_arrays[array]
        self.used.add(array)
        return self.arrays[array].dtype

    # --- statements

    def block(self, body: Iterable[Stmt], depth: int) -> Iterator[str]:
        pad = "  " * depth
        for statement in body:
            match statement:
                case Let(local, value, mutable):
                    const = "" if mutable else "const "
                    yield f"{pad}{const}{SCALAR[local.dtype]} {local.name} = {self.expr(value)};"
                case Assign(local, value):
                    yield f"{pad}{local.name} = {self.expr(value)};"
                case Store():
                    yield pad + self._store(statement)
                case Stream(array, offset, source, count):
                    self._touch(array)
                    self._touch(source)
                    self.written.add(array)
                    self.streams = True
                    yield f"{pad}st_stream({array} + {self.expr(offset)}, {source}, {self.expr(count)});"
                case Declare(array, dtype, size):
                    self.local_arrays[array] = dtype
                    yield f"{pad}{SCALAR[dtype]} {array}[{size}] __attribute__((aligned(64)));"
                case If(condition, inner):
                    yield f"{pad}if ({self.expr(condition)}) {{"
                    yield from self.block(inner, depth + 1)
                    yield f"{pad}}}"
                case For():
                    yield from self._for(statement, depth)

    def _store(self, store: Store) -> str:
        dtype = self._touch(store.array)
        self.written.add(store.array)
        value = self.expr(store.value)
        if dtype.is_low_precision:
            value = f"st_narrow_{dtype.value}({value})"
        return f"{store.array}[{self.expr(store.offset)}] = {value};"

    def _for(self, loop: For, depth: int) -> Iterator[str]:
        pad, name = "  " * depth, loop.local.name
        if loop.simd:
            yield f"{pad}#pragma omp simd"
        elif loop.unroll > 1:
            yield f"{pad}#pragma GCC unroll {loop.unroll}"
        step = f"++{name}" if loop.step == 1 else f"{name} += {loop.step}"
        start, stop = self.expr(loop.start), self.expr(loop.stop)
        yield f"{pad}for (int64_t {name} = {start}; {name} < {stop}; {step}) {{"
        yield from self.block(loop.body, depth + 1)
        yield f"{pad}}}"

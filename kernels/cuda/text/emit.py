"""Loop kernels as CUDA C++: one `__global__` function per kernel, in terms of the functions of runtime/device.h.

The text is the same for NVRTC and for the emulator: every access to memory and every word between threads goes through
a function that each of them defines for itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ....graphs.dtypes import DType
from ...loops import (
    THREAD,
    Apply,
    Argument,
    Array,
    Assign,
    Declare,
    Expr,
    For,
    GroupProgram,
    If,
    Let,
    Literal,
    Load,
    LoadPack,
    Local,
    LoopKernel,
    Stmt,
    Store,
    StorePack,
    Sync,
    expressions,
    statements,
    within,
)
from ..built import Parameter
from .one_task import one_task
from .tables import CHOICE, EQUALITY, MEMORY, SCALAR, SUM, Text, literal, spell
from .tidy import tidy

PACK_BYTES = 16
"""The widest access of one thread."""


@dataclass(frozen=True)
class Unit:
    """The text of some kernels, without the headers that it needs, and the parameters of each."""

    source: str
    parameters: tuple[tuple[Parameter, ...], ...]


@dataclass(frozen=True)
class Bounds:
    """What the compiler may take for granted of a kernel's launch.

    min_blocks   blocks that one multiprocessor should hold: caps the registers
    once         the grid has as many blocks as the largest phase has virtual ones, so that none does a second. A loop
                 over virtual blocks costs registers even if it runs once: loads and addresses are moved in front of it.
    """

    min_blocks: int = 1
    once: bool = False


def emit(kernels: Sequence[LoopKernel], names: Sequence[str], bounds: Sequence[Bounds] | None = None) -> Unit:
    """The source of one unit: `names[k]` is the symbol of `kernels[k]`, which is launched within `bounds[k]`."""
    limits = bounds or [Bounds()] * len(kernels)
    made = []
    for kernel, name, limit in zip(kernels, names, limits, strict=True):
        made.append(_kernel(tidy(one_task(kernel) if limit.once else kernel), name, limit))
    return Unit("\n".join(text for text, _ in made), tuple(parameters for _, parameters in made))


def _kernel(kernel: LoopKernel, name: str, bounds: Bounds) -> tuple[str, tuple[Parameter, ...]]:
    arrays = {a.name: a for a in (*kernel.buffers, *kernel.scratch)}
    text = _Text(kernel, arrays)
    body: list[str] = []
    for number, phase in enumerate(kernel.phases):
        if number:
            body += ["", "  st_sync_grid(barrier);", ""]
        if len(kernel.phases) > 1:
            body.append(f"  // phase {number}")
        body += text.phase(phase.groups, bounds.once)
    parameters = _parameters(text, arrays, len(kernel.phases) > 1)
    declared = [_declare(p, text) for p in parameters]
    head = f'extern "C" __global__ void __launch_bounds__({kernel.threads}, {bounds.min_blocks})'
    lines = [head, *_wrap(f"{name}(", declared, ") {")]
    if text.threaded:
        lines.append(f"  const {text.index} {THREAD.name} = st_thread();")
    return "\n".join([*lines, *body, "}", ""]), tuple(p for _, p in parameters)


def _parameters(text: _Text, arrays: dict[str, Array], barrier: bool) -> list[tuple[str, Parameter]]:
    order = {"input": 0, "output": 1, "scratch": 2}
    used = sorted(text.used, key=lambda n: (order[arrays[n].space], arrays[n].position))
    buffers = [(n, Parameter("buffer", arrays[n].position, arrays[n].dtype, n in text.written)) for n in used]
    arguments = [(f"n{k}", Parameter("argument", k, DType.I64)) for k in sorted(text.arguments)]
    word = [("barrier", Parameter("barrier", 0, DType.U32, True))] if barrier else []
    return [*buffers, *arguments, *word]


def _declare(named: tuple[str, Parameter], text: _Text) -> str:
    name, parameter = named
    if parameter.kind == "argument":
        return f"int64_t {name}"
    if parameter.kind == "barrier":
        return f"unsigned* {name}"
    const = "" if parameter.written else "const "
    restrict = "" if name in text.shared_between_threads else " __restrict__"
    return f"{const}{MEMORY[parameter.dtype]}*{restrict} {name}"


def _wrap(before: str, parts: Sequence[str], after: str) -> list[str]:
    """A parameter list on one line, or on as many as 100 columns need."""
    lines, line = [], before
    for number, part in enumerate(parts):
        piece = part + (", " if number < len(parts) - 1 else "")
        if len(line) + len(piece) > 100 and line.strip() and line != before:
            lines.append(line.rstrip())
            line = " " * 4
        line += piece
    return [*lines, line + after]


class _Text:
    """Spells expressions and statements of one kernel; collects which arrays, arguments and threads it uses."""

    def __init__(self, kernel: LoopKernel, arrays: dict[str, Array]) -> None:
        self.arrays = dict(arrays)
        self.registers: dict[str, DType] = {}
        self.index = "int" if kernel.index_bits == 32 else "int64_t"
        self.used: set[str] = set()
        self.arguments: set[int] = set()
        self.threaded = False
        bodies = [s for p in kernel.phases for g in p.groups for s in statements(g.body)]
        self.written = {s.array for s in bodies if isinstance(s, Store | StorePack)}
        read = {array for s in bodies for array in _reads(s)}
        overlap = {n for n, a in arrays.items() if not a.alone}
        touched = overlap if overlap & self.written else set()
        # what this launch writes and reads: other threads' values, which the first-level cache may hold stale
        self.shared_between_threads = (self.written & read) | touched

    # --- the range of tasks

    def phase(self, groups: Sequence[GroupProgram], once: bool) -> Iterator[str]:
        """The loop over the virtual blocks of a phase: those of the first group, then of the second, ..."""
        blocks = [self._blocks(g) for g in groups]
        ends = [" + ".join(blocks[: k + 1]) for k in range(len(groups))]
        if all(b.isdigit() for b in blocks):
            ends = [str(sum(int(b) for b in blocks[: k + 1])) for k in range(len(groups))]
        if once and ends[-1].isdigit():
            yield f"  if (const {self.index} block = st_block(); block < {ends[-1]}) {{"
        else:
            yield f"  for ({self.index} block = st_block(); block < {ends[-1]}; block += st_grid()) {{"
        if len(groups) == 1:
            yield from self._group(groups[0], "", 2)
        else:
            for number, group in enumerate(groups):
                first = ends[number - 1] if number else ""
                test = f"if (block < {ends[number]}) {{" if number < len(groups) - 1 else "{"
                yield f"    {test}" if not number else f"    }} else {test}"
                yield from self._group(group, first, 3)
            yield "    }"
        yield "  }"

    def _blocks(self, group: GroupProgram) -> str:
        per = group.tasks_per_block
        if isinstance(group.tasks, Literal):
            return str(-(-int(group.tasks.value) // per))
        tasks = self.expr(group.tasks)
        return tasks.within(SUM) if per == 1 else f"({tasks.within(SUM)} + {per - 1}) / {per}"

    def _group(self, group: GroupProgram, first: str, depth: int) -> Iterator[str]:
        pad = "  " * depth
        index = SCALAR[group.task.dtype]
        block = f"block - {first}" if first.isdigit() else f"block - ({first})" if first else "block"
        body = list(self._arrays(group, depth + (group.tasks_per_block > 1)))
        if group.tasks_per_block > 1:
            per, name = group.tasks_per_block, group.task.name
            start = f"({block}) * {per}" if first else f"block * {per}"
            tasks = self.expr(group.tasks).text
            exact = "" if index == "int" else f"<{index}>"
            yield f"{pad}const {index} end = st_min{exact}({start} + {per}, {tasks});"
            yield f"{pad}for ({index} {name} = {start}; {name} < end; ++{name}) {{"
            yield from body
            yield f"{pad}}}"
        else:
            if _mentions(group.body, group.task):
                yield f"{pad}const {index} {group.task.name} = {block};"
            yield from body

    def _arrays(self, group: GroupProgram, depth: int) -> Iterator[str]:
        """The group's arrays in block memory, then its body."""
        pad = "  " * depth
        self.arrays.update({a.name: a for a in group.arrays})
        body = list(self._sections(group.body, depth))
        for array in group.arrays:
            if array.name in self.used:
                kind = MEMORY[array.dtype]
                yield f"{pad}{kind}* {array.name} = ST_SHARED({kind}, {self.expr(array.start).text});"
        self.used -= {a.name for a in group.arrays}
        yield from body

    def _sections(self, body: Sequence[Stmt], depth: int) -> Iterator[str]:
        """A body with a blank line behind each run of loops, and in front of what is declared for the next."""
        before: Stmt | None = None
        for statement in body:
            behind = isinstance(before, For | If | Sync) and not isinstance(statement, For | If | Sync)
            if behind or (isinstance(before, Let) and isinstance(statement, Declare)):
                yield ""
            yield from self.block([statement], depth)
            before = statement

    # --- expressions

    def expr(self, expr: Expr) -> Text:
        match expr:
            case Literal():
                return literal(expr)
            case Local(name):
                self.threaded |= name == THREAD.name
                return Text(name)
            case Argument(position):
                self.arguments.add(position)
                return Text(f"n{position}")
            case Load(array, offset, _, mask):
                return self._load(array, offset, mask)
            case Apply("hidden", _, (operand,)):
                return self.expr(operand)  # what it hides from g++ is no matter here
            case Apply(op, dtype, operands):
                kind = operands[1 if op == "select" else 0].dtype
                return spell(op, dtype, kind, [self.expr(o) for o in operands])
            case _:
                raise TypeError(f"no CUDA for {expr}")

    def _load(self, array: str, offset: Expr, mask: Expr | None) -> Text:
        element = self._element(array, self.expr(offset).text)
        if mask is None:
            return element
        dtype = self.registers.get(array) or self.arrays[array].dtype
        zero = literal(Literal(0, DType.F32 if dtype.is_low_precision else dtype)).text
        return Text(f"{self.expr(mask).within(CHOICE + 1)} ? {element.within(CHOICE + 1)} : {zero}", CHOICE)

    def _element(self, array: str, index: str) -> Text:
        if array in self.registers:
            return Text(f"{array}[{index}]")
        dtype = self._touch(array)
        element = f"{self._access('load', array)}({array}, {index})"
        if dtype.is_low_precision:
            return Text(f"st_widen_{dtype.value}({element})")
        return Text(f"{element} != 0", EQUALITY) if dtype is DType.BOOL else Text(element)

    def _touch(self, array: str) -> DType:
        self.used.add(array)
        return self.arrays[array].dtype

    def _access(self, form: str, array: str, pack: bool = False) -> str:
        """The function that loads from or stores to an array."""
        form = form + ("_pack" if pack else "")
        if self.arrays[array].space == "block":
            return f"st_shared_{form}"
        return f"st_{form}_cg" if form.startswith("load") and array in self.shared_between_threads else f"st_{form}"

    # --- statements

    def block(self, body: Iterable[Stmt], depth: int) -> Iterator[str]:
        pad = "  " * depth
        for statement in body:
            match statement:
                case Let(local, value, mutable):
                    const = "" if mutable else "const "
                    yield f"{pad}{const}{SCALAR[local.dtype]} {local.name} = {self.expr(value).text};"
                case Assign(local, Apply("add", dtype, (old, more))) if old == local and dtype.is_float:
                    yield f"{pad}{local.name} += {self.expr(more).text};"
                case Assign(local, value):
                    yield f"{pad}{local.name} = {self.expr(value).text};"
                case Store(array, offset, Apply("add", dtype, (Load(a, o, _, None), more))) if (
                    (a, o) == (array, offset) and array in self.registers and dtype.is_float
                ):
                    yield f"{pad}{array}[{self.expr(offset).text}] += {self.expr(more).text};"
                case Store(array, offset, value):
                    yield pad + self._put(array, self.expr(offset).text, self.expr(value).text)
                case Declare(array, dtype, size):
                    self.registers[array] = dtype
                    yield f"{pad}{SCALAR[dtype]} {array}[{size}];"
                case LoadPack():
                    yield from (pad + line for line in self._load_pack(statement))
                case StorePack():
                    yield from (pad + line for line in self._store_pack(statement))
                case Sync(scope):
                    yield f"{pad}st_sync_{scope}();"
                case If(condition, inner):
                    yield f"{pad}if ({self.expr(condition).text}) {{"
                    yield from self.block(inner, depth + 1)
                    yield f"{pad}}}"
                case For():
                    yield from self._for(statement, depth)
                case _:
                    raise TypeError(f"no CUDA for {statement}")

    def _put(self, array: str, index: str, value: str) -> str:
        if array in self.registers:
            return f"{array}[{index}] = {value};"
        dtype = self._touch(array)
        narrow = f"st_narrow_{dtype.value}({value})" if dtype.is_low_precision else value
        return f"{self._access('store', array)}({array}, {index}, {narrow});"

    def _load_pack(self, pack: LoadPack) -> Iterator[str]:
        dtype = self._touch(pack.array)
        if pack.align == 1:
            for k in range(pack.width):
                yield f"{pack.into}[{k}] = {self._element(pack.array, self._shifted(pack.offset, k)).text};"
            return
        function, widen = self._access("load", pack.array, pack=True), _conversion("unpack", dtype)
        for start, count in _packs(pack.width, pack.align, dtype):
            into = f"{pack.into} + {start}" if start else pack.into
            index = self._shifted(pack.offset, start)
            yield f"{widen}({into}, {function}<{count}>({pack.array}, {index}));"

    def _store_pack(self, pack: StorePack) -> Iterator[str]:
        dtype = self._touch(pack.array)
        if pack.align == 1:
            for k in range(pack.width):
                yield self._put(pack.array, self._shifted(pack.offset, k), f"{pack.source}[{k}]")
            return
        function, packed = self._access("store", pack.array, pack=True), _conversion("packed", dtype)
        for start, count in _packs(pack.width, pack.align, dtype):
            source = f"{pack.source} + {start}" if start else pack.source
            index = self._shifted(pack.offset, start)
            value = f"{packed}<{count}>({source})"
            if not dtype.is_low_precision and MEMORY[dtype] != SCALAR[self.registers[pack.source]]:
                value = f"st_packed_as<{count}, {MEMORY[dtype]}>({source})"
            yield f"{function}<{count}>({pack.array}, {index}, {value});"

    def _shifted(self, offset: Expr, by: int) -> str:
        text = self.expr(offset)
        return f"{text.within(SUM)} + {by}" if by else text.text

    def _for(self, loop: For, depth: int) -> Iterator[str]:
        pad, name = "  " * depth, loop.local.name
        constant = isinstance(loop.start, Literal) and isinstance(loop.stop, Literal)
        if constant and _indexes_registers(loop, self.registers):
            yield f"{pad}#pragma unroll"
        elif loop.unroll > 1:
            yield f"{pad}#pragma unroll {loop.unroll}"
        step = f"++{name}" if loop.step == 1 else f"{name} += {loop.step}"
        start, stop = self.expr(loop.start).text, self.expr(loop.stop).text
        yield f"{pad}for ({SCALAR[loop.local.dtype]} {name} = {start}; {name} < {stop}; {step}) {{"
        yield from self.block(loop.body, depth + 1)
        yield f"{pad}}}"


def _conversion(form: str, dtype: DType) -> str:
    return f"st_{form}_{dtype.value}" if dtype.is_low_precision else f"st_{form}"


def _packs(width: int, align: int, dtype: DType) -> Iterator[tuple[int, int]]:
    """(start, count) of the accesses that move `width` elements: the widest that alignment and hardware allow."""
    most = max(1, min(align, width, PACK_BYTES // dtype.size))
    count = 1 << most.bit_length() - 1
    for start in range(0, width, count):
        yield start, count


def _reads(statement: Stmt) -> Iterator[str]:
    """The arrays that a statement itself reads, not those of its body."""
    if isinstance(statement, LoadPack):
        yield statement.array
    for expr in expressions(statement):
        yield from (e.array for e in within(expr) if isinstance(e, Load))


def _mentions(body: Sequence[Stmt], local: Local) -> bool:
    return any(local in within(expr) for s in statements(body) for expr in expressions(s))


def _indexes_registers(loop: For, registers: Container[str]) -> bool:
    """True when the loop's variable says which element of a register array is meant: unless such a loop is unrolled,
    the array cannot stay in registers."""
    varying: set[Expr] = {loop.local}
    for statement in statements(loop.body):
        if isinstance(statement, Let) and not varying.isdisjoint(within(statement.value)):
            varying.add(statement.local)
        accesses = [(e.array, e.offset) for expr in expressions(statement) for e in within(expr) if isinstance(e, Load)]
        if isinstance(statement, Store):
            accesses.append((statement.array, statement.offset))
        if any(array in registers and not varying.isdisjoint(within(offset)) for array, offset in accesses):
            return True
    return False

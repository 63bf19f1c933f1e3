"""Which schemes, places and mappings a plan uses, read off its edges and its loop programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.loops import Argument, Expr, For, GroupProgram, LoopKernel, Stmt, Stream, evaluate, statements
from stitchtune.search_space.listing import locate, partial_parts
from stitchtune.search_space.plan import Group, Plan, Stage

Mark = tuple[str, str]

SCHEMES = ("independent", "local", "regional", "global")
PLACES = ("inline", "register", "shuffle", "block", "global", "alias")
MAPPINGS = (
    "horizontal packing",
    "vertical packing",
    "row splitting",
    "lane per row",
    "lanes across the row",
    *(f"vector width {w}" for w in (1, 2, 4, 8, 16, 32, 64)),
    "unrolling",
    "streaming stores",
    "team",
    "serial",
    "dynamic extents",
    "several accumulators",
    "tile that does not divide",
    "several kernels",
    "barrier",
    "softmax in one pass",
    "moments in one pass",
    "other axis order of a buffer",
    "padded buffer",
)
EVERY_MARK: tuple[Mark, ...] = (
    *(("scheme", s) for s in SCHEMES),
    *(("place", p) for p in PLACES),
    *(("mapping", m) for m in MAPPINGS),
)


def marks(sub: Subgraph, plan: Plan, kernels: Sequence[LoopKernel]) -> set[Mark]:
    """Everything of EVERY_MARK that the plan and its programs show."""
    found = {("place", edge.place) for edge in plan.edges}
    found |= {("scheme", s) for s in schemes(plan, kernels)}
    found |= {("mapping", m) for m in _mappings(sub, plan, kernels)}
    return found


def programs(kernels: Sequence[LoopKernel]) -> Iterator[GroupProgram]:
    for kernel in kernels:
        for phase in kernel.phases:
            yield from phase.groups


def schemes(plan: Plan, kernels: Sequence[LoopKernel]) -> Iterator[str]:
    """The stitching schemes of a plan, as its programs show them."""
    used = {edge.place for edge in plan.edges}
    if any(len(phase.groups) > 1 for kernel in kernels for phase in kernel.phases):
        yield "independent"
    if used & {"inline", "register", "shuffle"}:
        yield "local"
    if "block" in used and any(a.space == "block" for g in programs(kernels) for a in g.arrays):
        yield "regional"
    if "global" in used:
        yield "global"


def _mappings(sub: Subgraph, plan: Plan, kernels: Sequence[LoopKernel]) -> Iterator[str]:
    arguments = (*(sub.extents[a] for a in plan.dynamic), *sub.slots)
    for program in programs(kernels):
        tasks = evaluate(program.tasks, arguments)
        if program.tasks_per_block > 1 and tasks > 1:
            yield "vertical packing"
        yield from _loops(program, {f for g in _groups(plan) for s in g.stages for _, f in s.unroll if f > 1})
    for kernel in kernels:
        if not kernel.team:
            yield "serial"
        elif any(evaluate(g.tasks, arguments) > 1 for p in kernel.phases for g in p.groups):
            yield "team"
        if len(kernel.phases) > 1:
            yield "barrier"
    if len(kernels) > 1:
        yield "several kernels"
    if any(e.position < len(plan.dynamic) for k in kernels for e in _arguments(k)):
        yield "dynamic extents"
    listing = locate(sub, plan)
    if any(listing.is_partial(v) and partial_parts(sub, listing, v) > 1 for v in listing.values):
        yield "row splitting"
    for value, at in listing.values.items():
        stage, parallel = listing.stage(at), listing.parallel(at)
        yield from _stage(sub, plan, value, stage, parallel)
        for axis, tile in listing.group(at).parallel:
            if tile > 1 and axis != stage.vector and axis in sub.values[value].axes:
                yield "horizontal packing"
            if sub.extents[axis] % tile:
                yield "tile that does not divide"
    for buffer in plan.buffers:
        if buffer.order != sub.values[buffer.value].axes:
            yield "other axis order of a buffer"
        if buffer.pad:
            yield "padded buffer"


def _stage(sub: Subgraph, plan: Plan, value: int, stage: Stage, parallel: frozenset[int]) -> Iterator[str]:
    reduced = sub.values[value].reduce
    if stage.vector >= 0 and sub.extents[stage.vector] > 1:
        yield f"vector width {stage.width}"
    if reduced and stage.vector in reduced:
        yield "lanes across the row"
        if plan.reduction(value).accumulators > 1:
            yield "several accumulators"
    elif reduced and stage.vector in parallel:
        yield "lane per row"
    coupled = plan.reduction(value).coupled
    if coupled >= 0:
        yield "softmax in one pass" if sub.values[coupled].op == "max" else "moments in one pass"


def _groups(plan: Plan) -> Iterator[Group]:
    for kernel in plan.kernels:
        for phase in kernel.phases:
            yield from phase.groups


def _loops(program: GroupProgram, factors: set[int]) -> Iterator[str]:
    for statement in statements(program.body):
        if isinstance(statement, Stream):
            yield "streaming stores"
        if isinstance(statement, For) and (
            statement.unroll > 1 or (statement.step in factors and not _strip(statement))
        ):
            yield "unrolling"


def _strip(loop: For) -> bool:
    """A loop over strips of lanes."""
    return len(loop.body) == 1 and isinstance(loop.body[0], For) and loop.body[0].simd


def _arguments(kernel: LoopKernel) -> Iterator[Argument]:
    """Arguments that loops of the kernel run to, or that sizes and addresses are made of."""
    for program in programs([kernel]):
        yield from arguments_of(program.tasks)
        for statement in statements(program.body):
            for expr in _expressions(statement):
                yield from arguments_of(expr)


def _expressions(statement: Stmt) -> Iterator[Expr]:
    for name in ("value", "offset", "start", "stop", "condition", "count"):
        part = getattr(statement, name, None)
        if part is not None and not isinstance(part, str):
            yield part


def expressions(program: GroupProgram) -> Iterator[Expr]:
    """Every expression of a group's body, and its parts."""
    for statement in statements(program.body):
        for expr in _expressions(statement):
            yield from _parts(expr)


def arguments_of(expr: Expr) -> Iterator[Argument]:
    """The launch arguments that an expression mentions."""
    return (part for part in _parts(expr) if isinstance(part, Argument))


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    for part in (*getattr(expr, "operands", ()), getattr(expr, "offset", None), getattr(expr, "mask", None)):
        if part is not None:
            yield from _parts(part)

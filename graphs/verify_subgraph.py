"""The verifier of canonical subgraphs: what lowering, legality and the digest may rely on."""

from __future__ import annotations

from collections.abc import Iterator

from .dtypes import DType
from .errors import VerifyError
from .interpret.access import positions
from .primitives import COMPARISONS, PRIMITIVES, REDUCTIONS
from .rounding import Array
from .shapes import SUPPORTED
from .subgraph import (
    AxisVar,
    FloorDiv,
    Index,
    Int,
    Lookup,
    Mod,
    Read,
    Slot,
    Subgraph,
    Sum,
    Value,
    all_reads,
    axes_of,
    axes_of_read,
)

EXACT_POINTS = 1 << 20
"""Up to this many points an index that might leave its dimension is evaluated to find out."""


def verify_subgraph(sub: Subgraph) -> None:
    """Raises VerifyError unless:

    1. values stand in topological order; operand count, element types and attributes fit each primitive;
    2. axes exist, none twice in the domain (`axes + reduce`) of a value; only reductions have a group;
    3. an input's axes belong to it alone and no index mentions them;
    4. two computed values share an axis only where a chain of reads by identity, or of one input at one position,
       connects them;
    5. a read has one index per axis of the value read, over the reader's domain, and stays inside wherever its bounds
       hold, as far as that does not depend on gathered numbers;
    6. indices are in normal form: no nested or trivial Sum, no coefficient 0, divisors of at least 2, known slots;
       lookups read integers;
    7. a bounded read has a fill, others have none; the reads of a `piecewise` have none, all but the last have bounds;
    8. outputs are distinct computed values.
    """
    if any(type(n) is not int or n < 0 for n in sub.extents) or any(type(s) is not int for s in sub.slots):
        raise VerifyError("an extent is negative or no integer, or a slot is no integer")
    for number, value in enumerate(sub.values):
        try:
            _verify_value(sub, number, value)
        except VerifyError as error:
            raise VerifyError(f"value {number} ({value.op} {value.dtype.value}): {error}") from error
    computed = set(sub.computed)
    if len(set(sub.outputs)) != len(sub.outputs) or not set(sub.outputs) <= computed:
        raise VerifyError(f"outputs {sub.outputs} are not distinct computed values")
    _verify_input_axes(sub)
    _verify_sharing(sub)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise VerifyError(message)


def _verify_value(sub: Subgraph, number: int, value: Value) -> None:
    domain = value.domain
    _require(all(0 <= a < len(sub.extents) for a in domain), f"axes {domain} do not all exist")
    _require(len(set(domain)) == len(domain), f"axes {domain} hold one twice")
    _require(not value.reduce or value.op in REDUCTIONS, "only a reduction has a group of reduced axes")
    _require((value.position is not None) == (value.op == "iota"), "iota and only iota has a position")
    _require(all(0 <= r.value < number for r in all_reads(value)), "reads a value that does not come before it")
    _verify_types(sub, value)
    if value.position is not None:
        _verify_index(sub, value.position, domain)
    for i, read in enumerate(value.reads):
        _verify_read(sub, read, domain)
        if value.op == "piecewise":
            _require(read.fill is None, "a read of a piecewise value has a fill")
            _require(bool(read.where) or i == len(value.reads) - 1, "only the last read of a piecewise may lack bounds")
        else:
            _require((read.fill is not None) == bool(read.where), "a fill without bounds or bounds without a fill")


def _verify_types(sub: Subgraph, value: Value) -> None:
    operands = [sub.values[r.value].dtype for r in value.reads]
    names = [name for name, _ in value.attrs]
    allowed = {"const": ["value"], "argmax": ["select_last"], "argmin": ["select_last"]}.get(value.op, [])
    _require(set(names) <= set(allowed) and len(set(names)) == len(names), f"attributes {names}")
    match value.op:
        case "input" | "const" | "iota":
            _require(not operands, "takes no operands")
            _require(value.op != "const" or (not value.axes and names == allowed), "a const is a scalar with a value")
            _require(value.op != "iota" or value.dtype in SUPPORTED["iota"], "iota of this type")
            return
        case "piecewise":
            _require(bool(operands) and set(operands) == {value.dtype}, "takes operands of its own type")
            return
    primitive = PRIMITIVES.get(value.op)
    if primitive is None or primitive.kind not in ("elementwise", "reduce"):
        raise VerifyError("no operator of the canonical form")
    _require(len(operands) == primitive.arity, f"takes {primitive.arity} operands, not {len(operands)}")
    if value.op == "where":
        _require(operands.pop(0) is DType.BOOL, "the condition is not bool")
    _require(len(set(operands)) == 1, f"operands of types {', '.join(d.value for d in operands)}")
    _require(operands[0] in SUPPORTED[value.op], f"has no meaning on {operands[0].value}")
    if value.op != "cast":
        _require(value.dtype is _result(value.op, operands[0]), "has the wrong type for its operands")


def _result(op: str, operand: DType) -> DType:
    if op in COMPARISONS or op in ("isnan", "isinf"):
        return DType.BOOL
    return DType.I64 if op in ("argmax", "argmin") else operand


# --- reads and indices


def _verify_read(sub: Subgraph, read: Read, domain: tuple[int, ...]) -> None:
    source = sub.values[read.value]
    _require(len(read.index) == len(source.axes), f"{len(read.index)} indices for value {read.value}")
    for bound in read.where:
        _verify_index(sub, bound.index, domain)
        _require(0 <= bound.axis < len(sub.extents), f"a bound by axis {bound.axis}, which does not exist")
    for index, axis in zip(read.index, source.axes, strict=True):
        _verify_index(sub, index, domain)
        # A reader of no elements reads nothing, wherever its indices point.
        if all(sub.extents[a] for a in domain) and not _bounded(sub, read, index, axis):
            _verify_range(sub, index, sub.extents[axis], bool(read.where))


def _verify_index(sub: Subgraph, index: Index, domain: tuple[int, ...]) -> None:
    match index:
        case AxisVar(axis):
            _require(axis in domain, f"an index mentions axis {axis}, outside the reader's domain {domain}")
        case Slot(slot):
            _require(0 <= slot < len(sub.slots), f"slot {slot} does not exist")
        case Sum(terms):
            _verify_sum(terms)
            for _, term in terms:
                _verify_index(sub, term, domain)
        case FloorDiv(term, divisor) | Mod(term, divisor):
            _require(divisor >= 2, f"a divisor of {divisor}")
            _verify_index(sub, term, domain)
        case Lookup(read, axis):
            _require(0 <= axis < len(sub.extents), f"a lookup counts from axis {axis}, which does not exist")
            _require(sub.values[read.value].dtype.is_integer, f"a lookup reads value {read.value}, no integer")
            _require((read.fill is not None) == bool(read.where), "a lookup with bounds but no fill, or the reverse")
            _verify_read(sub, read, domain)


def _verify_sum(terms: tuple[tuple[int, Index], ...]) -> None:
    _require(all(c != 0 for c, _ in terms), "a Sum with coefficient 0")
    _require(not any(isinstance(t, Sum) for _, t in terms), "a Sum in a Sum")
    _require(len(terms) > 1 or (len(terms) == 1 and terms[0][0] != 1), "a Sum of a single term")
    _require(len({t for _, t in terms}) == len(terms), "a Sum with a term twice")
    numbers = [(c, t.value) for c, t in terms if isinstance(t, Int)]
    _require(
        len(numbers) <= 1 and all(c == 1 and n != 0 for c, n in numbers), "a Sum with constants not folded into one"
    )
    _require(len(terms) > 1 or not numbers, "a Sum of a constant")


def _bounded(sub: Subgraph, read: Read, index: Index, axis: int) -> bool:
    """Whether a bound of the read keeps `index` inside the extent of `axis`."""
    return any(b.index == index and sub.extents[b.axis] <= sub.extents[axis] for b in read.where)


def _verify_range(sub: Subgraph, index: Index, extent: int, guarded: bool) -> None:
    """`index` stays in 0..extent-1; under bounds of other indices only where they hold, not judged here."""
    limits = _limits(sub, index)
    if limits is None or (limits[0] >= 0 and limits[1] < extent) or guarded:
        return
    axes = tuple(sorted(axes_of(index)))
    points = 1
    for axis in axes:
        points *= sub.extents[axis]
    if 0 < points <= EXACT_POINTS:
        at = positions(index, axes, sub, _no_lookup)
        _require(
            bool(at.min() >= 0 and at.max() < extent), f"positions {at.min()} to {at.max()} of a dimension of {extent}"
        )


def _no_lookup(value: int) -> Array:
    raise AssertionError(f"value {value} is looked up in an index that was found to have no lookup")


def _limits(sub: Subgraph, index: Index) -> tuple[int, int] | None:
    """Least and greatest value of an index, perhaps too wide; None when unknown (a lookup) or of nothing."""
    match index:
        case AxisVar(axis):
            return (0, sub.extents[axis] - 1) if sub.extents[axis] else None
        case Int(number):
            return number, number
        case Slot(slot):
            return sub.slots[slot], sub.slots[slot]
        case Sum(terms):
            low = high = 0
            for factor, term in terms:
                inner = _limits(sub, term)
                if inner is None:
                    return None
                low += factor * inner[0 if factor > 0 else 1]
                high += factor * inner[1 if factor > 0 else 0]
            return low, high
        case FloorDiv(term, divisor):
            inner = _limits(sub, term)
            return None if inner is None else (inner[0] // divisor, inner[1] // divisor)
        case Mod(term, divisor):
            inner = _limits(sub, term)
            if inner is None:
                return None
            return inner if inner[0] // divisor == inner[1] // divisor == 0 else (0, divisor - 1)
    return None


# --- axes


def _verify_input_axes(sub: Subgraph) -> None:
    owners: dict[int, int] = {}
    for number in sub.inputs:
        for axis in sub.values[number].axes:
            _require(axis not in owners, f"inputs {owners.get(axis)} and {number} share axis {axis}")
            owners[axis] = number
    for number, value in enumerate(sub.values):
        if not value.is_input:
            mentioned = set(value.domain).union(*(axes_of_read(r) for r in value.reads))
            shared = mentioned & owners.keys()
            _require(not shared, f"value {number} uses axes {sorted(shared)} of an input")


def _verify_sharing(sub: Subgraph) -> None:
    """Rule 4: for every axis, the computed values that iterate over it are connected by reads that keep it."""
    leader: dict[_Use, _Use] = {}

    def find(use: _Use) -> _Use:
        while leader[use] != use:
            use = leader[use]
        return use

    for number in sub.computed:
        value = sub.values[number]
        for axis in value.domain:
            leader[number, axis, -1] = (number, axis, -1)
        for read in all_reads(value):
            for axis, dimension in _kept(sub, value, read):
                source = (read.value, axis, dimension)
                leader.setdefault(source, source)
                leader[find((number, axis, -1))] = find(source)
    groups: dict[int, set[_Use]] = {}
    for use in leader:
        groups.setdefault(use[1], set()).add(find(use))
    for axis, found in groups.items():
        _require(
            len(found) == 1, f"values {sorted(n for n, *_ in found)} share axis {axis}, unconnected by identity reads"
        )


_Use = tuple[int, int, int]
"""A value, an axis, and -1; or an input, the axis that some reader has there, and the dimension read at it."""


def _kept(sub: Subgraph, value: Value, read: Read) -> Iterator[tuple[int, int]]:
    """(axis, -1) for each axis shared with the computed value read, (axis, dimension) where the read is of an input."""
    source = sub.values[read.value]
    for dimension, (axis, index) in enumerate(zip(source.axes, read.index, strict=True)):
        if source.is_input and read.is_plain and isinstance(index, AxisVar):
            yield index.axis, dimension
        elif index == AxisVar(axis) and axis in value.domain:
            yield axis, -1

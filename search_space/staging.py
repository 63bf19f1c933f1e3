"""Stages: the loop nests inside a group, their loop order and vector axis, and the values kept between them."""

from __future__ import annotations

from ..graphs.subgraph import AxisVar, Sum
from .access import Access
from .coupling import pair_kind
from .dominants import is_expensive
from .draft import Context, GroupDraft, StageDraft
from .knobs import Ask, Knob

STORE_WEIGHT = 3
"""Weight of bytes stored against bytes loaded: a transpose that gathers took 134 us, one that scatters 940 us."""

MIN_VECTOR = 4
"""Extent below which an axis is not worth a vector loop when another one is there."""


def form_stages(context: Context, group: GroupDraft, ask: Ask) -> None:
    """Lists the group's members in loop nests, each member as early as its operands allow."""
    group.stages = []
    group.coupled = {}
    for value in group.combine:
        _add_combine(context, group, value)
    for member in sorted({*group.members, *_kept(context, group)}):
        if _couples(context, group, member, ask):
            continue
        earliest = _earliest(context, group, member)
        for stage in group.stages[earliest:]:
            if not stage.combine and _accepts(context, group, stage, member):
                stage.members.append(member)
                break
        else:
            order, vector = loops(context, group, member, ask)
            group.stages.append(StageDraft([member], order, vector))


def _couples(context: Context, group: GroupDraft, member: int, ask: Ask) -> bool:
    """Lists a reduction in the stage of one that the same pass over the data can compute, where the answers say so.

    Rows that do not stay on chip are read once less. Offered on CUDA; grouping decides on reductions split over tasks.
    """
    if member in group.joined:
        group.coupled[member] = group.joined[member]
        group.stages[group.stage_of(group.joined[member])].members.append(member)
        return True
    if not context.is_cuda or not context.is_reduction(member) or member in group.partial:
        return False
    taken = {*group.coupled, *group.coupled.values(), *group.partial}
    for stage in group.stages:
        first = next((m for m in stage.members if m not in taken and pair_kind(context.sub, m, member)), -1)
        if first >= 0 and ask(Knob(f"couple.{member}", (False, True), False)):
            stage.members.append(member)
            group.coupled[member] = first
            return True
    return False


def _kept(context: Context, group: GroupDraft) -> list[int]:
    return [v for v, label in context.kept.items() if label == group.label]


def listed(context: Context, group: GroupDraft) -> list[int]:
    """What sites in this group find kept beside the anchors."""
    return _kept(context, group)


def _add_combine(context: Context, group: GroupDraft, value: int) -> None:
    """One stage combines all partials that have the same own axes."""
    axes = context.sub.values[value].axes
    for stage in group.stages:
        if stage.order == axes:
            stage.combine.append(value)
            return
    vector = axes[-1] if axes and context.sub.extents[axes[-1]] >= MIN_VECTOR else -1
    group.stages.append(StageDraft([], axes, vector, [value]))


def _earliest(context: Context, group: GroupDraft, member: int) -> int:
    """The first stage whose predecessors have made everything that `member` reads inside the group."""
    earliest = 0
    here = listed(context, group)
    for access in context.accesses(member, here):
        if context.is_inline(access, here):
            continue
        stage = group.stage_of(access.value)
        combined = group.combine_stage_of(access.value)
        if combined >= 0:
            earliest = max(earliest, combined + 1)
        elif stage >= 0 and access.value not in group.partial:
            same = _in_register(context, group, group.stages[stage], access, member)
            earliest = max(earliest, stage if same else stage + 1)
    return earliest


def _in_register(context: Context, group: GroupDraft, stage: StageDraft, access: Access, member: int) -> bool:
    """True when `member`, listed in `stage`, finds the value read in a register at the point where it needs it."""
    sub = context.sub
    if not access.is_identity_everywhere(sub):
        return False
    final = _final(context, group, stage, access.value)
    if final is None:
        return True
    outer = set(stage.order[:final])
    whole = set(sub.values[access.value].axes) | set(sub.values[member].domain)
    return not sub.values[member].reduce and whole <= outer


def _final(context: Context, group: GroupDraft, stage: StageDraft, value: int) -> int | None:
    """The loop after which a member of `stage` is there: that of a reduction it waits for; None: inside all loops."""
    reduced = context.sub.values[value].reduce
    if reduced:
        return min(stage.order.index(a) for a in reduced)
    here = listed(context, group)
    for access in context.accesses(value, here):
        if access.value in stage.members and not context.is_inline(access, here):
            final = _final(context, group, stage, access.value)
            if final is not None:
                return final
    return None


def _accepts(context: Context, group: GroupDraft, stage: StageDraft, member: int) -> bool:
    """True when `member` may join: the same loops, or a row-wise value that follows a reduction of the stage."""
    sub = context.sub
    domain = set(sub.values[member].domain)
    if domain == set(stage.order):
        return not context.is_cuda or accumulates(context, stage.order, member)
    if not domain < set(stage.order) or sub.values[member].reduce:
        return False
    return any(
        a.value in stage.members and context.is_reduction(a.value) and _in_register(context, group, stage, a, member)
        for a in context.accesses(member, listed(context, group))
    )


def accumulates(context: Context, order: tuple[int, ...], member: int) -> bool:
    """True when the loops of a CUDA stage run a reduction's reduced axes inside its own ones."""
    value = context.sub.values[member]
    last = max((order.index(a) for a in value.axes), default=-1)
    return all(order.index(a) > last for a in value.reduce)


def loops(context: Context, group: GroupDraft, member: int, ask: Ask) -> tuple[tuple[int, ...], int]:
    """The loop order of a nest over `member`'s domain, and its vector axis (-1: none).

    Axes are ordered as the largest tensor touched stores them, so that the innermost loop runs along memory; the vector
    axis is the one along which the most bytes are contiguous. On CUDA threads make any order coalesced; there a
    reduction's own axes stand outside, so that a thread needs one accumulator.
    """
    sub = context.sub
    domain = sub.values[member].domain
    if not domain:
        return (), -1
    contiguous = dict.fromkeys(domain, 0)
    for indices, elements, size, stored in touched(context, group, member):
        count = len(indices)
        for k, index in enumerate(indices):
            for axis in moving(index):
                weight = elements * size * (STORE_WEIGHT if stored else 1)
                contiguous[axis] += (1 if k == count - 1 else -1) * weight
    eligible = [a for a in domain if sub.extents[a] >= MIN_VECTOR] or list(domain)
    best = max(eligible, key=lambda a: (contiguous[a], domain.index(a)))
    choices = tuple(sorted(eligible)) if len(eligible) <= 6 else (best,)
    vector = int(ask(Knob(f"vector.{member}", choices, best)))
    stored_as = storage_order(context, group, member)
    if context.is_cuda:
        return tuple(sorted(stored_as, key=lambda a: a in sub.values[member].reduce)), vector
    return (*(a for a in stored_as if a != vector), vector), vector


def storage_order(context: Context, group: GroupDraft, member: int) -> tuple[int, ...]:
    """The axes of `member`'s domain, outer to inner as the largest tensor that has them stores them."""
    domain = context.sub.values[member].domain
    position: dict[int, tuple[int, float]] = {}
    for indices, elements, size, _ in touched(context, group, member):
        for k, index in enumerate(indices):
            for axis in moving(index):
                if elements * size > position.get(axis, (0, 0.0))[0]:
                    position[axis] = (elements * size, k / len(indices))
    return tuple(sorted(domain, key=lambda a: (position.get(a, (0, 0.0))[1], domain.index(a))))


def touched(context: Context, group: GroupDraft, member: int) -> list[tuple[tuple[object, ...], int, int, bool]]:
    """(indices, elements, bytes each, whether stored) of every tensor that a nest at `member` loads or stores."""
    sub = context.sub
    value = sub.values[member]
    found: list[tuple[tuple[object, ...], int, int, bool]] = []
    for access in context.accesses(member, listed(context, group)):
        source = sub.values[access.value]
        if source.is_input or access.value in context.anchor_set or access.value in context.kept:
            extent = context.extent(access.axes)
            found.append((access.index, extent, source.dtype.size, False))
    if value.axes:
        own = tuple(AxisVar(a) for a in value.axes)
        found.append((own, context.extent(value.axes), value.dtype.size, True))
    return found


def moving(index: object) -> list[int]:
    """The axes that move an index by one element a step."""
    match index:
        case AxisVar(axis):
            return [axis]
        case Sum(terms):
            return [t.axis for c, t in terms if isinstance(t, AxisVar) and abs(c) == 1]
        case _:
            return []


def keep_candidates(context: Context, group: GroupDraft) -> list[tuple[int, bool]]:
    """Elementwise values that more than one stage of the group evaluates: (value, whether keeping it should pay).

    Keeping one in block memory is AStitch's element-level reuse. It should pay when an expensive operator or more
    bytes than its own stand behind it.
    """
    sub = context.sub
    stages: dict[int, set[int]] = {}
    readers: dict[int, set[int]] = {}
    blocked: set[int] = set()
    for number, stage in enumerate(group.stages):
        loops_here = set(stage.order)
        for member in (m for m in stage.members if m not in group.coupled):
            for access in context.accesses(member, listed(context, group)):
                value = sub.values[access.value]
                if value.op in ("input", "const") or access.value in context.anchor_set or value.reduce:
                    continue
                stages.setdefault(access.value, set()).add(number)
                readers.setdefault(access.value, set()).add(access.reader)
                if access.guarded or not access.is_identity_everywhere(sub) or set(value.axes) != loops_here:
                    blocked.add(access.value)
    found = [v for v, s in stages.items() if len(s) > 1 and v not in blocked and v not in context.kept]
    return [(v, _pays(context, v)) for v in sorted(found, reverse=True)]


def _pays(context: Context, value: int) -> bool:
    sub = context.sub
    accesses = context.accesses(value, context.kept)
    if is_expensive(sub, value):
        return True
    behind = {a.value for a in accesses}
    if any(is_expensive(sub, v) and sub.values[v].axes == sub.values[value].axes for v in behind):
        return True
    read = sum(
        min(sub.bytes(v), sub.domain_size(value) * sub.values[v].dtype.size) for v in behind if sub.values[v].is_input
    )
    return 2 * read > 3 * sub.bytes(value)

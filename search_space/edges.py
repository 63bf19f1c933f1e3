"""Edges: the place through which every value reaches every consumer, the same at all sites of the consumer."""

from __future__ import annotations

from .draft import Context, GroupDraft
from .plan import Edge, Place
from .staging import listed

LOCAL: frozenset[Place] = frozenset({"register", "shuffle", "block"})


class Conflict(Exception):
    """No single place serves all sites of a consumer; the context was changed so that the next attempt has one."""


def places(context: Context, phases: list[list[GroupDraft]]) -> tuple[Edge, ...]:
    """The edges of a draft. Raises Conflict after changing `context` when some edge would need two places."""
    found: dict[tuple[int, int], dict[Place, GroupDraft]] = {}
    for group in (g for phase in phases for g in phase):
        here = listed(context, group)
        for number, stage in enumerate(group.stages):
            for member in stage.members:
                if member in group.coupled:
                    continue  # computed from what its partner reads
                for access in context.accesses(member, here):
                    if context.sub.values[access.value].op in ("input", "const"):
                        continue
                    inline = context.is_inline(access, here)
                    place: Place = "inline" if inline else _place(context, group, number, access.value, access.reader)
                    found.setdefault((access.value, access.reader), {}).setdefault(place, group)
    for (value, reader), options in found.items():
        if len(options) > 1:
            _resolve(context, value, reader, options)
            raise Conflict(f"v{value} reaches v{reader} through {sorted(options)}")
    return tuple(Edge(value, reader, next(iter(options))) for (value, reader), options in sorted(found.items()))


def _place(context: Context, group: GroupDraft, stage: int, value: int, reader: int) -> Place:
    if (value, reader) in context.global_edges:
        return "global"
    if value in group.combine:
        return "block"
    home = group.stage_of(value)
    if home < 0 or value in group.partial:
        return "global"
    if home != stage:
        return "block"
    if context.is_cuda:
        return "register"  # or a shuffle: known once threads are mapped
    reduced = context.sub.values[value].reduce
    return "shuffle" if group.stages[stage].vector in reduced else "register"


def _resolve(context: Context, value: int, reader: int, options: dict[Place, GroupDraft]) -> None:
    """Changes the context so that (value, reader) needs one place only."""
    if "inline" in options:
        context.fix_inline(value, reader)
    elif set(options) == {"block", "global"} and _holds_all_tasks(context, value, options["block"]):
        context.global_edges.add((value, reader))
    elif set(options) <= LOCAL and reader not in context.anchor_set and reader not in context.kept:
        context.kept[reader] = next(iter(options.values())).label
    else:
        context.extra |= {reader}


def _holds_all_tasks(context: Context, value: int, group: GroupDraft) -> bool:
    """True when each task stores its own part of `value` in global memory and may read that part back."""
    return value not in group.combine and set(group.parallel) <= set(context.sub.values[value].axes)

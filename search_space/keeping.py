"""Shared intermediates: elementwise values that several stages of a group need, kept instead of computed again."""

from __future__ import annotations

from collections.abc import Iterator

from .draft import Context, GroupDraft
from .knobs import Ask, Knob
from .staging import form_stages, keep_candidates


def groups_of(phases: list[list[GroupDraft]]) -> Iterator[GroupDraft]:
    for phase in phases:
        yield from phase


def keep_shared(context: Context, group: GroupDraft, phases: list[list[GroupDraft]], ask: Ask) -> None:
    """Keeps intermediates that several stages would recompute, where the answers say so."""
    refused: set[int] = set()
    while True:
        open_candidates = [(v, pays) for v, pays in keep_candidates(context, group) if v not in refused]
        if not open_candidates:
            return
        # Registers are few: on CUDA producers come first, lest what is cheap to make of a kept value be kept as well.
        value, pays = open_candidates[-1 if context.is_cuda else 0]
        fits = _kept_bytes(context, group, value) <= context.target.block_bytes // 2
        answer = ask(Knob(f"keep.{value}", ("inline", "block"), "block" if pays and fits else "inline"))
        if answer == "inline" or not fits or not _only_here(context, group, phases, value):
            refused.add(value)
            continue
        context.kept[value] = group.label
        form_stages(context, group, ask)


def _kept_bytes(context: Context, group: GroupDraft, value: int) -> int:
    """Least block memory of a kept value: tiles of one."""
    serial = (a for a in context.sub.values[value].axes if a not in group.parallel)
    return context.extent(serial) * context.sub.values[value].dtype.size


def _only_here(context: Context, group: GroupDraft, phases: list[list[GroupDraft]], value: int) -> bool:
    """True when no other group evaluates `value` or anything that reads it."""
    for other in groups_of(phases):
        if other is group:
            continue
        for member in other.members:
            if any(a.value == value for a in context.accesses(member)):
                return False
    return True

"""Unrolling of a thread's own loops (CUDA): several loads on their way before the first is needed."""

from __future__ import annotations

from .draft import Context, GroupDraft, StageDraft
from .knobs import Ask, Knob
from .registers import coordinates

LEAST_STEPS = 8
"""Steps of a thread from which its loop is worth unrolling; shorter ones are the compiler's business."""

FACTORS = (1, 2, 4, 8)


def unrolled(context: Context, group: GroupDraft, stage: StageDraft, ask: Ask) -> tuple[tuple[int, int], ...]:
    """The innermost loop in which a thread has many steps, and by how much it is unrolled; () where there is none."""
    for axis, (count, _, width) in reversed(coordinates(stage, stage.order).items()):
        steps = -(-group.trip(context.sub, axis) // (count * width))
        if steps == 1:
            continue
        if steps < LEAST_STEPS or not stage.members:
            return ()
        # A block of 1024 threads has 64 registers for each.
        factor = int(ask(Knob(f"unroll.{stage.members[0]}.{axis}", FACTORS, 2 if group.threads > 512 else 4)))
        return ((axis, factor),) if factor > 1 else ()
    return ()

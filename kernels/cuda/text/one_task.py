"""Kernels whose blocks do one task a phase: the barriers that keep the next task waiting go."""

from __future__ import annotations

from dataclasses import replace

from ...loops import GroupProgram, LoopKernel, Sync


def one_task(kernel: LoopKernel) -> LoopKernel:
    """`kernel` for a grid of as many blocks as its largest phase has virtual ones.

    The barrier behind a task lets a block's next one write to block memory. Where there is none, nobody waits: what
    follows is the end, or a grid barrier, which is a barrier of each block too.
    """

    def group(given: GroupProgram) -> GroupProgram:
        last = given.tasks_per_block == 1 and given.body[-1:] == (Sync("block"),)
        return replace(given, body=given.body[:-1]) if last else given

    return replace(kernel, phases=tuple(replace(p, groups=tuple(group(g) for g in p.groups)) for p in kernel.phases))

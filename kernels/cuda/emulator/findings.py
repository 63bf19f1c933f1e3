"""What the emulator reports: findings, each with its place, and counters of traffic."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "race",
    "out-of-bounds",
    "misaligned",
    "uninitialised",
    "const",
    "stale",
    "deadlock",
    "divergence",
    "exited",
    "limit",
)
"""In the order of the runtime's numbers.

race           two accesses to a byte, one of them a write, that no synchronisation orders
const          a kernel writes a buffer that it takes as const
stale          a load by the first-level cache of what another block has written in this launch
deadlock       no thread can go on
divergence     threads wait at different synchronisations, or shuffle with different masks
exited         a synchronisation that a thread which has ended can never reach
limit          a limit of the device or of the run (steps, findings)
"""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a kernel.

    line    of the source, from 1; 0 when it has no place there
    where   the line's text, who did it, and what
    """

    kind: str
    kernel: str
    where: str
    line: int = 0

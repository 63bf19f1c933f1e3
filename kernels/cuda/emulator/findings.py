"""What the emulator reports: findings, each with its place, and counters of traffic."""

from __future__ import annotations

from dataclasses import dataclass, fields

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


@dataclass(frozen=True)
class Traffic:
    """Reads, or writes, of one buffer in one phase. Sectors are of 32 bytes.

    sectors, bytes    distinct in the phase
    block_sectors     distinct in a block, summed over the blocks
    requests          accesses of warps: those of a place in all active lanes at once are one
    request_sectors, request_bytes
                      distinct in a request, summed over the requests
    """

    sectors: int = 0
    bytes: int = 0
    block_sectors: int = 0
    requests: int = 0
    request_sectors: int = 0
    request_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class BufferCounts:
    """What one phase did with the buffer at `position` (inputs, outputs, scratch)."""

    position: int
    reads: Traffic
    writes: Traffic


@dataclass(frozen=True)
class PhaseCounts:
    """What one phase did.

    buffers     those that were touched
    shared      requests to shared memory
    conflicts   wavefronts of shared memory beyond the ideal
    """

    buffers: tuple[BufferCounts, ...]
    shared: int
    conflicts: int

    @property
    def total(self) -> Traffic:
        """Reads and writes of all buffers together."""
        return sum((t for b in self.buffers for t in (b.reads, b.writes)), Traffic())

    @property
    def U(self) -> int:
        """Distinct sectors read plus distinct sectors written."""
        return self.total.sectors

    @property
    def B(self) -> int:
        """The same of each block, summed."""
        return self.total.block_sectors

    @property
    def R(self) -> int:
        """Requests of warps to device memory."""
        return self.total.requests

    @property
    def useful(self) -> float:
        """Bytes touched over the bytes of the sectors they lie in; 1.0 when nothing was touched."""
        total = self.total
        return total.bytes / (32 * total.sectors) if total.sectors else 1.0

    @property
    def request_useful(self) -> float:
        """The same of each request by itself: how coalesced the accesses are."""
        total = self.total
        return total.request_bytes / (32 * total.request_sectors) if total.request_sectors else 1.0


@dataclass(frozen=True)
class Counters:
    """What one launch did, phase by phase."""

    kernel: str
    phases: tuple[PhaseCounts, ...]

    @property
    def U(self) -> int:
        return sum(p.U for p in self.phases)

    @property
    def B(self) -> int:
        return sum(p.B for p in self.phases)

    @property
    def R(self) -> int:
        return sum(p.R for p in self.phases)

    @property
    def conflicts(self) -> int:
        return sum(p.conflicts for p in self.phases)

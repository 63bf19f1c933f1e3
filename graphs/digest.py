"""The structural digest: equal exactly for subgraphs that differ at most in extents and slots."""

from __future__ import annotations

import hashlib

from .numbering import Spelling
from .subgraph import Subgraph

DIGEST_SCHEMA = 1
"""Part of every digest: raised when canonical forms change, so that plans are never taken for another structure's."""


def structural_digest(sub: Subgraph) -> str:
    """32 hexadecimal digits of SHA-256 over operators, types, axes, access maps, constants and outputs.

    Names, node order and the exporter's spelling went with canonicalisation; extents and the values of slots stand
    beside the digest in a key. Which axes are fixed to 1 (those of no value, that bounds single out a position by) is
    structure.
    """
    owned = {axis for value in sub.values for axis in value.domain}
    spelling = Spelling({axis: str(axis) for axis in range(len(sub.extents))}, str, lambda slot: f"s{slot}", str)
    lines = [f"{DIGEST_SCHEMA} {len(sub.extents)} {len(sub.slots)} {sub.outputs}"]
    lines += [f"{axis}=1" for axis, extent in enumerate(sub.extents) if extent == 1 and axis not in owned]
    for value in sub.values:
        reads = " ".join(map(spelling.read, value.reads))
        position = "" if value.position is None else spelling.index(value.position)
        lines.append(f"{value.op} {value.dtype.value} {value.axes} {value.reduce} {reads} {value.attrs} {position}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

"""The contestants: one module each, all of one form.

A module has `prepare(task) -> Contestant` and imports its library there only. It runs in a process of its own, see
contestant.py.
"""

from __future__ import annotations

from importlib.util import find_spec

PEERS = {
    "stitched": (".peers.ours", ()),
    "unfused": (".peers.ours", ()),
    "onnxruntime": (".peers.ort", ("onnxruntime",)),
    "xla": (".peers.xla", ("jax",)),
    "inductor": (".peers.inductor", ("torch",)),
    "numpy": (".peers.plain", ("scipy",)),
}
"""Name of each contestant, its module below `benchmarks`, and the libraries that it needs."""


def missing(name: str) -> tuple[str, ...]:
    """The libraries that a contestant needs and that are not installed here."""
    return tuple(library for library in PEERS[name][1] if find_spec(library) is None)

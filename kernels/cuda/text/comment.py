"""What a plan decides, as the comment at the head of its CUDA source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....graphs.describe import describe as describe_subgraph
from ....graphs.subgraph import Subgraph
from ....search_space.describe import describe as describe_plan
from ....search_space.plan import Plan
from ..built import Launch


def comment_head(sub: Subgraph, plan: Plan, launches: Sequence[Launch] = ()) -> str:
    """Lines of comment: the subgraph, which parameter is which value, the plan, and how its kernels are launched."""
    parts = [describe_subgraph(sub), "\n".join(_parameters(sub)), describe_plan(plan)]
    if launches:
        parts.append("\n".join(_launch(launch) for launch in launches))
    return "\n".join(f"// {line}".rstrip() for line in "\n\n".join(parts).splitlines()) + "\n"


def _parameters(sub: Subgraph) -> Iterator[str]:
    for letter, values in (("x", sub.inputs), ("y", sub.outputs)):
        for number, value in enumerate(values):
            shape = ", ".join(str(extent) for extent in sub.shape(value))
            yield f"{letter}{number} = %{value} {sub.values[value].dtype.value} [{shape}]"


def _launch(launch: Launch) -> str:
    parts = [f"{launch.symbol}: {launch.blocks} blocks of {launch.threads} threads"]
    if launch.cooperative:
        parts.append("cooperative")
    if launch.shared_bytes:
        parts.append(f"{launch.shared_bytes} bytes of shared memory")
    if launch.report is not None:
        parts.append(f"{launch.report.registers} registers, {launch.resident} blocks resident per multiprocessor")
    return ", ".join(parts)

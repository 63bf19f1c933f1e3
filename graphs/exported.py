"""An exported operator that stays outside the primitives, in the form that a library runs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportedOp:
    """The payload of a library node: ONNX nodes and what is needed to make a model of them.

    nodes       serialized NodeProtos in topological order. Nearly always one.
    inputs      what the nodes call the tensors in `Node.inputs`, in the same order ("" for an absent optional one).
                Tensors that the bodies of control flow take from outside follow the operator's own. A name may repeat.
    outputs     what the nodes call the tensors in `Node.outputs`, in the same order.
    opsets      (domain, version) pairs that the model imports; the ONNX domain is "".
    ir_version  of the exported model.
    op_type     operator name, with its domain in front where it is not ONNX's ("com.example.Foo"); of the first node.
    dynamic     True when the shapes of the outputs are known only after a run. The graph's types then have a 0 for each
                unknown dimension (and shape (0,) for an unknown rank), and no node of the graph reads those tensors.
    missing     "" or why no library at hand can run it.
    """

    nodes: tuple[bytes, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: tuple[tuple[str, int], ...]
    ir_version: int
    op_type: str
    dynamic: bool = False
    missing: str = ""

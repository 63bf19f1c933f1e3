"""Exports one BERT-base encoder block from PyTorch to `bert_block.onnx`, without its weights.

usage: export_bert_block.py [OUT.onnx]      needs: torch, onnxscript (the extra `stitchtune[torch]`)

The block is the encoder layer of BERT (Devlin et al. 2018, hidden size 768, 12 heads, post-norm, exact GELU) at batch 8
and 128 tokens, with the additive mask that BERT makes of `attention_mask`. Weights become references into a file
`bert_block.weights` beside the graph, which weights.py writes.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

HIDDEN, HEADS, INNER = 768, 12, 3072
BATCH, TOKENS = 8, 128


class EncoderBlock(nn.Module):
    """Self-attention and feed-forward, each followed by a residual and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.attention_output = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, INNER)
        self.output = nn.Linear(INNER, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(BATCH, TOKENS, HEADS, HIDDEN // HEADS).transpose(1, 2)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        additive = (1.0 - attention_mask[:, None, None, :]) * -10000.0
        scores = self.heads(self.query(hidden)) @ self.heads(self.key(hidden)).transpose(-1, -2)
        weights = torch.softmax(scores / math.sqrt(HIDDEN // HEADS) + additive, dim=-1)
        context = (weights @ self.heads(self.value(hidden))).transpose(1, 2).reshape(BATCH, TOKENS, HIDDEN)
        attended = self.attention_norm(self.attention_output(context) + hidden)
        inner = nn.functional.gelu(self.intermediate(attended))
        result: Tensor = self.output_norm(self.output(inner) + attended)
        return result


def without_weights(model: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """Every float initializer with more than one element becomes a reference into `file`, in order, 64-byte aligned."""
    offset = 0
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or math.prod(tensor.dims) <= 1:
            continue
        length = 4 * math.prod(tensor.dims)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += -(-length // 64) * 64
    return model


def main(out: Path) -> None:
    inputs = (torch.zeros(BATCH, TOKENS, HIDDEN), torch.ones(BATCH, TOKENS))
    program = torch.onnx.export(
        EncoderBlock().eval(),
        inputs,
        dynamo=True,
        opset_version=18,
        input_names=["hidden", "attention_mask"],
        output_names=["encoded"],
    )
    assert program is not None
    model = without_weights(program.model_proto, f"{out.stem}.weights")
    for node in model.graph.node:
        node.ClearField("metadata_props")  # stack traces of the exporting machine
    out.write_bytes(model.SerializeToString())
    print(f"{out}: {len(model.graph.node)} nodes, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("bert_block.onnx"))

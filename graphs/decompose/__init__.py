"""Exported operators as primitives: a table of rules, grouped by family."""

from __future__ import annotations

from . import (
    activation,
    contraction,
    elementwise,
    indexing,
    loss,
    movement,
    normalisation,
    quantisation,
    reductions,
    sources,
)
from .call import Call, NotLowered, Rule

__all__ = ["LIBRARY", "NEWEST", "OLDEST", "RULES", "Call", "NotLowered", "decompose"]

OLDEST, NEWEST = 9, 25
"""Opsets whose meaning the rules know (24 and 25 add element types and Swish)."""

RULES: dict[str, Rule] = {
    **activation.RULES,
    **contraction.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **loss.RULES,
    **movement.RULES,
    **normalisation.RULES,
    **quantisation.RULES,
    **reductions.RULES,
    **sources.RULES,
}

_REASONS = {
    "attention": "Attention FlexAttention LinearAttention",
    "contraction": "MatMul Gemm MatMulInteger QLinearMatMul Det",
    "control-flow": "If Loop Scan SequenceMap",
    "convolution": "Conv ConvTranspose ConvInteger QLinearConv DeformConv CausalConvWithState Col2Im",
    "data-dependent-shape": "Compress Unique NonMaxSuppression StringSplit",
    "pooling": "MaxPool AveragePool LpPool MaxUnpool MaxRoiPool RoiAlign GlobalLpPool LRN",
    "random": "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial",
    "recurrent": "LSTM GRU RNN",
    "resampling": "Resize Upsample GridSample AffineGrid",
    "scan": "CumSum CumProd",
    "scatter": "Scatter ScatterElements ScatterND TensorScatter",
    "sequence": "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement ReverseSequence",
    "sort": "TopK",
    "spectral": "DFT STFT MelWeightMatrix HannWindow HammingWindow BlackmanWindow",
}
LIBRARY: dict[str, str] = {op: reason for reason, ops in _REASONS.items() for op in ops.split()}
"""Operators that stay library ops whatever their operands, and the reason code."""


def decompose(call: Call) -> tuple[str, ...]:
    """The tensors that the call's outputs are, computed by primitives added to its builder.

    Raises NotLowered with a reason code when the operator stays a library op, and TypeMismatch when it is bad input.
    """
    rule = RULES.get(call.op)
    if rule is None:
        raise NotLowered(LIBRARY.get(call.op, "not-lowered"))
    result = rule(call)
    return (result,) if isinstance(result, str) else result

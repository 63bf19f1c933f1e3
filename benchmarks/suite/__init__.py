"""The suite: the memory-intensive subgraphs that targets are judged by, at sizes of real models."""

from __future__ import annotations

from ...graphs.dtypes import DType
from . import normalisation, pointwise, rows
from .subject import Subject

F16, F32 = DType.F16, DType.F32

SUITE: tuple[Subject, ...] = (
    Subject("residual + layer norm", normalisation.residual_layer_norm, F32, (4096, 768), (4096, 768), (1,), 2),
    Subject("masked softmax", rows.masked_softmax, F32, (8, 12, 128, 128), (8, 12, 128, 128), (3,), 1),
    Subject("bias + GELU", pointwise.bias_gelu, F32, (1024, 3072), (1024, 3072)),
    Subject("log-softmax", rows.log_softmax, F32, (256, 30522), (256, 30522), (1,), 1),
    Subject(
        "batch norm training", normalisation.batch_norm_training, F32, (32, 64, 28, 28), (32, 64, 28, 28), (0, 2, 3), 1
    ),
    Subject("layer norm backward", normalisation.layer_norm_backward, F32, (4096, 768), (4096, 768), (1,), 2),
    Subject("Adam", pointwise.adam, F32, (1 << 22,), (1 << 20,), positive=("second", "correction", "rate")),
    Subject("cross-entropy", rows.cross_entropy, F32, (1024, 32000), (256, 32000), (1,), 1),
    Subject("cross-entropy backward", rows.cross_entropy_backward, F32, (1024, 32000), (256, 32000), (1,), 1),
    Subject("DIEN attention", rows.dien_attention, F32, (256, 100, 36), (256, 100, 36), (1, 2), 1),
    Subject("GRU gates", pointwise.gru_gates, F32, (1024, 1024), (512, 1024)),
    Subject("LSTM gates", pointwise.lstm_gates, F32, (1024, 1024), (512, 1024)),
    Subject("RMSNorm + rotary", normalisation.rms_norm_rotary, F16, (4, 2048, 32, 128), (2, 512, 32, 128), (3,), 1),
    Subject("SwiGLU", pointwise.swiglu, F16, (2048, 11008), (512, 11008)),
    Subject("group norm", normalisation.group_norm, F32, (16, 32, 8, 32, 32), (16, 32, 8, 32, 32), (2, 3, 4), 1),
    Subject("column sum", rows.column_sum, F32, (16384, 1024), (16384, 1024)),
    Subject("softmax 750000x32", rows.softmax, F32, (750_000, 32), (93_750, 32), (1,), 1),
    Subject("softmax 64x30000", rows.softmax, F32, (64, 30_000), (64, 30_000), (1,), 1),
    Subject("softmax 2x2097152", rows.softmax, F32, (2, 2_097_152), (2, 2_097_152), (1,), 1),
)
"""In the order in which tables show them. Emulated sizes keep rows as long as they are, and enough of them that a large
device would not split them where it does not split the whole."""


def subject(name: str) -> Subject:
    """Raises KeyError, with the names there are, for another name."""
    for one in SUITE:
        if one.name == name:
            return one
    raise KeyError(f"{name!r} is not in the suite: {', '.join(s.name for s in SUITE)}")

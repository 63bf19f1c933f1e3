"""ONNX Runtime on the exported operators, so that its own fused forms apply."""

from __future__ import annotations

import time
from typing import Any

from numpy.typing import NDArray

from ..task import Contestant, Task


class Ort:
    """Kernel times bind inputs and outputs to ONNX Runtime's own arrays."""

    def __init__(self, task: Task) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.log_severity_level = 3
        if not (task.model or task.path):
            raise ValueError("the subgraph cannot be cut out of the exported graph")
        for name, size in task.dims:
            options.add_free_dimension_override_by_name(name, size)
        model = task.model or task.path
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.feeds = {i.name: a for i, a in zip(self.session.get_inputs(), task.feeds, strict=True)}
        self.binding = self.session.io_binding()
        for name, array in self.feeds.items():
            self.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        kept = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in self.outputs()]
        for output, value in zip(self.session.get_outputs(), kept, strict=True):
            self.binding.bind_ortvalue_output(output.name, value)

    def outputs(self) -> list[NDArray[Any]]:
        return list(self.session.run(None, self.feeds))

    def kernel(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - started

    def call(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            self.session.run(None, self.feeds)
        return time.perf_counter() - started


def prepare(task: Task) -> Contestant:
    return Ort(task)

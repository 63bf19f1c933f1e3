"""Library ops through ONNX Runtime's Python package: without a compiler, for results of unknown shape, and on CUDA."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from ..graphs.dtypes import DType, from_numpy
from ..graphs.ir import Node
from .library import LibraryError, one_line, payload
from .onnx_model import element_type, model_bytes

Array = NDArray[Any]
Bound = tuple[DType, tuple[int, ...], int]
"""A tensor in device memory: its type, shape and address."""

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
"""What ONNX Runtime calls its devices."""


class Session:
    """A library node in a session of its own, without threads that spin.

    `given` says which inputs a run brings, by name, with their types. Raises LibraryError when ONNX Runtime cannot run
    it.
    """

    def __init__(self, node: Node, given: Mapping[str, DType], provider: str = CPU) -> None:
        import onnxruntime

        op = payload(node)
        self._title = node.origin or op.op_type
        if op.missing:
            raise LibraryError(f"{self._title}: {op.missing}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = list(dict.fromkeys((provider, CPU)))  # ONNX Runtime's CPU kernels do what the other lacks
        with self._refusals():
            self._session = onnxruntime.InferenceSession(model_bytes(op, given, {}), options, providers)

    def run(self, given: Mapping[str, Array]) -> list[Array]:
        """The outputs, absent ones left out. Raises LibraryError."""
        with self._refusals():
            found: list[Array] = self._session.run(None, given)
        return found

    def run_in_place(
        self, inputs: Mapping[str, Bound], outputs: Mapping[str, Bound], index: int = 0, kind: str = "cuda"
    ) -> None:
        """Runs on memory of device `index` of a kind ("cuda", "cpu") and waits for the end. Raises LibraryError."""
        binding = self._session.io_binding()
        for name, (dtype, shape, address) in inputs.items():
            binding.bind_input(name, kind, index, element_type(dtype), shape, address)
        for name, (dtype, shape, address) in outputs.items():
            binding.bind_output(name, kind, index, element_type(dtype), shape, address)
        with self._refusals():
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        failures = (state.Fail, state.InvalidGraph, state.InvalidArgument, state.NotImplemented, state.RuntimeException)
        try:
            yield
        except failures as error:
            raise LibraryError(f"{self._title}: {one_line(str(error).encode())}") from error


def run_library(node: Node, inputs: Sequence[Array | None]) -> list[Array]:
    """The outputs of a library node, absent ones left out. Raises LibraryError when ONNX Runtime cannot run it."""
    names = payload(node).inputs
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    return Session(node, {name: from_numpy(array.dtype) for name, array in given.items()}).run(given)


@functools.cache
def cuda_provider() -> bool:
    """True when the installed ONNX Runtime was built for CUDA (package onnxruntime-gpu)."""
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()

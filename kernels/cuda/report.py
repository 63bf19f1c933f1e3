"""The assembler's report (ptxas -v), as NVRTC's log holds it: what each kernel needs of the device."""

from __future__ import annotations

import re

from .built import Report

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(log: str) -> dict[str, Report]:
    """The report of every entry function by its symbol, in the log's order.

    Functions that are called rather than inlined have properties of their own, which are not a kernel's; what they need
    is in the registers and the stack of the kernels that call them. Raises ValueError when an entry lacks its figures.
    """
    reports: dict[str, Report] = {}
    entry = function = ""
    memory: dict[str, tuple[int, int, int]] = {}
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry = function = found[1]
        elif found := _PROPERTIES.search(line):
            function = found[1]
        elif found := _MEMORY.search(line):
            memory[function] = (int(found[1]), int(found[2]), int(found[3]))
        elif entry and (found := _REGISTERS.search(line)):
            if entry not in memory:
                raise ValueError(f"the assembler's report says nothing of the stack of {entry}")
            shared = _SHARED.search(line)
            reports[entry] = Report(int(found[1]), *memory[entry], int(shared[1]) if shared else 0)
            entry = ""
    return reports

"""The assembler's report (ptxas -v), as NVRTC's log holds it: what each kernel needs of the device."""

from __future__ import annotations

import re

from .built import Report

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(log: str) -> dict[str, Report]:
    """The report of every entry function by its symbol, in the log's order.

    Functions that are called rather than inlined have properties of their own, which are not a kernel's: what they need
    is in its registers and in its cumulative stack. Raises ValueError when an entry lacks its figures.
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
            stack, stores, loads = memory[entry]
            deepest = max(stack, _number(_CUMULATIVE, line))
            reports[entry] = Report(int(found[1]), deepest, stores, loads, _number(_SHARED, line))
            entry = ""
    return reports


def _number(pattern: re.Pattern[str], line: str) -> int:
    found = pattern.search(line)
    return int(found[1]) if found else 0

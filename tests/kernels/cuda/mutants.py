"""Emitted CUDA text with one thing wrong: each mutant deletes or alters one barrier, guard, initial value or stride.

Every mutant comes with a probe: the unaltered text, which evaluates the altered expression beside the old one and notes
whether they ever differ. A run in which they never do is the run of the mutant, step by step: at its shapes the mutant
means the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`source` differs from the original in `line` (from 1), where `old` became `new`.

    kind    what was altered: "grid barrier", "block barrier", "warp synchronisation", "guard", "initial value",
            "stride", "shuffle", "slot"
    probe   the original with both expressions compared; "" where there is no expression to compare
    """

    kind: str
    line: int
    old: str
    new: str
    source: str
    probe: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind}, line {self.line}: `{self.old}` -> `{self.new}`"


def mutants(source: str) -> list[Mutant]:
    """All mutants of a source, in order of its lines."""
    lines = source.splitlines()
    integers = _integer_names(source)
    found = []
    head = False
    for number, line in enumerate(lines):
        head = (head and not lines[number - 1].endswith(") {")) or line.startswith("extern")
        if head or line.lstrip().startswith(("//", "#")):
            continue
        for kind, start, end, new, probe in _alterations(line, integers):
            altered = line[:start] + new + line[end:]
            if altered == line:
                continue
            text = _with_line(lines, number, altered)
            watched = _with_line(lines, number, probe) if probe else ""
            found.append(Mutant(kind, number + 1, line[start:end].strip() or line.strip(), new, text, watched))
    return found


_Alteration = tuple[str, int, int, str, str]
"""Kind, the span of the line, what stands there instead, the probe's line."""


def _alterations(line: str, integers: frozenset[str]) -> Iterator[_Alteration]:
    yield from _synchronisations(line)
    yield from _guards(line, integers)
    yield from _bounds(line, integers)
    yield from _initial_values(line)
    yield from _steps(line)
    yield from _multipliers(line)
    yield from _exchanges(line)


_SYNCS = {
    "st_sync_grid(barrier);": ("grid barrier", ("", "st_sync_block();")),
    "st_sync_block();": ("block barrier", ("", "st_sync_warp();")),
    "st_sync_warp();": ("warp synchronisation", ("",)),
}


def _synchronisations(line: str) -> Iterator[_Alteration]:
    text = line.strip()
    if text in _SYNCS:
        kind, instead = _SYNCS[text]
        for new in instead:
            yield kind, line.index(text), len(line), new, ""


def _guards(line: str, integers: frozenset[str]) -> Iterator[_Alteration]:
    """A condition that always holds."""
    spans = []
    if match := re.search(r"\bif \((?:const int(?:64_t)? block = st_block\(\); )?(.*)\) \{", line):
        spans.append(match.span(1))
    if match := re.search(r"\bconst bool \w+ = (.*);", line):
        spans.append(match.span(1))
    spans += [(_left(line, m.start()), m.start()) for m in re.finditer(r" \? ", line)]
    for start, end in spans:
        if _is_index(line[start:end], integers):
            yield "guard", start, end, "true", _same(line, start, end, "true")
    for match in re.finditer(r"\bst_min(?:<\w+>)?\(", line):  # where a tile or a range ends, or the last position
        comma = _right(line, match.end())
        end = _right(line, comma + 2)
        start, kept = match.start(), line[match.end() : comma]
        if _is_index(line[match.end() : end], integers):
            yield "guard", start, end + 1, f"({kept})", _same(line, start, end + 1, f"({kept})")


def _bounds(line: str, integers: frozenset[str]) -> Iterator[_Alteration]:
    """One element more, one less."""
    for match in re.finditer(r" (<|<=|>=) ", line):
        start, end = _left(line, match.start()), _right(line, match.end())
        old = line[start:end]
        if " ? " in old or not _is_index(old, integers):
            continue
        left, right = line[start : match.start()], line[match.end() : end]
        more = {"<": f"{left} <= {right}", "<=": f"{left} < {right}", ">=": f"{left} > {right}"}[match[1]]
        less = {"<": f"{left} + 1 < {right}", "<=": f"{left} - 1 <= {right}", ">=": f"{left} + 1 >= {right}"}[match[1]]
        for new in (more, less):
            yield "guard", start, end, new, _same(line, start, end, new)


_WRONG = {
    "0.0f": "1.0f",
    "0.0": "1.0",
    "0": "1",
    "0u": "1u",
    "0ll": "1ll",
    "1.0f": "2.0f",
    "1.0": "2.0",
    "1": "2",
    "-ST_INFINITY": "ST_INFINITY",
    "ST_INFINITY": "-ST_INFINITY",
    "true": "false",
    "false": "true",
    "-0x7fffffff - 1": "0x7fffffff",
    "2147483647": "-2147483647",
}
"""Initial values of accumulators and identities of reductions, and values that are none."""


def _initial_values(line: str) -> Iterator[_Alteration]:
    forms = (
        r"^\s*(?:float|double|int|int64_t|unsigned|uint64_t|bool|uint8_t) \w+ = (.+);$",
        r"^\s*\w+\[[^\]]*\] = (.+);$",
        r" \? .* : (.+);$",
        r"^\s*st_shared_store\(\w+, .*, ([-\w.]+)\);$",
    )
    for form in forms:
        if (match := re.search(form, line)) and match[1] in _WRONG:
            start, end = match.span(1)
            yield "initial value", start, end, _WRONG[match[1]], _same(line, start, end, _WRONG[match[1]])


def _steps(line: str) -> Iterator[_Alteration]:
    match = re.search(r"for \(.*; (\w+) < (.*); (?:\w+ \+= (.+)|\+\+\w+)\) \{", line)
    if not match:
        return
    name, stop, step = match[1], match[2], match[3]
    if step is None:
        start, step = line.index(f"++{name}"), "1"
        end = start + len(f"++{name}")
    else:
        start = match.start(3) - len(f"{name} += ")
        end = match.end(3)
    altered = [f"2 * {step}"]
    if step.isdigit() and int(step) > 1:
        altered.append(str(int(step) // 2))
    elif not step.isdigit():
        altered.append("1")
    for new in altered:
        goes_on = f"({name} + {step} < {stop} || {name} + {new} < {stop})"
        probe = f"{line[:start]}st_same(false, {goes_on}), {name} += {step}{line[end:]}"
        yield "stride", start, end, f"{name} += {new}", probe


def _multipliers(line: str) -> Iterator[_Alteration]:
    """Of index arithmetic: * N, and / N and % N, with which threads and tasks are told apart."""
    for match in re.finditer(r" ([*/%]) (?:uint32_t\()?(\d+)(?=u?(?![\w.]))", line):
        factor = int(match[2])
        if factor < 2:
            continue
        start, end = match.span(2)
        behind = end + (line[match.start() : start].endswith("("))
        new = str(factor + 1 if match[1] == "*" else 2 * factor)
        left, right = _left(line, match.start()), _right(line, behind)
        whole = line[left:start] + new + line[end:right]
        yield "stride", start, end, new, _same(line, left, right, whole)


def _exchanges(line: str) -> Iterator[_Alteration]:
    if match := re.search(r"st_shuffle_xor\(\w+, (\d+)\)", line):
        new = "2" if match[1] == "1" else str(int(match[1]) // 2)
        yield "shuffle", *match.span(1), new, _same(line, *match.span(1), new)
    if (match := re.search(r"ST_SHARED\(\w+, (\d+)\)", line)) and match[1] != "0":
        yield "slot", *match.span(1), "0", ""


# --- reading the text


def _integer_names(source: str) -> frozenset[str]:
    """Names of index variables and of conditions on them, so that comparisons of data are left alone."""
    declared = re.findall(r"\b(?:const )?(?:int|int64_t|bool|unsigned|uint32_t) (\w+)\b", source)
    floats = set(re.findall(r"\b(?:const )?(?:float|double) (\w+)\b", source))
    return frozenset(declared) - floats | {"st_block", "st_thread", "st_grid", "int", "int64_t", "uint32_t"}


def _is_index(text: str, integers: frozenset[str]) -> bool:
    names = set(re.findall(r"\b[A-Za-z_]\w*", text)) - {"true", "false"}
    return bool(names) and names <= integers | {"st_min"} and "." not in text


def _left(line: str, at: int) -> int:
    """Where the expression begins that ends before `at`: behind the bracket, comma, `=` or `;` that encloses it."""
    depth = 0
    while at > 0:
        c = line[at - 1]
        depth += (c in ")]") - (c in "([")
        opened = depth < 0
        between = depth == 0 and (c in ",;{" or (c == "=" and line[at - 2] not in "<>=!" and line[at : at + 1] != "="))
        logical = depth == 0 and line[at - 2 : at] in ("&&", "||")
        if opened or between or logical:
            break
        at -= 1
    while line[at] == " ":
        at += 1
    return at if not line[at:].startswith("return ") else at + 7


def _right(line: str, at: int) -> int:
    """Where the expression ends that goes on from `at`."""
    depth = 0
    while at < len(line):
        c = line[at]
        depth += (c in "([") - (c in ")]")
        ends = c in ",;" or line[at : at + 4] in (" && ", " || ") or line[at : at + 3] in (" ? ", " : ")
        if depth < 0 or (depth == 0 and ends):
            break
        at += 1
    return at


def _same(line: str, start: int, end: int, new: str) -> str:
    return f"{line[:start]}st_same({line[start:end]}, {new}){line[end:]}"


def _with_line(lines: list[str], number: int, text: str) -> str:
    return "\n".join([*lines[:number], text, *lines[number + 1 :], ""])

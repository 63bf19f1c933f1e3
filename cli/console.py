"""What a tuning run shows while it goes on: a live table on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from ..tuner.events import Event, Standing
from .options import duration

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

EVERY = 5.0
"""Seconds between plain lines, beside those for what begins and ends."""


class Progress:
    """Takes events and shows them; use it in a `with`, so that the table is closed whatever happens."""

    def __init__(self) -> None:
        self._standings: dict[int, Standing] = {}
        self._last = Event("device", -1, 0, 0.0)
        self._told = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """One event of `tune_graph`."""
        self._last = event
        if event.standing is not None:
            self._standings[event.index] = event.standing
        if self._live is None:
            self._line(event)

    def _line(self, event: Event) -> None:
        now = time.monotonic()
        if event.doing in _BEGINS_OR_ENDS or now - self._told >= EVERY:
            self._told = now
            print(plain(event), file=sys.stderr, flush=True)

    def _table(self) -> Table:
        from rich.table import Table

        last = self._last
        table = Table(box=None, title=_head(last), title_justify="left", pad_edge=False)
        for name in ("", "subgraph", "times", "trials", "unfused", "best", "speed-up", "of limit", "failures", ""):
            table.add_column(name, justify="left" if name in ("subgraph", "failures", "") else "right")
        for index, one in sorted(self._standings.items()):
            table.add_row(
                ">" if index == last.index else "",
                f"{index + 1} {one.label}",
                f"{one.occurrences}",
                f"{one.trials}",
                duration(one.unfused),
                f"{duration(one.best)}{' predicted' if one.predicted else ''}",
                _times(one.speedup),
                _share(one),
                failures(one.failures),
                one.stop,
            )
        return table


_BEGINS_OR_ENDS = ("device", "inputs", "found", "confirming", "finished", "stopped")


def _head(event: Event) -> str:
    where = f"subgraph {event.index + 1} of {event.total}, " if event.index >= 0 else ""
    what = f"{_DOING[event.doing]}{f': {event.message}' if event.message else ''}"
    return f"{where}{what}, {max(0.0, event.left):.0f} s left"


_DOING = {
    "device": "measuring the device",
    "inputs": "recording inputs",
    "found": "plan found",
    "compiling": "compiling",
    "measuring": "measuring",
    "measured": "measured",
    "confirming": "confirming",
    "finished": "finished",
    "stopped": "stopped",
}


def plain(event: Event) -> str:
    """An event as one line."""
    one = event.standing
    if one is None:
        return _head(event)
    best = f"best {duration(one.best)}{' (predicted)' if one.predicted else ''}"
    if one.speedup is not None:
        best += f" ({_times(one.speedup)} over unfused, {_share(one)} of the bandwidth limit)"
    lost = failures(one.failures)
    parts = [f"{one.label}", f"{one.trials} trials", best]
    parts += [f"failures: {lost}"] if lost else []
    parts += [f"stopped by {one.stop}"] if one.stop and event.doing == "finished" else []
    return f"{_head(event)}: {', '.join(parts)}"


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.2f}x"


def _share(one: Standing) -> str:
    return "-" if not one.best else f"{100 * one.limit / one.best:.0f} %"


def failures(counts: tuple[tuple[str, int], ...]) -> str:
    """Failures by cause, commonest first."""
    return ", ".join(f"{count} {cause}" for cause, count in Counter(dict(counts)).most_common())

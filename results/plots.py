"""The figures of a report, each a function from frames to a figure (None when there is nothing to draw).

Drawn without pyplot: no display, and no figure outlives its caller.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..search_space.describe import SCHEMES
from ..search_space.target import DeviceModel
from . import units

BLUE, GREY, AMBER, RED, GREEN, INK = "#1764ab", "#8b95a5", "#d08700", "#c0392b", "#1a8a5a", "#252b37"
MAX_ROWS = 60
"""Subgraphs in one figure; the CSV files have all."""
DPI = 144

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#c3c9d3",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8ebf0",
    "grid.linewidth": 0.8,
    "xtick.color": "#5b6472",
    "ytick.color": "#5b6472",
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
}


@mpl.rc_context(_STYLE)
def to_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def _axes(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$")


def _label(row: Any) -> str:
    name = row.label if len(row.label) <= 44 else row.label[:43] + "…"
    return _plain(name + (f"  ×{row.occurrences}" if row.occurrences > 1 else ""))


_TIME = FuncFormatter(lambda value, _: units.tick(units.seconds(value)))
_RATIO = FuncFormatter(lambda value, _: f"{value:g}×")
_BYTES = FuncFormatter(lambda value, _: units.tick(units.nbytes(value)))
_RATE = FuncFormatter(lambda value, _: units.tick(units.rate(value)))


def _log(axes: Axes, which: str, formatter: FuncFormatter) -> None:
    """A logarithmic axis labelled at 1, 10, 100, and at 2 and 5 between them where it is short."""
    axis: Any = {"x": axes.xaxis, "y": axes.yaxis}[which]
    low, high = (axes.get_xlim, axes.get_ylim)[which == "y"]()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200 * low else (1.0,), numticks=12))
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())


@mpl.rc_context(_STYLE)
def progress(points: pd.DataFrame, title: str = "Time of all memory-intensive subgraphs, best so far") -> Figure | None:
    """Best-so-far of a whole graph against tuning time, from `searches.progress`."""
    if len(points) < 2:
        return None
    figure, axes = _axes(7.2, 3.4, title)
    unfused = float(points["unfused"].iloc[0])
    last = float(points["seconds"].iloc[-1])
    end = float(points["elapsed"].max()) or 1.0
    axes.step(points["elapsed"], points["seconds"], where="post", color=BLUE, linewidth=2)
    axes.fill_between(points["elapsed"], points["seconds"], step="post", color=BLUE, alpha=0.08, linewidth=0)
    axes.axhline(unfused, color=GREY, linestyle=(0, (4, 3)), linewidth=1.2)
    axes.annotate(f"unfused {units.seconds(unfused)}", (end, unfused), (0, 4), ha="right", **_POINTS, color="#5b6472")
    text = f"{units.seconds(last)}, {units.ratio(unfused / last)} faster" if last < unfused else units.seconds(last)
    axes.annotate(text, (end, last), (0, -6), ha="right", va="top", **_POINTS, color=BLUE, weight="bold")
    axes.set(xlabel="tuning time (s)", ylim=(0, unfused * 1.12), xlim=(0, end * 1.01))
    axes.yaxis.set_major_formatter(_TIME)
    axes.xaxis.set_major_locator(MaxNLocator(8))
    return figure


_POINTS: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5}


_LEADER: Any = {"arrowstyle": "-", "color": "#c3c9d3", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}


@mpl.rc_context(_STYLE)
def searches(curves: pd.DataFrame, names: dict[str, str]) -> Figure | None:
    """Speed-up over unfused so far against measurements, one line a subgraph, from `searches.curves` of one run."""
    drawn = curves[curves["ratio"].notna()]
    if drawn.empty or drawn["step"].max() < 2:
        return None
    figure, axes = _axes(7.2, 3.8, "Speed-up over unfused, best so far")
    lines = {str(key): group for key, group in drawn.groupby("key", sort=False)}
    steps = np.arange(1, int(drawn["step"].max()) + 1)
    table = pd.DataFrame({key: group.set_index("step")["ratio"].reindex(steps).ffill() for key, group in lines.items()})
    ends = {key: float(table[key].iloc[-1]) for key in lines}
    named = sorted(ends, key=lambda key: -ends[key])[:5]
    for key in lines:
        alpha = 0.8 if key in named else max(0.18, 0.7 / len(lines))
        axes.step(steps, table[key], where="post", color=BLUE, alpha=alpha, linewidth=1)
    middle = table.median(axis=1)
    if len(lines) > 2:
        axes.step(steps, middle, where="post", color=INK, linewidth=2)
    marks = [(ends[key], _plain(f"{names.get(key, key)[:30]}  {units.ratio(ends[key])}"), BLUE) for key in named]
    if len(lines) > 2:
        marks.append((float(middle.iloc[-1]), f"median  {units.ratio(float(middle.iloc[-1]))}", INK))
    axes.set_yscale("log", base=2)
    low, high = float(drawn["ratio"].min()), float(drawn["ratio"].max())
    axes.set(
        xlabel="measurements of a subgraph", ylim=(min(0.95, low / 1.05), max(high * 1.15, 1.3)), xlim=(1, steps[-1])
    )
    axes.yaxis.set_major_formatter(_RATIO)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    for (value, text, color), at in zip(marks, _spread_out([m[0] for m in marks], axes.get_ylim()), strict=True):
        axes.annotate(
            text, (1.0, value), (1.02, at), xycoords=axes.get_yaxis_transform(), textcoords=axes.get_yaxis_transform(),
            va="center", fontsize=8, color=color, annotation_clip=False, arrowprops=_LEADER,
        )  # fmt: skip
    return figure


def _spread_out(values: Sequence[float], limits: tuple[float, float], gap: float = 0.065) -> list[float]:
    """Places for labels beside a logarithmic axis: near their values, `gap` of the axis apart."""
    low, high = np.log(limits[0]), np.log(limits[1])
    wanted = [(float(np.log(v)) - low) / (high - low) for v in values]
    order = sorted(range(len(values)), key=lambda i: wanted[i])
    placed = dict[int, float]()
    below = -gap
    for i in order:
        placed[i] = below = max(wanted[i], below + gap)
    above = 1.0 + gap
    for i in reversed(order):
        placed[i] = above = min(placed[i], above - gap)
    return [float(np.exp(low + placed[i] * (high - low))) for i in range(len(values))]


@mpl.rc_context(_STYLE)
def comparison(subgraphs: pd.DataFrame) -> Figure | None:
    """Unfused, heuristic and the plan in use of every measured subgraph, the largest saving first."""
    rows: list[Any] = list(subgraphs[subgraphs["speedup"].notna()].head(MAX_ROWS).itertuples())
    if not rows:
        return None
    hidden = int(subgraphs["speedup"].notna().sum()) - len(rows)
    title = "Stitched against unfused, largest saving first" + (f" ({hidden} more in the CSV)" if hidden else "")
    figure, axes = _axes(8.6, 1.25 + 0.235 * len(rows), title)
    places = np.arange(len(rows))
    before, after = np.array([r.unfused for r in rows], float), np.array([r.seconds for r in rows], float)
    guess = np.array([r.heuristic for r in rows], float)
    limit = np.array([r.limit for r in rows], float)
    axes.hlines(places, np.minimum(before, after), np.maximum(before, after), color="#c3d3e6", linewidth=4, zorder=1)
    axes.scatter(limit, places, marker="|", s=60, color=GREEN, linewidth=1.6, zorder=2, label="bandwidth limit")
    axes.scatter(before, places, s=26, color=GREY, zorder=3, label="unfused")
    axes.scatter(guess, places, s=22, facecolor="white", edgecolor=AMBER, linewidth=1.3, zorder=3, label="heuristic")
    axes.scatter(after, places, s=30, color=BLUE, zorder=4, label="in use")
    axes.set_xscale("log")
    _log(axes, "x", _TIME)
    axes.set_yticks(places, [_label(r) for r in rows], fontsize=8)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    for place, row in zip(places, rows, strict=True):
        slower = row.speedup < 0.995
        axes.annotate(
            units.ratio(row.speedup), (1.01, place), xycoords=axes.get_yaxis_transform(), va="center", fontsize=8,
            color=RED if slower else BLUE if row.speedup >= 1.05 else "#5b6472", annotation_clip=False,
        )  # fmt: skip
    axes.set_xlabel("time of one run")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=8, handletextpad=0.2, columnspacing=1.2)
    axes.set_title(title, pad=26)
    return figure


@mpl.rc_context(_STYLE)
def roofline(subgraphs: pd.DataFrame, device: DeviceModel | None) -> Figure | None:
    """Bytes that must move over time, against those bytes, under the device's bandwidths."""
    drawn = subgraphs[subgraphs["seconds"].notna() & subgraphs["bytes_min"].notna()]
    if drawn.empty:
        return None
    figure, axes = _axes(7.2, 4.0, "Bandwidth reached on the bytes that must move")
    size = drawn["bytes_min"].astype(float)
    after, before = size / drawn["seconds"].astype(float), size / drawn["unfused"].astype(float)
    axes.vlines(size, before, after, color="#c3d3e6", linewidth=1.6, zorder=1)
    axes.scatter(size, before, s=20, facecolor="white", edgecolor=GREY, linewidth=1.2, zorder=2, label="unfused")
    axes.scatter(size, after, s=28, color=BLUE, zorder=3, label="in use")
    axes.set(xscale="log", yscale="log", xlabel="bytes that must move in one run")
    low, high = float(size.min()) / 2, float(size.max()) * 2
    if device is not None:
        cache = float(device.target.cache_bytes)
        roofs = (
            (low, min(high, cache), device.cache_bandwidth, "cache"),
            (max(low, cache), high, device.dram_bandwidth, "memory"),
        )
        for start, end, speed, name in roofs:
            if start < end and speed > 0:
                axes.hlines(speed, start, end, color=GREEN, linewidth=1.8)
                side = {"cache": (start, "left"), "memory": (end, "right")}[name]
                text = f"{name} {units.rate(speed)}"
                axes.annotate(
                    text, (side[0], speed), (4 if name == "cache" else -4, 4), ha=side[1], **_POINTS, color=GREEN
                )
    axes.set_xlim(low, high)
    axes.margins(y=0.12)
    _log(axes, "x", _BYTES)
    _log(axes, "y", _RATE)
    axes.legend(loc="lower right", fontsize=8.5)
    return figure


@mpl.rc_context(_STYLE)
def accuracy(measurements: pd.DataFrame, note: str = "") -> Figure | None:
    """Predicted against measured time of every plan that was measured here."""
    drawn = measurements[(measurements["status"] == "ok") & measurements["predicted"].notna()]
    drawn = drawn[(drawn["predicted"] > 0) & (drawn["origin"] == "")]
    if drawn.empty:
        return None
    figure, axes = _axes(5.6, 4.8, "Predicted against measured")
    colors = {
        "search": (BLUE, 9, 0.35),
        "heuristic": (AMBER, 22, 0.9),
        "unfused": (GREY, 22, 0.9),
        "imported": (GREEN, 22, 0.9),
    }
    for kind, (color, size, alpha) in colors.items():
        some = drawn[drawn["kind"] == kind]
        if len(some):
            axes.scatter(some["seconds"], some["predicted"], s=size, color=color, alpha=alpha, linewidth=0, label=kind)
    both = pd.concat([drawn["seconds"], drawn["predicted"]]).astype(float)
    ends = np.array([both.min() / 1.6, both.max() * 1.6])
    axes.fill_between(ends, ends / 2, ends * 2, color=GREY, alpha=0.12, linewidth=0)
    axes.plot(ends, ends, color=INK, linewidth=1)
    axes.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=tuple(ends), xlabel="measured", ylabel="predicted")
    axes.set_aspect("equal")
    for which in "xy":
        _log(axes, which, _TIME)
    axes.annotate("band: within a factor of 2" + (f"\n{note}" if note else ""), (0.97, 0.03), xycoords="axes fraction",
                  ha="right", fontsize=8, color="#5b6472")  # fmt: skip
    axes.legend(loc="upper left", fontsize=8.5)
    return figure


@mpl.rc_context(_STYLE)
def failures(statuses: pd.DataFrame) -> Figure | None:
    """How the attempts ended, from `searches.statuses`."""
    shown = statuses[~statuses["status"].isin(["ok", "predicted"])]
    if shown.empty:
        return None
    figure, axes = _axes(6.4, 1.0 + 0.3 * len(shown), "Attempts that ended without a time, by cause")
    colors = [RED if fault else GREY for fault in shown["fault"]]
    bars = axes.barh(shown["status"], shown["count"], color=colors, height=0.62)
    axes.bar_label(bars, labels=[units.count(c) for c in shown["count"]], padding=4, fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.margins(x=0.1)
    axes.set_xlabel("red: a legal plan that did not hold; grey: refused or ended early by design")
    return figure


@mpl.rc_context(_STYLE)
def schemes(subgraphs: pd.DataFrame) -> Figure | None:
    """How values travel in the plans in use: uses of each scheme, and the share of subgraphs that use it."""
    planned = subgraphs[subgraphs["kernels"].notna()]
    if planned.empty:
        return None
    figure, axes = _axes(6.4, 2.7, "Stitching schemes in the plans in use")
    weight = planned["occurrences"].astype(float)
    uses = [float((planned[name].astype(float) * weight).sum()) for name in SCHEMES]
    holders = [int((planned[name].astype(float) > 0).sum()) for name in SCHEMES]
    bars = axes.barh(SCHEMES, uses, color=BLUE, height=0.62)
    texts = [f"{units.count(u)}  in {h} of {len(planned)} subgraphs" for u, h in zip(uses, holders, strict=True)]
    axes.bar_label(bars, labels=texts, padding=4, fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.42)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("uses per run of the graph")
    return figure

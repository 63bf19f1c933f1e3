"""Numbers as people read them: times, bytes, rates and ratios with units, for tables, plots and pages."""

from __future__ import annotations

import math


def seconds(value: float | None) -> str:
    """A time with three significant digits: "1.23 ms"; "–" for none."""
    return _scaled(value, 1e-9, ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (math.inf, "s", 1.0)))


def nbytes(value: float | None) -> str:
    """A size in decimal units: "6.29 MB"; "–" for none."""
    return _scaled(value, 1.0, ((1e3, "B", 1.0), (1e6, "kB", 1e-3), (1e9, "MB", 1e-6), (math.inf, "GB", 1e-9)))


def rate(value: float | None) -> str:
    """Bytes per second: "18.2 GB/s"; "–" for none."""
    text = nbytes(value)
    return text if text == "–" else text + "/s"


def ratio(value: float | None) -> str:
    """A speed-up: "1.85×"; "–" for none."""
    return "–" if _absent(value) else f"{_digits(float(value or 0.0))}×"


def percent(value: float | None) -> str:
    return "–" if _absent(value) else f"{100 * float(value or 0.0):.0f} %"


def count(value: float | None) -> str:
    """A whole number with thin spaces between thousands: "12 345"; "–" for none."""
    return "–" if _absent(value) else f"{float(value or 0.0):,.0f}".replace(",", "\u2009")


def tick(text: str) -> str:
    """A number of an axis: "50.0 ms" as "50 ms", "0 ns" as "0"."""
    number, _, unit = text.partition(" ")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return "0" if number == "0" else f"{number} {unit}".strip()


def _absent(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.2e}")))))
    return f"{value:.{places}f}"


def _scaled(value: float | None, least: float, scales: tuple[tuple[float, str, float], ...]) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    size = float(f"{abs(value):.2e}")  # so that 999.9 µs becomes 1.00 ms
    unit, factor = next((unit, factor) for end, unit, factor in scales if size < end)
    if size < least or unit == "B":
        return f"{value * factor:.0f} {unit}"
    return f"{_digits(value * factor)} {unit}"

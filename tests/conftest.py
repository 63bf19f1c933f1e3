"""Summaries that tests leave in their `summary` property are printed at the end, from xdist's workers as well."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == "summary" and report.when == "call":
                    terminalreporter.section(report.nodeid)
                    terminalreporter.line(text)

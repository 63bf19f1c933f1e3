"""The verb `doctor`: what this machine has, what is missing, and what to install."""

from __future__ import annotations

import click


@click.command()
def doctor() -> None:
    """Compilers, devices, versions and paths; what is missing and what to install."""

"""What the tests of CUDA kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled units, the emulator's runtime among them."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder

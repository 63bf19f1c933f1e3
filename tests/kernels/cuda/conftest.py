"""What the tests of CUDA kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.cuda.on_devices import shared_cache


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled units, the emulator's runtime among them."""
    return shared_cache(tmp_path_factory)

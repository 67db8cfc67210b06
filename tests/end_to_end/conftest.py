"""Shared fixtures of end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.preparing.prepared import make_messy


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """Every kind of input that there is."""
    return make_messy(tmp_path / "source")

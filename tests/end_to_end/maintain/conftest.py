"""The dataset that the tests of a module share, brought back to its first state for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.preparing.runs import Saved


@pytest.fixture
def source(saved: Saved) -> Path:
    return saved.bring_back() / "source"


@pytest.fixture
def root(source: Path) -> Path:
    return source.with_name("root")

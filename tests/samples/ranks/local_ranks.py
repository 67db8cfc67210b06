"""A training by two ranks of the local launcher, which trainings under other launchers must equal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import settings, train

COUNTS = {"train": {"a": 30, "b": 15, "c": 5}, "validation": {"a": 6, "b": 4, "c": 3}}
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"dropout": 0.0},
    run={"epochs": 3, "checkpoint_every_steps": 3, "trace_records": True, "deterministic": True},
)


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A root with a dataset, and the result of the training."""
    root = tmp_path_factory.mktemp("local")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    return root, train(root, "colours", {**CONFIG, "ranks": {"workers": "2"}})


@pytest.fixture
def root(local: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A root with the same dataset and no runs."""
    shutil.copytree(local[0] / "datasets", tmp_path / "datasets")
    return tmp_path

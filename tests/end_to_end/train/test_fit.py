"""``model.fit`` on ``open_dataset(...).tf(...)``, the code that tutorials show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.training.tutorial_fit import fit

COUNTS = {"train": {"a": 30, "b": 21}, "validation": {"a": 6, "b": 5}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    publish(folder, coloured(COUNTS, size=(8, 8)), name="set")
    return folder


def test_fit_on_one_device(root: Path) -> None:
    pytest.importorskip("tensorflow")
    assert fit(str(root)) == 1.0


def test_fit_under_a_mirrored_strategy(root: Path) -> None:
    """51 records by 8, so the last batch of an epoch is not full; two logical devices share each batch."""
    argv = [sys.executable, "-m", "tests.samples.training.tutorial_fit", str(root), "2"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert float(done.stdout.splitlines()[-1]) == 1.0

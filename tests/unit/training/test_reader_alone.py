"""Reading a dataset from Python loads nothing but what the reader needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.installations import ROOT

READ = """
import json, sys
import shardmill

dataset = shardmill.open_dataset("sample", root=sys.argv[1])
images, labels = next(iter(dataset.batches("train", batch_size=4)))
assert images.shape[0] == len(labels) == 4
assert "pyarrow.compute" not in sys.modules  # dear, and not needed
names = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps(sorted(name for name in names if not name.startswith("_"))))
"""
# What the reader needs, and what these libraries load themselves.
NEEDED = {
    "PIL", "annotated_types", "cv2", "google", "google_crc32c", "isal", "numpy", "psutil", "pyarrow",
    "pydantic", "pydantic_core", "shardmill", "simplejpeg", "typing_extensions", "typing_inspection",
}  # fmt: skip
# pyarrow loads them where they are installed.
LOADED_BY_OTHERS = {"cloudpickle", "cython_runtime", "dateutil", "six"}


def test_the_reader_loads_what_it_needs_alone(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"cat": 5, "dog": 5}}))
    done = subprocess.run(
        [sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert loaded - LOADED_BY_OTHERS <= NEEDED
    assert {"numpy", "pyarrow", "shardmill"} <= loaded


# What the tests of the reader and of the catalog need of Linux alone: nothing.
ELSEWHERE = ROOT / "tests" / "samples" / "other_system"
FEW = [
    "tests/unit/infra/storage/test_locking.py",
    "tests/unit/training/reading/staging/test_staging.py",
    "tests/unit/training/reading/test_shard_reader.py",
]
MORE = [
    "tests/unit/infra/dataset",
    "tests/unit/infra/storage",
    "tests/unit/training/order",
    "tests/unit/training/reading",
]
LOOK = """
import os, pathlib
assert not hasattr(os, "sched_getaffinity")
assert not pathlib.Path("/proc/self/status").exists()
for opened in (open, os.listdir, os.stat):
    try:
        opened("/proc/self")
    except FileNotFoundError:
        continue
    raise AssertionError(opened)
"""


@pytest.mark.parametrize("tests", [FEW, pytest.param(MORE, marks=pytest.mark.slow)])
def test_the_reader_needs_nothing_of_linux_alone(tests: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": str(ELSEWHERE)}
    subprocess.run([sys.executable, "-c", LOOK], env=env, timeout=60, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    done = subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]

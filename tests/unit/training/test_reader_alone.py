"""Reading a dataset from Python loads nothing but what the reader needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.samples.datasets.published import coloured, publish

READ = """
import json, sys
import shardmill

dataset = shardmill.open_dataset("sample", root=sys.argv[1])
images, labels = next(iter(dataset.batches("train", batch_size=4)))
assert images.shape[0] == len(labels) == 4
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

"""``open_dataset(...).jax``: arrays on devices, divided as asked, of one process or several."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardmill import Dataset, open_dataset
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 31, "b": 18}, "test": {"a": 5, "b": 3}}
OPTIONS: dict[str, Any] = {"batch_size": 12, "image_size": 24, "seed": 5, "balance": "sqrt"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    publish(folder, coloured(COUNTS, size=(30, 40)), name="set", shards_per_split=3)
    return folder


def test_arrays_lie_where_they_are_asked_for(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.samples.training.jax_devices", root],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["padded"] == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert facts["partial"] == [5, 3]
    assert facts["whole"] == [[2, 30, 40, 3], [[30, 40], [30, 40]]]
    assert facts["repr"].startswith("<6 batches of 8: set@1 train, epoch 0, on ")
    assert facts["loaded"] == [], "a reader of JAX needs no other framework"
    for name, words in {
        "no sharding": "'data' is no sharding",
        "uneven": "does not fit arrays [6, 16, 16, 3]",
        "uneven rows": "does not fit arrays [6, 16, 16, 3]",
        "partial": "a smaller batch cannot be divided among devices (give 'pad'",
        "rank": "rank 3 of 3",
    }.items():
        assert words in facts["refusals"][name]


PARTIAL = "a smaller batch cannot be divided among devices"
# What cannot be had with a mesh over several processes, and what is said of it.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rank": 0, "num_ranks": 1}, "rank 0 of 1, shares = None is asked for (leave out rank"),
    ({"last_batch": "partial"}, PARTIAL),
    ({"image_size": None, "augment": False}, "the sharding divides them among processes"),
    ({"batch_size": 13}, "does not fit arrays [13]"),
]
DEALT = "which are not one part of equal ones (let the first axis of the mesh follow the processes"


def read_by_processes(root: Path, count: int, begin: dict[str, Any], steps: int) -> list[Any]:
    """Read steps in so many processes of JAX; return what each says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    asked = {"coordinator": coordinator, "num_processes": count, "begin": begin, "steps": steps}
    asked |= {"root": str(root), "dataset": "set", "options": OPTIONS}
    asked["wrong"] = [wrong for wrong, _ in WRONG]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.samples.training.jax_process", json.dumps(asked | {"process": n})],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(count)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * count
    answers = [json.loads(each) for each in said]
    for _, refused in answers:
        for words, said_of_it in zip([DEALT, PARTIAL, *(words for _, words in WRONG)], refused, strict=True):
            assert words in said_of_it
    return [found for found, _ in answers]


@pytest.mark.parametrize(("count", "step"), [(2, 0), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_processes_hold_the_rows_of_the_whole_step(root: Path, count: int, step: int) -> None:
    """Three processes go on where two have stopped."""
    dataset: Dataset = open_dataset("set", root=root)
    wanted = list(dataset.batches("train", epochs=2, **OPTIONS))
    assert len(wanted) == 8
    held = sorted(
        part for parts in read_by_processes(root, count, {"step": step, "epochs": 2}, 3) for part in parts
    )
    rows = OPTIONS["batch_size"] // (2 * count)  # of each of two devices
    expected = []
    for batch in wanted[step : step + 3]:
        digests = [hashlib.sha256(image.tobytes()).hexdigest() for image in batch.images]
        for start in range(0, len(batch), rows):
            part = slice(start, start + rows)
            expected.append([batch.step, start, digests[part], batch.labels[part].tolist()])
    assert held == sorted(expected)

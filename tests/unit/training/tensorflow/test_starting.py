"""The memory of GPUs as TensorFlow counts it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from shardmill.training.tensorflow import starting  # noqa: E402
from shardmill.training.tensorflow.framework import peak_device_bytes  # noqa: E402


def test_each_gpu_has_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(name=f"/device:GPU:{number}") for number in range(2)]
    counted = {"GPU:0": {"current": 5, "peak": 70}, "GPU:1": {"current": 6, "peak": 80}}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: found if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", counted.__getitem__)
    assert peak_device_bytes() == {"GPU:0": 70, "GPU:1": 80}


def test_a_machine_without_a_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    assert peak_device_bytes() == {}


@pytest.mark.parametrize(
    ("limit_bytes", "expected"), [(None, [("grow", "gpu", True)]), (3 << 30, [("limit", "gpu", [3072])])]
)
def test_a_gpu_grows_or_has_a_limit(
    limit_bytes: int | None, expected: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str, Any]] = []

    def limit(gpu: str, parts: list[Any]) -> None:
        done.append(("limit", gpu, [part.memory_limit for part in parts]))

    def grow(gpu: str, on: bool) -> None:
        done.append(("grow", gpu, on))

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu"] if kind == "GPU" else [])
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", limit)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", grow)
    starting.start(gpu_memory_limit_bytes=limit_bytes)
    assert done == expected

"""The memory of GPUs as TensorFlow counts it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")

from training.ranks.device_memory import peak_device_bytes  # noqa: E402


def test_each_gpu_has_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(name=f"/device:GPU:{number}") for number in range(2)]
    counted = {"GPU:0": {"current": 5, "peak": 70}, "GPU:1": {"current": 6, "peak": 80}}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: found if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", counted.__getitem__)
    assert peak_device_bytes() == {"GPU:0": 70, "GPU:1": 80}


def test_a_machine_without_a_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    assert peak_device_bytes() == {}

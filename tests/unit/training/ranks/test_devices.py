"""Figures of GPUs, from readings such as a driver gives."""

from __future__ import annotations

import threading

import pytest

from shardmill.training.ranks.devices import GpuReading, GpuSampler, chosen_gpus, nvml_reader


@pytest.mark.parametrize(
    ("allowed", "count", "names"),
    [
        (None, 2, ["0", "1"]),
        ("1", 2, ["1"]),
        ("GPU-8932f937, 0", 1, ["GPU-8932f937", "0"]),
        ("-1", 2, []),
        ("", 2, []),
        ("3", 2, []),
        (None, 0, []),
    ],
)
def test_the_gpus_of_a_process(allowed: str | None, count: int, names: list[str]) -> None:
    assert chosen_gpus(allowed, count) == names


def test_the_mean_use_and_the_most_memory_since_the_last_look() -> None:
    looks = iter([(0.2, 100), (0.6, 300), (0.9, 50)])

    def read() -> list[GpuReading]:
        share, memory = next(looks)
        return [GpuReading("0", share, memory), GpuReading("1", 1.0, 7)]

    sampler = GpuSampler(read)
    sampler.look()
    sampler.look()
    figures = sampler.take("rank1_")
    assert figures == {
        "rank1_gpu0_utilization": pytest.approx(0.4), "rank1_gpu0_memory_bytes": 300,
        "rank1_gpu1_utilization": 1.0, "rank1_gpu1_memory_bytes": 7,
    }  # fmt: skip
    sampler.look()
    assert sampler.take()["gpu0_memory_bytes"] == 50
    assert sampler.take() == {}


def test_a_thread_samples_until_the_end() -> None:
    looked = threading.Event()

    def read() -> list[GpuReading]:
        looked.set()
        return [GpuReading("0", 0.5, 1)]

    with GpuSampler(read, seconds=0.001) as sampler:
        assert looked.wait(timeout=60)
    assert sampler.take()["gpu0_utilization"] == 0.5


def test_without_gpus_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert nvml_reader() is None
    with GpuSampler(None) as sampler:
        sampler.look()
    assert sampler.take() == {}

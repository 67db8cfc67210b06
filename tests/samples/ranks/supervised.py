"""Supervised training by several processes, for tests: find the ranks, signal them, compare what they did."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.samples.training.rounding import apart, near
from tests.samples.training.trainer import Trainer


def rank_processes(trainer: Trainer) -> list[psutil.Process]:
    """The running ranks of a supervised training, by rank."""
    ranks = [
        child
        for child in psutil.Process(trainer.process.pid).children()
        if "shardmill.training.train_rank" in child.cmdline()
    ]
    return sorted(ranks, key=lambda process: process.pid)


def signal_rank_after(trainer: Trainer, steps: int, rank: int, number: signal.Signals) -> None:
    """Send a signal to a rank once the training has reported so many steps."""
    seen = 0
    for event in trainer.events():
        seen += event["event"] == "metrics" and event["split"] == "train"
        if seen >= steps:
            rank_processes(trainer)[rank].send_signal(number)
            return
    raise AssertionError("it ended before it was disturbed")


def weights_of(result: dict[str, Any]) -> dict[str, np.ndarray]:
    """The variables of model and optimizer in a run's last checkpoint."""
    with np.load(max((Path(result["run_dir"]) / "checkpoints").glob("step-*.npz"))) as archive:
        return {name: archive[name] for name in archive.files if name != "progress"}


def consumed_by(result: dict[str, Any]) -> bytes:
    """The records that a run consumed in each step."""
    return (Path(result["run_dir"]) / "consumed.jsonl").read_bytes()


def assert_same_training(result: dict[str, Any], expected: dict[str, Any], rel: float = 1e-4) -> None:
    """The same records in the same steps, the same weights and losses."""
    assert consumed_by(result) == consumed_by(expected)
    weights = weights_of(expected)
    assert weights
    for name, found in weights_of(result).items():
        assert found == near(weights[name], rel), name
    for row, wanted in zip(result["history"], expected["history"], strict=True):
        assert row["train"]["loss"] == near(wanted["train"]["loss"], rel)
        assert row["validation"]["loss"] == near(wanted["validation"]["loss"], 10 * rel)


def relative_distance(result: dict[str, Any], expected: dict[str, Any]) -> float:
    """The L2 distance of the weights of two runs, as a fraction of the norm of the expected ones."""
    return apart(weights_of(result), weights_of(expected))


class Progress(threading.Thread):
    """Follows the events of a training; times are on the system's monotonic clock (seconds).

    Attributes:
        steps: reports of steps.
        last_step_at: the latest of them.
        restarted_at: when the parent last began to start all ranks again.
        built_at: when ranks last had their model, and opened the records.
        is_over: the training has ended.
    """

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(daemon=True)
        self.steps = 0
        self.last_step_at = self.restarted_at = self.built_at = 0.0
        self.is_over = False
        self._trainer = trainer
        self.start()

    def run(self) -> None:
        for event in self._trainer.events():
            if event["event"] == "metrics" and event["split"] == "train":
                self.steps += 1
                self.last_step_at = time.monotonic()
            elif event["event"] == "log" and "all ranks start again" in event["message"]:
                self.restarted_at = time.monotonic()
            elif event["event"] == "log" and event["message"].startswith("reading "):
                self.built_at = time.monotonic()
        self.is_over = True


def running_ranks(trainer: Trainer) -> list[psutil.Process]:
    """The running ranks, by rank; none if the training has ended."""
    try:
        return rank_processes(trainer)
    except psutil.Error:
        return []


def recovered(progress: Progress, since: float) -> float | None:
    """Wait for the next step but two; the seconds until the first of them, None if the training ended."""
    # A step may be under way when the signal is sent: the first that is later by a second is a new one.
    while not progress.is_over:
        if progress.last_step_at > since + 1.0:
            return progress.last_step_at - since
        time.sleep(0.05)
    return None

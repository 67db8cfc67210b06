"""Supervised training by several processes, for tests: find the ranks and signal them."""

from __future__ import annotations

import signal

import psutil

from tests.samples.trainer import Trainer


def rank_processes(trainer: Trainer) -> list[psutil.Process]:
    """The running ranks of a supervised training, by rank."""
    ranks = [
        child
        for child in psutil.Process(trainer.process.pid).children()
        if "training.train_rank" in child.cmdline()
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

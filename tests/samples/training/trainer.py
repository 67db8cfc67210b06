"""Trainings for tests: processes that are started, watched and killed, or in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUICK = {
    "data": {"image_size": 16, "global_batch_size": 8},
    "augment": {"horizontal_flip": False},
    "run": {"epochs": 2, "log_every_steps": 1, "log_pictures": False},
}


def settings(**groups: dict[str, Any]) -> dict[str, Any]:
    """QUICK with some groups' keys replaced."""
    return {name: {**QUICK.get(name, {}), **groups.get(name, {})} for name in {*QUICK, *groups}}


class Trainer:
    """One child process that trains."""

    def __init__(self, root: Path, ref: str, config: dict[str, Any]) -> None:
        read, write = os.pipe()
        argv = [sys.executable, "-m", "shardmill.training.train", ref, "--json"]
        argv += ["--config-json", json.dumps(config)]
        argv += ["--root", str(root / "datasets"), "--runs", str(root / "runs")]
        self.process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[write],
            env={**os.environ, "SHARDMILL_EVENTS_FD": str(write)},
        )
        os.close(write)
        self._events = os.fdopen(read, "rb")

    def events(self) -> Iterator[dict[str, Any]]:
        """The events that the child reports, until it ends."""
        for line in self._events:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def signal_after(self, steps: int, number: signal.Signals) -> bool:
        """Send a signal once the child has reported so many steps; False where it ended before."""
        seen = 0
        for event in self.events():
            seen += event["event"] == "metrics" and event["split"] == "train"
            if seen >= steps:
                self.process.send_signal(number)
                return True
        return False

    def finish(self) -> tuple[int, str, str]:
        """Wait for the child: (exit status, standard output, standard error)."""
        for _ in self.events():
            pass
        out, err = self.process.communicate(timeout=300)
        self._events.close()
        return self.process.returncode, out.decode(), err.decode()


def train(root: Path, ref: str, config: dict[str, Any]) -> dict[str, Any]:
    """Train to the end; the result that ``--json`` printed."""
    status, out, err = Trainer(root, ref, config).finish()
    assert status == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def train_here(root: Path, ref: str, config: dict[str, Any]) -> dict[str, Any]:
    """Train to the end in this process, which has TensorFlow already; the result as ``--json`` prints it.

    For one device, and not for ``run.deterministic``, which would hold for the tests that follow.
    """
    from shardmill.training.config import TrainConfig
    from shardmill.training.train import train_dataset

    asked = TrainConfig.model_validate(config)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of its own, where warnings of Keras are no errors
        result = train_dataset(ref, asked, root=root / "datasets", runs=root / "runs")
    found: dict[str, Any] = json.loads(json.dumps(result))
    return found

"""Small training runs with PyTorch."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from shardmill.infra.errors import Cancelled
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.heartbeat import Work

MODEL = "tests.samples.models.torch_model"
SMALL = (
    "run.framework=torch", f"model.name={MODEL}", "model.dropout=0", "data.image_size=16", "data.seed=3",
    "data.global_batch_size=10", "run.epochs=2", "run.trace_records=true", "run.checkpoint_every_steps=1",
    "optimizer.learning_rate=0.01", "run.devices=one", "run.log_every_steps=2",
)  # fmt: skip


class Interrupting:
    """A heart that stops the run at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def note_step(self, step: int) -> None:
        """Do nothing: the step is not counted yet."""

    def begin_stage(self) -> None:
        """Do nothing: nobody waits for the first step of the stage."""

    def during(self, _work: Work) -> AbstractContextManager[None]:
        """Do nothing: nobody waits for the work."""
        return nullcontext()

    def beat(self, step: int | None = None) -> None:
        """Stop if the step is reached."""
        if step == self.step:
            raise Cancelled("stopped by the test")


def settings(*overrides: str) -> TrainConfig:
    """The configuration of a small run, with changes."""
    return load_settings(TrainConfig, section="train", overrides=[*SMALL, *overrides])


def consumed(run_dir: Path) -> list[tuple[int, int, list[str]]]:
    """Epoch, step and records of each step of a run."""
    lines = [json.loads(line) for line in (run_dir / "consumed.jsonl").read_text().splitlines()]
    return [(line["epoch"], line["step"], line["ids"]) for line in lines]


def weights(run_dir: Path) -> dict[str, Any]:
    """The weights of the best model of a run."""
    found: dict[str, Any] = torch.load(run_dir / "model.pt", weights_only=True)
    return found


def assert_same_model(run_dir: Path, other: Path) -> None:
    """The weights of two runs agree, but for another order of summation."""
    left, right = weights(run_dir), weights(other)
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=1e-5, msg=name)


def command(root: Path, *more: str) -> list[str]:
    """The arguments of a command that trains a small run on ``set@1``."""
    changes = [part for override in SMALL for part in ("--set", override)]
    return ["set@1", "--root", str(root), *changes, *more]

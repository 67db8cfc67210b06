"""A rank that hangs in foreign code in the middle of a step, while the other waits for it in a collective."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.models.hanging_model import HANG_AT, MARKER
from tests.samples.ranks.supervised import rank_processes
from tests.samples.training.trainer import Trainer, settings
from tests.samples.waiting import eventually

COUNTS = {"train": {"a": 30, "b": 20}, "validation": {"a": 4, "b": 3}}
RANKS = {"workers": "2"}


def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **ranks: Any) -> tuple[Trainer, Path]:
    """A training whose rank 1 hangs once, and the file that appears then."""
    marker = tmp_path / "hung"
    monkeypatch.setenv(MARKER, str(marker))
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    config = settings(
        model={"name": "tests.samples.models.hanging_model"},
        run={"checkpoint_every_steps": 2, "trace_records": True},
        ranks={**RANKS, **ranks},
    )
    return Trainer(tmp_path, "colours", config), marker


@pytest.mark.slow
def test_ranks_that_hang_in_a_collective_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, marker = hanging(tmp_path, monkeypatch)
    status, out, err = trainer.finish()
    assert status == 0, err
    assert marker.exists()
    result = json.loads(out.splitlines()[-1])
    (restart,) = result["restarts"]
    assert restart["reason"] == "silent"
    assert restart["step"] == HANG_AT - 1
    log = Path(result["run_dir"]) / "logs" / "ranks" / "rank-1.log"
    assert "in _passed_on" in log.read_text(), "the place where it hung"
    consumed = (Path(result["run_dir"]) / "consumed.jsonl").read_text().splitlines()
    assert len(consumed) == result["steps"] == 2 * 7


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_ranks_that_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    trainer, marker = hanging(tmp_path, monkeypatch, step_timeout_seconds=600.0)
    assert eventually(marker.exists)
    ranks = rank_processes(trainer)
    trainer.process.send_signal(number)
    time.sleep(1.0)
    assert trainer.process.poll() is None, "the first signal waits for a checkpoint"
    trainer.process.send_signal(number)
    status, _, _ = trainer.finish()
    assert status == (130 if number == signal.SIGINT else 75)
    assert not [rank for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]

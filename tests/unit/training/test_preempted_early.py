"""A training that the system stops before its first step says so, however it would have trained."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import Preempted
from shardmill.infra.processes.turns import TURNS_VARIABLE, Turn
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import Trainer, settings


@pytest.mark.parametrize("ranks", [{}, {"workers": 2}], ids=["alone", "with ranks"])
def test_a_training_that_waits_for_its_turn_is_preempted(
    ranks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"a": 8, "b": 8}}), name="set")
    monkeypatch.setenv(TURNS_VARIABLE, str(tmp_path / "turns.lock"))
    with Turn("another job") as turn:
        turn.take()
        trainer = Trainer(tmp_path, "set@1", settings(ranks=ranks))
        assert any(event["event"] == "waiting" for event in trainer.events())
        trainer.process.send_signal(signal.SIGTERM)
        status, _, err = trainer.finish()
    assert (status, "stopped on request" in err) == (Preempted.exit_code, True), err

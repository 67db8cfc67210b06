"""The process that an outer system knows as a rank, and that watches the process that trains."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from shardmill.infra.errors import Cancelled, Preempted
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.run.ranks import train_as_outer_rank
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import settings
from tests.samples.waiting import eventually


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Preempted), (signal.SIGINT, Cancelled)])
def test_a_stop_right_after_the_start_is_no_failure(
    tmp_path: Path, number: signal.Signals, error: type[Cancelled]
) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2, "b": 2}}))
    config = TrainConfig.model_validate(settings(model={"name": "tests.samples.models.linear_model"}))

    def has_started() -> bool:
        children = psutil.Process().children()
        return any(
            "shardmill.training.train_rank" in child.cmdline() for child in children if child.is_running()
        )

    def stop() -> None:
        assert eventually(has_started, every=0.005)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop, daemon=True).start()
    place = Cluster(("localhost:1", "localhost:2"), 0)
    with pytest.raises(error) as caught:
        train_as_outer_rank(config, version, tmp_path / "datasets", tmp_path / "run", place)
    assert type(caught.value) is error

"""The loop of a run, with a model made up."""

from __future__ import annotations

import contextlib
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardmill.training.config import TrainConfig
from shardmill.training.order import TrainingOrder
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.epochs.epoch_loop import TrainingData, resumed_loop
from shardmill.training.run.framework import Callbacks
from shardmill.training.run.stopping import StopFlag
from tests.samples.ranks.peers import Alone


def test_a_loop_that_failed_is_not_kept(tmp_path: Path) -> None:
    """The next attempt needs its memory."""
    made, stop = [], StopFlag()
    framework: Any = SimpleNamespace(ranks=Alone(), peak_device_bytes=dict)
    model: Any = SimpleNamespace(
        state=[], model_state=[], assigning=contextlib.nullcontext, callbacks=lambda *_, **__: Callbacks()
    )
    manifest = SimpleNamespace(label_names=["a"])
    train: Any = SimpleNamespace(split=SimpleNamespace(version=SimpleNamespace(manifest=manifest)))
    order = TrainingOrder(np.zeros(12, np.int32), seed=0, global_batch_size=4)
    examples: Any = None
    data = TrainingData(examples, train, order, None)
    with pytest.raises(MemoryError):  # noqa: PT012, SIM117
        with resumed_loop(TrainConfig(), framework, model, data, tmp_path, stop, Trackers(None)) as loop:
            made.append(weakref.ref(loop))
            del loop
            raise MemoryError("too large")
    gc.collect()
    assert [loop() for loop in made] == [None]

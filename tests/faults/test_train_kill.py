"""``kill -9`` at random moments of a real training process, and the same command again.

What was consumed over all processes together, and the weights at the end, equal those of an undisturbed run.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import Trainer, settings, train

COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
STEPS_PER_EPOCH = 14
CONFIG = settings(
    data={"balance": "uniform"},
    run={
        "log_every_steps": 1,
        "checkpoint_every_steps": 4,
        "trace_records": True,
        "deterministic": True,
    },
)


def checkpoint_of(root: Path, run: str) -> dict[str, np.ndarray]:
    """The arrays of a run's last checkpoint."""
    last = max((root / "runs" / run / "checkpoints").glob("step-*.npz"))
    with np.load(last) as archive:
        return {name: archive[name] for name in archive.files if name != "progress"}


@pytest.mark.parametrize(
    ("num_kills", "epochs"),
    [
        pytest.param(2, 3, marks=pytest.mark.slow),
        pytest.param(10, 8, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_a_killed_run_goes_on_exactly(tmp_path: Path, num_kills: int, epochs: int) -> None:
    config = {**CONFIG, "run": {**CONFIG["run"], "epochs": epochs}}
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    for root in (undisturbed, disturbed):
        publish(root / "datasets", coloured(COUNTS), name="colours")
    expected = train(undisturbed, "colours", config)
    run = Path(expected["run_dir"]).name

    chance = random.Random(num_kills)
    for _ in range(num_kills):
        trainer = Trainer(disturbed, "colours", config)
        assert trainer.signal_after(chance.randint(1, 8), signal.SIGKILL), "it ended before it was killed"
        assert trainer.finish()[0] == -signal.SIGKILL
    result = train(disturbed, "colours", config)

    consumed = [root / "runs" / run / "consumed.jsonl" for root in (undisturbed, disturbed)]
    assert consumed[1].read_bytes() == consumed[0].read_bytes()
    assert len(consumed[0].read_text().splitlines()) == epochs * STEPS_PER_EPOCH
    assert result["history"] == expected["history"]
    assert result["metrics"] == expected["metrics"]
    left, right = checkpoint_of(undisturbed, run), checkpoint_of(disturbed, run)
    assert left.keys() == right.keys()
    for name in left:
        assert np.array_equal(left[name], right[name]), f"{name} differs"

"""A rank computes NaN, and its gradients spread NaN to all other ranks in the same step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.models.nan_model import MARKER, NAN_AT
from tests.samples.training.trainer import settings, train

COUNTS = {"train": {"a": 30, "b": 20}, "validation": {"a": 4, "b": 3}}


@pytest.mark.slow
def test_the_rank_that_computed_nan_is_named_and_all_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARKER, str(tmp_path / "spoiled"))
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    config = settings(
        model={"name": "tests.samples.models.nan_model"},
        # Later than NAN_AT: all ranks compute NaN by then.
        run={"log_every_steps": NAN_AT + 2, "checkpoint_every_steps": 2, "trace_records": True},
        ranks={"workers": "2"},
    )
    result = train(tmp_path, "colours", config)
    assert (tmp_path / "spoiled").exists()
    (restart,) = result["restarts"]
    assert (restart["rank"], restart["reason"]) == (1, "loss")
    assert "the loss became nan at step" in restart["message"]
    assert restart["message"].endswith("first on rank 1")
    consumed = (Path(result["run_dir"]) / "consumed.jsonl").read_text().splitlines()
    assert len(consumed) == result["steps"] == 2 * 7

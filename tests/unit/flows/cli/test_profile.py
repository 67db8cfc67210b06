"""``shardmill profile``: what it shows of the result of its job."""

from __future__ import annotations

import sys

import pytest

from shardmill.flows import cli

_RESULT = {
    "dataset": "photos",
    "version": 2,
    "image_size": 96,
    "batch_size": 64,
    "num_cpus": 2,
    "workers": [
        {"num_workers": 0, "images_per_second": 1683.0, "first_batch_seconds": 0.05},
        {"num_workers": 1, "images_per_second": 1995.0, "first_batch_seconds": 0.35},
    ],
    "proposal": {"num_workers": 1, "reason": "1,995 images/s, the fastest"},
}


def test_workers_of_a_pytorch_loader_are_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = (
        "import sys\nfrom shardmill.infra import progress\n"
        "assert '--torch' in sys.argv and 'photos' in sys.argv\n"
        f"progress.adopt_parent()\nprogress.result({_RESULT!r})"
    )
    monkeypatch.setattr("shardmill.flows.cli.runs.profile.PROFILE", (sys.executable, "-c", job))
    assert cli.run(["profile", "photos", "--torch"]) == 0
    shown = capsys.readouterr().out
    assert "photos@2: batches of 64 at 96 pixels, 2 CPUs" in shown
    assert ["1", "1,995", "0.35"] in [line.split() for line in shown.splitlines()]
    assert "Proposal: num_workers=1: 1,995 images/s, the fastest" in shown

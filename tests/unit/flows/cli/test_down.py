"""`shardmill down` waits for the end of `shardmill up`, and no longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.flows import cli


def test_it_does_not_wait_until_somebody_notices_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    program = (
        "import os; from shardmill.flows.server.running_up import up_lock\n"
        "with up_lock(process_id=os.getpid()):\n    print('held', flush=True)\n    input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as up:
        assert up.stdout is not None
        assert up.stdout.readline() == b"held\n"
        # Nobody asks for its exit status before the end of the block, as in a container without an init.
        assert cli.run(["down"]) == 0
    assert capfd.readouterr().out.startswith("Stopped; ")

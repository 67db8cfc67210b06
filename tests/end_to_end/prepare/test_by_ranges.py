"""Prepare with a plan by ranges: the same version as with a plan in one process, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import make_messy, prepared, run, stored_bytes

START_SECONDS = 120.0


def test_a_plan_by_ranges_gives_the_same_version(tmp_path: Path) -> None:
    source = make_messy(tmp_path / "source")
    roots = {ranges: tmp_path / f"by {ranges}" for ranges in (1, 3)}
    for added in ({}, {"cat/new.jpg": jpeg(950), "emu/first.jpg": jpeg(951), "dog/again.jpg": jpeg(950)}):
        write(source, added)
        for ranges, root in roots.items():
            runner = {"processes": 2, "block_images": 8, "plan_ranges": ranges}
            run(source, root, runner=runner, failure_budget=0.9, shards={"shard_bytes": 20_000})
        assert stored_bytes(roots[1]) == stored_bytes(roots[3])


@pytest.mark.slow
def test_a_prepare_killed_while_it_plans_by_ranges_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    source, root, whole = (
        make_photos(tmp_path / "source", {"cat": 30, "dog": 20}),
        tmp_path / "a",
        tmp_path / "b",
    )
    options = ["--set", "runner.plan_ranges=8", "--set", "runner.processes=1"]
    for table in ("to-keys", "fates", "planned"):
        process = subprocess.Popen(
            prepare_command(source, root, *options), start_new_session=True, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_SECONDS
        while not list(root.glob(f"d/spool/*/ranges/*/{table}/*.arrow")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not list(root.glob("d/manifests/*"))
    prepared(source, root, *options)
    prepared(source, whole, "--set", "runner.plan_ranges=1")
    assert stored_bytes(root) == stored_bytes(whole)

"""Flow runs of Prefect that prepare on a real Flink cluster: their progress, and their cancellation."""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.faults.hostile.deeds import WIDTH, height_of
from tests.prefect_server.server import RunningServer, started_up
from tests.samples.clusters.flink import REPOSITORY, running_cluster
from tests.samples.images.photos import make_photos, png, write
from tests.samples.waiting import eventually

HOSTILE = REPOSITORY / "tests/faults/hostile"
NUM_PHOTOS, NUM_SLOW = 40, 16  # a slow one takes three seconds to decode


def test_a_cancelled_flow_run_ends_its_flink_job_and_the_next_run_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HOSTILE}{os.pathsep}{REPOSITORY}")
    source = make_photos(tmp_path / "photos", {"a": NUM_PHOTOS // 2, "b": NUM_PHOTOS // 2})
    slow = height_of("sleep_3_seconds")
    write(source, {f"a/000{n:02d}-slow.png": png(1000 + n, slow, WIDTH) for n in range(NUM_SLOW)})
    with running_cluster(tmp_path / "flink", str(HOSTILE)) as cluster, started_up(tmp_path / "up") as server:
        runner = tomllib.loads(cluster.config.read_text())["prepare"]["runner"]
        config = {"runner": {**runner, "block_images": 4, "image_seconds": 15}}
        parameters = {"source": str(source), "dataset": "d", "config": config}
        run = server.deployment_run("prepare/prepare", **parameters)
        spool = server.root / "d" / "spool"
        assert eventually(
            lambda: len(list(spool.glob("*/blocks/*.arrow"))) >= 3 or server.has_ended(run), 300.0, every=0.3
        )
        assert eventually(lambda: 0 < _percent(server, run) < 100, 60.0, every=0.5), server.logs(run)
        assert cluster.num_running() == 1, server.logs(run)
        began = time.monotonic()
        assert server.prefect("flow-run", "cancel", run).returncode == 0
        assert server.wait(run)["state_type"] == "CANCELLED", server.logs(run)
        assert eventually(lambda: cluster.num_running() == 0, 120.0)
        print(f"[flink] flow run cancelled: it and its job had ended after {time.monotonic() - began:.0f} s")
        assert not (server.root / "d" / "manifests").exists()

        again = server.deployment_run("prepare/prepare", **parameters)
        assert server.wait(again)["state_type"] == "COMPLETED", server.logs(again)
    version = Catalog(server.root).open("d")
    assert version.manifest.accounting.num_records == NUM_PHOTOS + NUM_SLOW
    assert verify(version).problems == []


def _percent(server: RunningServer, run: str) -> float:
    """The progress that the run's page shows, or 0."""
    found = [one for one in server.artifacts(run) if one["key"].endswith("prepare-progress")]
    return float(found[-1]["data"]) if found else 0.0

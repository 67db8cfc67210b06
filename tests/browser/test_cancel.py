"""A run is cancelled on its page in Prefect's web interface."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from tests.browser.conftest import Browser
from tests.prefect_server.jobs import held_after_a_block
from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_many_large_images

_SECONDS = 20.0  # until the whole process tree is gone


@pytest.mark.slow
def test_the_button_ends_the_whole_tree(
    browser: Browser, shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    parameters = {"source": str(source), "dataset": "unwanted", "config": {"runner": {"block_images": 16}}}
    run = shardmill_up.deployment_run("prepare/prepare", **parameters)
    tree = held_after_a_block(source, shardmill_up.root / "unwanted", lambda: shardmill_up.has_ended(run))
    flow_process = tree[0].parent()
    assert flow_process is not None
    browser.resize(1280, 1400)
    browser.driver.get(shardmill_up.page(run))
    browser.find("//button[normalize-space()='Cancel']").click()
    browser.find("//button[normalize-space()='Confirm']").click()

    gone, alive = psutil.wait_procs([flow_process, *tree], timeout=_SECONDS)
    assert not alive, f"still there: {[process.cmdline() for process in alive]}"
    assert len(gone) >= 3, "the flow, the job and its Beam process were all seen"
    browser.find("//*[normalize-space()='Cancelled']")
    assert shardmill_up.wait(run)["state_name"] == "Cancelled"
    assert "unwanted" not in Catalog(shardmill_up.root).datasets(), "nothing was published"

"""Take the pictures of a run's page that the documentation shows, from a real run in a real browser.

    python -m tests.browser.take_pictures FOLDER_OF_IMAGES

It starts a `shardmill up` of its own, prepares the folder, trains on it, and writes ``docs/images/run.png``
(while the training runs) and ``docs/images/run-summary.png`` (of the finished training).
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.by import By

from tests.browser.conftest import Browser, started_chromium
from tests.prefect_server.server import RunningServer, started_up

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_WIDTH = 1280
_TRAIN = {"data": {"image_size": 64}, "run": {"epochs": 40}}


def main(source: Path) -> None:
    """Run the pipeline on ``source`` and take the pictures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started_up(Path(folder)) as server,
        started_chromium(Path(folder) / "profile") as driver,
    ):
        browser = Browser(driver)
        run = server.deployment_run(
            "pipeline/pipeline",
            source=str(source.resolve()),
            dataset="photos",
            prepare_config={"image": {"size": 96}},
            train_config=_TRAIN,
        )
        _until_trained(server, run, 60.0)
        _take(browser, server.page(run), "run.png", height=1080, tab="Artifacts")
        server.wait(run)
        summary = next(
            one
            for one in server.artifacts(run)
            if one["key"].endswith("-summary") and "epochs" in one["description"]
        )
        address = f"{server.ui_url}/artifacts/artifact/{summary['id']}"
        _take(browser, address, "run-summary.png", height=1500)


def _until_trained(server: RunningServer, run: str, percent: float) -> None:
    while not server.has_ended(run):
        for artifact in server.artifacts_of(run):
            if artifact["key"].endswith("-train-progress") and float(artifact["data"]) >= percent:
                return
        time.sleep(1.0)


def _take(browser: Browser, address: str, name: str, *, height: int, tab: str | None = None) -> None:
    """Save a picture of a page, with few colours, so that it stays small."""
    browser.resize(_WIDTH, height)
    browser.driver.get(address)
    time.sleep(3.0)
    if tab is not None:
        browser.driver.find_element(By.XPATH, f"//li[normalize-space()='{tab}']").click()
        time.sleep(3.0)
    picture = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)
    print(IMAGES / name, (IMAGES / name).stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

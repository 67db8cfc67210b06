"""The page of a training run in a real browser, while the training runs and after it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from selenium.webdriver.support.wait import WebDriverWait

from shardmill.training.results.run_files.curve import CURVE_FILE
from tests.browser.conftest import Browser
from tests.prefect_server.server import RunningServer

_SECONDS = 60.0
_TEXT = "return document.querySelector('main').innerText"
_POINTS = "return document.querySelectorAll('main circle').length"


@dataclass
class SeenTraining:
    """What a person saw of a training in a browser.

    Attributes:
        steps: the steps that the page told, each time that it told another one, while it said "training";
            0 before the first one.
        points: the points of its curves at those times.
        loads: how often the page was loaded.
        report: the title of the page behind the link "Report".
        tensorboard_runs: the runs that TensorBoard showed behind its link.
    """

    steps: list[int] = field(default_factory=list)
    points: list[int] = field(default_factory=list)
    loads: int = 0
    report: str = ""
    tensorboard_runs: list[str] = field(default_factory=list)


class TrainingPage:
    """Looks at the page of the first run whose name begins with a prefix."""

    def __init__(self, browser: Browser, server: RunningServer, prefix: str) -> None:
        self.seen = SeenTraining()
        self._browser = browser
        self._server = server
        self._prefix = prefix

    def look(self) -> None:
        """Look once; open the page if the run has a curve by now."""
        if not self.seen.loads:
            found = [path.parent.name for path in self._server.runs.glob(f"{self._prefix}*/{CURVE_FILE}")]
            if found:
                self._browser.driver.get(f"{self._server.page_url}/runs/{found[0]}")
                self.seen.loads += 1
            return
        text = self._browser.run(_TEXT)
        if re.search(r"training\s+epoch", text):
            step = re.search(r"step ([0-9,]+)", text)
            number = int(step[1].replace(",", "")) if step else 0
            if number not in self.seen.steps:
                self.seen.steps.append(number)
                self.seen.points.append(int(self._browser.run(_POINTS)))

    def follow_links(self) -> None:
        """Click on the report and on TensorBoard, as a person does once the training has ended."""
        driver = self._browser.driver
        driver.refresh()  # the links stand above the part that is updated
        page = driver.current_url
        self._browser.find("//a[normalize-space()='Report']").click()
        WebDriverWait(driver, _SECONDS).until(lambda _: driver.current_url != page)
        self.seen.report = driver.title
        driver.get(page)
        self._browser.find("//p[@class='actions']/a[normalize-space()='TensorBoard']").click()
        WebDriverWait(driver, _SECONDS).until(lambda _: urlsplit(driver.current_url).path == "/tensorboard/")

        def runs(_: object) -> bool:
            # TensorBoard reads the folder again every few seconds.
            found = self._browser.run("return fetch('data/runs').then(answer => answer.json())")
            self.seen.tensorboard_runs = [name for name in found if name.startswith(self._prefix)]
            return bool(self.seen.tensorboard_runs)

        WebDriverWait(driver, _SECONDS).until(runs)

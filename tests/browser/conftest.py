"""A real headless Chromium. Without one these tests skip, and the summary says what to install."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.prefect_server.server import RunningServer, started_up

NO_BROWSER = "NO BROWSER: install chromium and chromium-driver (Debian) to run the browser tests"

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A browser that asks nobody anything: a test sees only what the page itself does.
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """A driven Chromium window, with what pages asked for and complained about."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def resize(self, width: int, height: int = 900, *, mobile: bool = False, dark: bool = False) -> None:
        """Behave as a screen of this size (CSS pixels)."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile},
        )
        scheme = "dark" if dark else "light"
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    def find(self, xpath: str, seconds: float = 30.0) -> WebElement:
        """The first visible element, once it is there."""

        def visible(_: object) -> WebElement | None:
            found = self.driver.find_elements(By.XPATH, xpath)
            return next((element for element in found if element.is_displayed()), None)

        patient = WebDriverWait(self.driver, seconds, ignored_exceptions=[StaleElementReferenceException])
        element = patient.until(visible, f"nothing on the page matches {xpath}")
        assert isinstance(element, WebElement)
        return element

    def run(self, script: str) -> Any:
        """The value of a function body evaluated in the page."""
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        """Messages of the console since the last call: errors, refused loads, violated policies."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """URLs that pages asked for since the last call; data URIs and the browser's own pages are none."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "chrome:"))]


@pytest.fixture(scope="package")
def shardmill_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A running `shardmill up`, stopped after the last test of this folder."""
    with started_up(tmp_path_factory.mktemp("shardmill-up")) as server:
        yield server


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for the tests of this folder, with a profile of its own."""
    with started_chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def find_chromium() -> tuple[str, str] | None:
    """The programs of Chromium and of its driver; None if one is missing."""
    binary = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (binary, driver) if binary and driver else None


@contextlib.contextmanager
def started_chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with this folder as its profile."""
    programs = find_chromium()
    if programs is None:
        pytest.skip(NO_BROWSER)
    binary, driver_binary = programs
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_binary))
    driver.set_page_load_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[Browser]:
    """The browser with an empty page, an ordinary screen, and nothing remembered of the test before."""
    chromium.get("about:blank")
    for command in ("Emulation.clearDeviceMetricsOverride", "Network.clearBrowserCookies"):
        chromium.execute_cdp_cmd(command, {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    found = Browser(chromium)
    found.complaints()
    found.requests()
    yield found
    chromium.get("about:blank")  # an open page goes on asking its server and drawing

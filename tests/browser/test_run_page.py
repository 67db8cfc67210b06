"""The page of a finished run in Prefect's web interface: what a person sees of it in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import Browser
from tests.prefect_server.server import RunningServer
from tests.samples.image_folders import write_image_folder

_SECONDS = 30.0
_SCREEN = (1280, 1400)  # on a narrow one the tabs become a menu


@pytest.fixture(scope="module")
def run(shardmill_up: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a finished run of the prepare deployment, with one broken image."""
    source = write_image_folder(tmp_path_factory.mktemp("page") / "photos")
    (source / "circle" / "broken.jpg").write_bytes(b"\xff\xd8\xff but no image")
    run = shardmill_up.deployment_run(
        "prepare/prepare", source=str(source), dataset="page", config={"failure_budget": 0.1}
    )
    assert shardmill_up.wait(run)["state_type"] == "COMPLETED"
    return run


def _find(browser: Browser, xpath: str) -> WebElement:
    """The first visible element, once it is there."""

    def visible(_: object) -> WebElement | None:
        found = browser.driver.find_elements(By.XPATH, xpath)
        return next((element for element in found if element.is_displayed()), None)

    element = WebDriverWait(browser.driver, _SECONDS).until(visible, f"nothing on the page matches {xpath}")
    assert isinstance(element, WebElement)
    return element


def _card(key: str) -> str:
    """XPath of an artifact's card on a run's page."""
    return f"//a[contains(@href, '/artifacts/artifact/')][contains(normalize-space(), '{key}')]"


def _open_artifact(browser: Browser, server: RunningServer, run: str, key: str) -> None:
    """Go to an artifact as a person does: the run's page, its tab, the card."""
    browser.resize(*_SCREEN)
    browser.driver.get(server.page(run))
    _find(browser, "//li[normalize-space()='Artifacts']").click()
    _find(browser, _card(key)).click()
    WebDriverWait(browser.driver, _SECONDS).until(lambda driver: "/artifacts/artifact/" in driver.current_url)


def test_the_run_page_has_all_artifacts(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    browser.resize(*_SCREEN)
    browser.driver.get(shardmill_up.page(run))
    _find(browser, "//*[normalize-space()='Completed']")
    _find(browser, "//li[normalize-space()='Artifacts']").click()
    for key in ("splits-and-shards", "accounting", "quarantine", "class-balance", "where-to-look"):
        _find(browser, _card(f"page-{key}"))


def test_the_tables_are_readable(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "page-splits-and-shards")
    for cell in ("train", "validation", "test", "32"):
        _find(browser, f"//td[normalize-space()='{cell}']")
    _open_artifact(browser, shardmill_up, run, "page-quarantine")
    _find(browser, "//td[normalize-space()='1']")


def test_the_class_balance_is_a_picture(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "page-class-balance")
    _find(browser, "//img[starts-with(@src, 'data:image/svg+xml')]")
    drawn = (
        "return [...document.images].filter(i => i.src.startsWith('data:')).every(i => i.naturalWidth > 100)"
    )
    assert browser.run(drawn) is True


def test_the_pages_ask_only_their_own_server(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    browser.driver.get(shardmill_up.page(run))
    _find(browser, "//*[normalize-space()='Completed']")
    hosts = {urlsplit(url).netloc for url in browser.requests() if url.startswith(("http", "ws"))}
    assert hosts == {urlsplit(shardmill_up.ui_url).netloc}


def test_the_report_that_the_run_names_opens(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "page-where-to-look")
    _find(browser, "//*[contains(text(), 'report.html')]")
    (report,) = Path(shardmill_up.root).glob("page/data/*/report.html")
    browser.driver.get(f"file://{report}")
    assert browser.driver.title == "page@1 · Shardmill report"

"""The page of a finished run in Prefect's web interface: what a person sees of it in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.support.wait import WebDriverWait

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.flows.flow_runs.showing.page import Keys
from tests.browser.conftest import Browser
from tests.prefect_server.jobs import fake_prepare
from tests.prefect_server.server import RunningServer, run_command
from tests.samples.sources.image_folders import write_image_folder

KEYS = Keys.of("page", PrepareConfig(failure_budget=0.1))
# A name that would load a picture of another host if it were Markdown.
BROKEN = "![x](http:evil.example)_b_.jpg"

_SECONDS = 30.0
_SCREEN = (1280, 1400)  # on a narrow one the tabs become a menu


@pytest.fixture(scope="module")
def run(shardmill_up: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a finished run of the prepare deployment, with one broken image."""
    source = write_image_folder(tmp_path_factory.mktemp("page") / "photos")
    (source / "circle" / BROKEN).write_bytes(b"\xff\xd8\xff but no image")
    run = shardmill_up.deployment_run(
        "prepare/prepare", source=str(source), dataset="page", config={"failure_budget": 0.1}
    )
    assert shardmill_up.wait(run)["state_type"] == "COMPLETED"
    return run


def _card(key: str) -> str:
    """XPath of an artifact's card on a run's page."""
    return f"//a[contains(@href, '/artifacts/artifact/')][contains(normalize-space(), '{key}')]"


def _read(browser: Browser, words: str) -> None:
    """Wait until these words are on the page; each escaped mark in them is an element of its own."""
    text = "return document.body.innerText"
    WebDriverWait(browser.driver, _SECONDS).until(lambda _: words in browser.run(text), f"no {words!r}")


def _assert_pictures_are_drawn(browser: Browser, at_least: int) -> None:
    """All pictures on the page are shown, and no data URL as text."""
    shown = "return [...document.images].filter(image => image.naturalWidth).length"
    WebDriverWait(browser.driver, _SECONDS).until(lambda _: browser.run(shown) >= at_least, "no picture")
    assert all(browser.run("return [...document.images].map(image => image.naturalWidth)"))
    assert "base64," not in browser.run("return document.body.innerText")


def _open_artifact(browser: Browser, server: RunningServer, run: str, subject: str) -> None:
    """Go to an artifact as a person does: the run's page, its tab, the card."""
    browser.resize(*_SCREEN)
    browser.driver.get(server.page(run))
    browser.find("//li[normalize-space()='Artifacts']").click()
    browser.find(_card(KEYS.key(subject))).click()
    WebDriverWait(browser.driver, _SECONDS).until(lambda driver: "/artifacts/artifact/" in driver.current_url)


def test_the_run_page_has_all_artifacts(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    browser.resize(*_SCREEN)
    browser.driver.get(shardmill_up.page(run))
    browser.find("//*[normalize-space()='Completed']")
    browser.find("//li[normalize-space()='Artifacts']").click()
    for subject in ("splits-and-shards", "accounting", "quarantine", "class-balance", "summary"):
        browser.find(_card(KEYS.key(subject)))
    _assert_pictures_are_drawn(browser, 1)  # the class balance, on its card


def test_the_tables_are_readable(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "splits-and-shards")
    for cell in ("train", "validation", "test", "32"):
        browser.find(f"//td[normalize-space()='{cell}']")
    _open_artifact(browser, shardmill_up, run, "quarantine")
    browser.find(f"//td[normalize-space()='circle/{BROKEN}']")


def test_the_class_balance_is_a_picture(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "class-balance")
    browser.find("//img[starts-with(@src, 'data:image/svg+xml')]")
    _assert_pictures_are_drawn(browser, 1)
    browser.find("//td[normalize-space()='circle']")


def test_the_page_of_a_failed_run(browser: Browser, shardmill_up: RunningServer, tmp_path: Path) -> None:
    done = run_command(fake_prepare("over-budget", tmp_path, "broken"), shardmill_up.env, timeout=120)
    assert done.returncode == 3, done.stderr
    run = shardmill_up.run_named("prepare-broken")["id"]
    browser.resize(*_SCREEN, dark=True)
    browser.driver.get(shardmill_up.page(run))
    browser.find("//li[normalize-space()='Artifacts']").click()
    browser.find(_card("broken-failure")).click()
    for words in ("9 of 10 inputs cannot be decoded", "raise failure_budget", "a/broken.jpg"):
        _read(browser, words)
    _assert_pictures_are_drawn(browser, 1)


def test_the_pages_ask_only_their_own_server(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    browser.driver.get(shardmill_up.page(run))
    browser.find("//*[normalize-space()='Completed']")
    browser.find("//li[normalize-space()='Artifacts']").click()
    _open_artifact(browser, shardmill_up, run, "quarantine")
    browser.find("//table")
    hosts = {urlsplit(url).netloc for url in browser.requests() if url.startswith(("http", "ws"))}
    assert hosts == {urlsplit(shardmill_up.ui_url).netloc}


def test_the_report_that_the_run_names_opens(browser: Browser, shardmill_up: RunningServer, run: str) -> None:
    _open_artifact(browser, shardmill_up, run, "summary")
    _read(browser, "report.html")
    (report,) = Path(shardmill_up.root).glob("page/data/*/report.html")
    browser.driver.get(f"file://{report}")
    assert browser.driver.title == "page@1 · Shardmill report"

"""A review in a real browser: keys, two reviewers at once, and a server that is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from shardmill.infra.processes.ports import free_port
from tests.browser.conftest import Browser, started_chromium
from tests.browser.looks import FAINT, STICKING_OUT
from tests.samples.pages.reviews import decided, make_review
from tests.samples.preparing.prepared import run

_SECONDS = 30.0


class Page:
    """A process that serves the page of a folder at one port, and may be killed and started again."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.ids = folder, make_review(folder, count)
        self.port = free_port()
        self.start()

    def start(self) -> None:
        argv = ["platform", "page", "--review", "--port", str(self.port)]
        argv += ["--root", str(self.folder / "datasets"), "--runs", str(self.folder / "runs")]
        self.process = subprocess.Popen([sys.executable, "-m", "shardmill.flows.cli", *argv])
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").close()
                return
            except urllib.error.URLError:
                assert time.monotonic() < deadline
                assert self.process.poll() is None
                time.sleep(0.1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def open(self, browser: Browser, more: str = "") -> None:
        browser.driver.get(f"http://127.0.0.1:{self.port}/review?dataset=d{more}")
        browser.find("//li[@role='option']")

    def keys(self) -> list[tuple[str, str]]:
        """Record and decision of each row, oldest first."""
        return [(row.record, row.decision) for row in decided(self.folder)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    made = Page(tmp_path_factory.mktemp("review"), 12)
    yield made
    made.kill()


def press(browser: Browser, *keys: str) -> None:
    for key in keys:
        ActionChains(browser.driver).send_keys(key).perform()


def until(told: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_settled(browser: Browser) -> bool:
    waits = "return document.querySelectorAll('.waits').length + "
    mine = "Object.keys(localStorage).filter(name => name.startsWith('shardmill-review/')).length"
    return bool(browser.run(waits + mine) == 0)


def test_a_session_by_keyboard_with_a_range_undo_and_a_reload(browser: Browser, page: Page) -> None:
    page.open(browser)
    ids, before = page.ids, len(page.keys())
    press(browser, "k", "x", "u", "a")
    extend = ActionChains(browser.driver).key_down(Keys.SHIFT)
    extend.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    press(browser, "x", "z")
    press(browser, "r")
    browser.find("//dialog//input").send_keys(Keys.CONTROL, "a")
    browser.find("//dialog//input").send_keys("emu" + Keys.ENTER)
    assert "no class “emu” yet" in browser.find("//dialog//p[@role='status']").text
    press(browser, Keys.ENTER)
    until(lambda: is_settled(browser))
    expected = [(ids[0], "keep"), (ids[1], "exclude"), (ids[2], "unsure"), (ids[3], "relabel")]
    expected += [(record, "exclude") for record in ids[4:7]] + [(record, "undo") for record in ids[4:7]]
    expected += [(ids[4], "relabel")]
    assert page.keys()[before:] == expected
    rows = {row.record: row for row in decided(page.folder)}
    assert (rows[ids[3]].to, rows[ids[3]].was, rows[ids[3]].run) == ("dog", "cat", "d-v1-label-errors-5-0123")
    assert rows[ids[4]].to == "emu"
    assert browser.find("//*[@data-decided]").text == "5"
    page.open(browser)
    shown = browser.run("return [...document.querySelectorAll('[data-record]')].map(e => e.dataset.record)")
    assert shown == ids[5:]
    assert browser.complaints() == []


def test_decisions_that_the_server_finds_too_long_are_not_sent_for_ever(browser: Browser, page: Page) -> None:
    page.open(browser)
    before = page.keys()
    browser.run("window.fetch = async () => new Response('send fewer decisions', {status: 413})")
    press(browser, "k")
    until(lambda: is_settled(browser))
    assert "Not decided: send fewer decisions" in browser.find("//*[@data-told]").text
    assert page.keys() == before
    assert browser.run("return document.querySelector('[data-label]').maxLength") == 500


def test_it_can_be_used_on_a_phone_in_light_and_dark_and_read_aloud(browser: Browser, page: Page) -> None:
    for width, dark in ((360, False), (360, True), (1300, True)):
        browser.resize(width, mobile=width < 500, dark=dark)
        page.open(browser)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run(STICKING_OUT) == []
        assert browser.run(FAINT) == []
    page.open(browser, "&state=decided")
    assert browser.run("return document.querySelectorAll('[role=listbox] > [role=option]').length") >= 5
    assert browser.run("return document.activeElement.getAttribute('role')") == "option"
    assert browser.run("return document.querySelectorAll('[role=option][tabindex=\"0\"]').length") == 1
    unnamed = (
        "return [...document.querySelectorAll('button, input:not([type=hidden]), select, [role=listbox]')]"
    )
    unnamed += ".filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).length"
    assert browser.run(unnamed) == 0


def test_two_reviewers_at_once_and_a_server_killed_in_the_middle(
    browser: Browser, page: Page, tmp_path: Path
) -> None:
    with started_chromium(tmp_path) as driver:
        other = Browser(driver)
        for each, name in ((browser, "ada"), (other, "bob")):
            page.open(each)
            each.run(f"document.querySelector('[data-who]').value = '{name}'")
        before, left = len(page.keys()), browser.run("return document.querySelectorAll('.pick').length")
        ids = page.ids[-left:]
        press(browser, "k")
        until(lambda: is_settled(browser))
        press(other, "x")  # ada has decided about it meanwhile
        until(lambda: "ada decided keep" in other.find("//*[@data-told]").text)
        press(other, "x")
        until(lambda: is_settled(other))
        page.kill()
        press(browser, "u")
        press(other, "k")
        until(lambda: "does not answer" in browser.find("//*[@data-told]").text)
        page.start()
        until(lambda: is_settled(browser) and is_settled(other))
    # Ada's decision while the server was away came too late: bob had decided about the same record.
    rows = [(row.record, row.decision, row.by) for row in decided(page.folder)[before:]]
    assert sorted(rows) == sorted(
        [(ids[0], "keep", "ada"), (ids[1], "exclude", "bob"), (ids[2], "keep", "bob")]
    )
    assert "bob decided exclude" in browser.find("//*[@data-told]").text


@pytest.mark.slow
def test_two_hundred_decisions_with_a_kill_a_reload_and_a_version_meanwhile(
    browser: Browser, tmp_path: Path
) -> None:
    page = Page(tmp_path, 103)
    try:
        page.open(browser)
        letters = "kxua"
        for number in range(200):
            if number == 40:
                page.kill()
            if number == 50:
                page.start()
            if number == 70:
                run(page.folder / "source", page.folder / "datasets", groups={"near_duplicates": False})
            if number == 100:
                until(lambda: is_settled(browser))
                page.open(browser)
            press(browser, letters[number % 4])
            if number in (20, 150):
                browser.driver.refresh()
                browser.find("//li[@role='option']")
        until(lambda: is_settled(browser))
        rows = decided(page.folder)
        assert len({row.key for row in rows}) == len(rows) == 200
        assert len({row.record for row in rows}) == 200
    finally:
        page.kill()

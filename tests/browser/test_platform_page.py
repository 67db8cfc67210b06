"""The platform's own page on a running `shardmill up`: what a person does with it in a real browser."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import Browser
from tests.browser.looks import FAINT, STICKING_OUT
from tests.prefect_server.server import RunningServer
from tests.samples.pages.catalogues import HOSTILE, make_run, publish, write_curves

_SECONDS = 30.0
HOSTILE_RUN = HOSTILE.replace("/", "_")
PAGES = (
    "/", "/datasets", "/datasets/shown", "/datasets/shown/1", "/runs", "/runs/one",
    f"/runs/{quote(HOSTILE_RUN)}",
    "/compare?run=one&run=two", "/lineage?dataset=shown", "/aliases", "/nope",
)  # fmt: skip


@pytest.fixture(scope="module")
def platform(shardmill_up: RunningServer) -> RunningServer:
    """A running platform with a version and some runs, one of them with a hostile name."""
    if not (shardmill_up.root / "shown").exists():
        publish(shardmill_up.root, "shown")
        for name, accuracy in (("one", 0.75), ("two", 0.5), ("growing", None), (HOSTILE_RUN, None)):
            make_run(shardmill_up.runs, name, accuracy, dataset="shown@1")
    return shardmill_up


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_every_screen(browser: Browser, platform: RunningServer, width: int, dark: bool) -> None:
    browser.resize(width, mobile=width < 500, dark=dark)
    for path in PAGES:
        browser.driver.get(platform.page_url + path)
        assert browser.run("return document.documentElement.scrollWidth") <= width, path
        assert browser.run(STICKING_OUT) == [], path
        assert browser.run(FAINT) == [], path
        light = browser.run("return Number(getComputedStyle(document.body).color.match(/[0-9]+/)[0]) > 128")
        assert light is dark, path


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_every_link_of_the_menu_is_in_sight(browser: Browser, platform: RunningServer, width: int) -> None:
    browser.resize(width, mobile=width < 500)
    browser.driver.get(platform.page_url)
    links = browser.run(
        "return [...document.querySelectorAll('nav[aria-label=Pages] a')]"
        ".map(link => link.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert len(links) >= 7, "with TensorBoard and Prefect"
    assert all(0 <= left < right <= width for left, right in links), links


def test_nothing_is_asked_of_others_and_no_policy_is_broken(
    browser: Browser, platform: RunningServer
) -> None:
    own = {urlsplit(platform.page_url).netloc}
    for path in (*PAGES, "/datasets/shown/1/report", "/runs/one/report"):
        browser.driver.get(platform.page_url + path)
        assert _hosts(browser.requests()) == own
        refused = [line for line in browser.complaints() if "/nope - Failed to load" not in line]
        assert refused == [], path


def test_tensorboard_works_behind_the_page_and_asks_nobody_else(
    browser: Browser, platform: RunningServer
) -> None:
    browser.driver.get(f"{platform.page_url}/tensorboard/")
    asked: list[str] = []

    def has_asked_for_runs(_: object) -> bool:
        asked.extend(browser.requests())
        return any("/data/runs" in url for url in asked)

    WebDriverWait(browser.driver, _SECONDS).until(has_asked_for_runs)
    assert _hosts(asked) == {urlsplit(platform.page_url).netloc}


def _hosts(urls: list[str]) -> set[str]:
    return {urlsplit(url).netloc for url in urls if url.startswith(("http", "ws"))}


def test_a_hostile_name_runs_nothing(browser: Browser, platform: RunningServer) -> None:
    for path in ("/runs", f"/runs/{quote(HOSTILE_RUN)}", "/datasets/shown/1"):
        browser.driver.get(platform.page_url + path)
        assert browser.run("return document.scripts.length") == 1
        assert "<script>alert" in browser.run("return document.querySelector('main').innerText")


def test_the_curve_of_a_run_moves_while_a_person_looks(browser: Browser, platform: RunningServer) -> None:
    write_curves(platform.runs / "growing", 1, first=4)
    browser.driver.get(f"{platform.page_url}/runs/growing")
    points = "return document.querySelectorAll('circle').length"
    before = browser.run(points)
    browser.run("window.sameDocument = true")
    write_curves(platform.runs / "growing", 4, first=5)
    WebDriverWait(browser.driver, _SECONDS).until(lambda _: browser.run(points) > before)
    assert "step 8" in browser.run("return document.querySelector('main').innerText")
    assert browser.run("return window.sameDocument"), "the page was not loaded again"


def test_it_says_when_it_was_updated_and_that_the_connection_is_lost(
    browser: Browser, platform: RunningServer
) -> None:
    browser.driver.get(platform.page_url)
    browser.find("//*[@role='status'][starts-with(., 'Last updated ')]")
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.driver.execute_cdp_cmd("Network.enable", {})
    try:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **conditions})
        browser.find("//*[@role='status'][starts-with(., 'Connection lost')]")
    finally:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **conditions})
    browser.find("//*[@role='status'][starts-with(., 'Last updated ')]")
    browser.complaints()  # of the lost connection
    browser.run("document.querySelector('[data-live] a').focus()")
    write_curves(platform.runs / "growing", 1, first=90)
    browser.find("//*[@role='status'][starts-with(., 'Updates wait')]")


def test_runs_are_compared_by_keyboard_alone(browser: Browser, platform: RunningServer) -> None:
    browser.driver.get(f"{platform.page_url}/runs?sort=name")
    body = browser.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    focused = browser.driver.switch_to.active_element
    assert focused.text == "Skip to the content"
    focused.send_keys(Keys.ENTER)
    for name in ("one", "two"):
        browser.driver.find_element(By.CSS_SELECTOR, f"input[value='{name}']").send_keys(Keys.SPACE)
    browser.driver.find_element(By.CSS_SELECTOR, "form button").send_keys(Keys.ENTER)
    WebDriverWait(browser.driver, _SECONDS).until(lambda driver: "/compare" in driver.current_url)
    assert browser.driver.find_element(By.XPATH, "//small[text()='best']")


def test_the_keyboard_reaches_every_link_with_a_visible_focus(
    browser: Browser, platform: RunningServer
) -> None:
    browser.driver.get(f"{platform.page_url}/datasets/shown/1")
    wanted = browser.run("return [...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].length")
    body, reached = browser.driver.find_element(By.TAG_NAME, "body"), 0
    for _ in range(wanted):
        body.send_keys(Keys.TAB)
        outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
        reached += outline not in ("", "none")
    assert reached == wanted


def test_every_control_has_a_name_for_those_who_hear_the_page(
    browser: Browser, platform: RunningServer
) -> None:
    for path in PAGES:
        browser.driver.get(platform.page_url + path)
        nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        nameless = [
            node["role"]["value"]
            for node in nodes
            if not node.get("ignored")
            and node.get("role", {}).get("value")
            in (
                "link",
                "button",
                "checkbox",
                "image",
                "table",
                "progressbar",
                "meter",
                "region",
                "navigation",
            )
            and not node.get("name", {}).get("value", "").strip()
        ]
        assert nameless == [], path


def test_a_link_of_prefect_to_its_second_interface_leads_back(
    browser: Browser, platform: RunningServer
) -> None:
    browser.driver.get(f"{platform.ui_url}/v2/dashboard")
    assert urlsplit(browser.driver.current_url).path != "/v2/dashboard"
    assert _hosts(browser.requests()) == {urlsplit(platform.ui_url).netloc}


def test_a_script_in_a_report_does_not_run(browser: Browser, platform: RunningServer) -> None:
    report = "<!doctype html><title>report</title><p>x</p><script>document.title = 'ran'</script>"
    (platform.runs / "one" / "report.html").write_text(report)
    browser.driver.get(f"{platform.page_url}/runs/one/report")
    assert browser.driver.title == "report"

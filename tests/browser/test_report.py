"""The report in a real browser, at the widths of a laptop and a phone, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys

from shardmill.beam_jobs.report import write_report
from tests.browser.conftest import Browser
from tests.samples.pages.reports import version_with_everything

ATTACK = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
# The place of the element with the focus among links and folds; null where it is another.
_FOCUS = """
const at = [...document.querySelectorAll('a, summary')].indexOf(document.activeElement);
return at < 0 ? null : String(at);
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The report of a version with something for every section, hostile and endless names among it."""
    long = "a-very-long-name-" * 12
    made = version_with_everything(tmp_path, hostile=f"{ATTACK}{long}")
    path = write_report(made.storage, made.manifest)
    return f"file://{made.storage.local_path(path)}"


def test_nothing_is_requested_and_nothing_refused(browser: Browser, url: str) -> None:
    browser.driver.get(url)
    assert browser.driver.title == "zoo@2 · Shardmill report"  # the attacks would have changed it
    assert browser.requests() == [url]
    assert browser.complaints() == []


def test_markup_that_slipped_in_could_not_run(browser: Browser, url: str, tmp_path: Path) -> None:
    """The second wall: were escaping to fail one day, the policy still stops the attack."""
    page = Path(url.removeprefix("file://")).read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(page.replace("<main", f"{ATTACK}<main", 1), encoding="utf-8")
    browser.driver.get(f"file://{broken}")
    assert browser.driver.title == "zoo@2 · Shardmill report"
    complaints = browser.complaints()
    assert any("script-src" in line or "default-src" in line for line in complaints), complaints


def test_sections_unfold_and_links_lead_to_them(browser: Browser, url: str) -> None:
    browser.driver.get(url)
    targets = browser.run("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
    assert "#quarantine" in targets
    assert "#duplicates" in targets
    assert {"#since", "#leaks", "#near-duplicates"} < set(targets)
    for target in targets:
        assert browser.run(f"return document.querySelectorAll('{target}').length") == 1
    assert browser.run("return document.querySelector('.reason').open") is True
    assert "JPEG 320 × 240" in browser.run("return document.querySelector('#quarantine').innerText")


def test_the_keyboard_reaches_every_link_and_every_fold(browser: Browser, url: str) -> None:
    browser.driver.get(url)
    wanted = browser.run("return document.querySelectorAll('a, summary').length")
    reached = set()
    for _ in range(wanted + 40):  # what scrolls takes the focus too
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        where = browser.run(_FOCUS)
        if where:
            reached.add(where)
    assert len(reached) == wanted


def test_a_section_is_not_hidden_behind_the_bar_that_stays_in_sight(browser: Browser, url: str) -> None:
    browser.resize(width=1280)
    browser.driver.get(url)
    browser.run("document.documentElement.style.scrollBehavior = 'auto'; location.hash = 'near-duplicates'")
    bar, head = browser.run(
        "return ['nav', '#near-duplicates h2'].map(s => document.querySelector(s).getBoundingClientRect())"
        ".map(r => [r.top, r.bottom])"
    )
    assert bar[0] == 0
    assert head[0] > bar[1]

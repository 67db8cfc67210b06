"""Every report in a real browser: it fits the screen, by day and by night, whatever the names are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from shardmill.beam_jobs.report import write_report
from tests.browser.conftest import Browser
from tests.browser.looks import DRAWN_WHITE, FAINT, STICKING_OUT
from tests.samples.pages.reports import version_with_everything
from tests.samples.pages.run_reports import reported_regression, reported_run

LONG = "Streptocarpus-saxorum-the-false-African-violet-of-Tanzania-photographed-in-a-greenhouse"
SCREENS = [(1280, False), (1280, True), (768, False), (390, False), (390, True)]
PAGES = ("version", "classes", "200 classes", "label errors", "numbers")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Files of reports: of a version, and of runs that learned few and many classes, and numbers."""
    folders = {name: tmp_path_factory.mktemp("page") for name in PAGES}
    made = version_with_everything(folders["version"], hostile=f'<img src=x onerror="1">{LONG}{LONG}')
    few = reported_run(folders["classes"], [f"{LONG}-{number}" for number in range(3)], 20, num_wrong=15)
    names = [f"{LONG}-{number}" if number % 3 else f"class {number}" for number in range(200)]
    many = reported_run(folders["200 classes"], names, 1, num_wrong=40)
    numbers = reported_regression(folders["numbers"], [f"{LONG}-{number}" for number in range(3)], 20)
    return {
        "version": Path(made.storage.local_path(write_report(made.storage, made.manifest))),
        "classes": few / "report.html",
        "200 classes": many / "report.html",
        "label errors": few / "label-errors.html",
        "numbers": numbers / "report.html",
    }


@pytest.mark.parametrize("name", PAGES)
def test_a_report_fits_and_reads_well_on_every_screen(
    browser: Browser, pages: Mapping[str, Path], name: str
) -> None:
    for width, dark in SCREENS:
        browser.resize(width, mobile=width < 500, dark=dark)
        browser.driver.get(f"file://{pages[name]}")
        screen = f"{width} pixels, dark: {dark}"
        assert browser.run("return document.documentElement.scrollWidth") == width, screen
        assert browser.run(STICKING_OUT) == [], screen
        assert browser.run(FAINT) == [], screen
        assert not dark or browser.run(DRAWN_WHITE) == [], screen
    assert browser.run("return document.images.length") > 3 * (name != "numbers")
    shown = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert browser.run(shown) == 0

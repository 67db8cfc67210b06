"""The site that `make docs` builds: every link and name resolves, and a browser asks nobody for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.conftest import Browser

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # the build takes ten seconds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `--strict` makes every warning an error: broken links or names, lost pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(https?:|//)|<link[^>]*\shref=\"?(https?:|//)"
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
    styles = [path for path in site.rglob("*.css") if re.search(r"url\([\"']?(https?:|//)", path.read_text())]
    assert styles == []


def test_the_interface_is_there_with_its_arguments(site: Path) -> None:
    page = (site / "python-api.html").read_text(encoding="utf-8")
    for name in (
        "shardmill.training.dataset.Dataset.tf",
        "shardmill.training.dataset.open_dataset",
        "shardmill.infra.errors",
    ):
        assert f'id="{name}"' in page or f"id={name}" in page
    assert "<!-- api:" not in page
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert "shardmill prepare SOURCE [OPTIONS]" in commands


@pytest.mark.parametrize("screen", [{"width": 1280}, {"width": 390, "mobile": True, "dark": True}], ids=str)
def test_the_site_opens_from_a_folder_and_asks_nobody(
    site: Path, browser: Browser, screen: dict[str, int]
) -> None:
    browser.resize(**screen)
    for page in ("index", "configuration", "dataset-format", "python-api"):
        browser.driver.get((site / f"{page}.html").as_uri())
        wide = browser.run(
            "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        assert not wide, page
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
    assert browser.complaints() == []


def test_the_search_works_without_a_server(site: Path, browser: Browser) -> None:
    browser.resize(1280)
    browser.driver.get((site / "index.html").as_uri())
    field = browser.driver.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.send_keys("near-duplicates", Keys.END)
    found = WebDriverWait(browser.driver, 60).until(
        lambda driver: driver.find_elements(
            By.CSS_SELECTOR, ".md-search-result__item a[href*='dataset-format']"
        )
    )
    assert found
    assert [url for url in browser.requests() if not url.startswith(("file:", "about:", "blob:"))] == []

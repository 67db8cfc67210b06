"""The site that `make docs` builds: every link and name resolves, and a browser asks nobody for anything.

`make docs-release` builds the same site for a server, beside those of other releases.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from shardmill import __version__
from tests.browser.conftest import Browser
from tests.documentation.test_site_pages import hook

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
        "shardmill.Dataset.tf",
        "shardmill.open_dataset",
        "shardmill.show_batch",
        "shardmill.infra.errors",
    ):
        assert f'id="{name}"' in page or f"id={name}" in page
    assert "<!-- api:" not in page
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert "shardmill prepare SOURCE --dataset NAME [OPTIONS]" in commands


def test_the_pages_made_of_the_code_have_their_anchors(site: Path) -> None:
    """What `--strict` does not check: anchors of headings that Markdown made of messages."""
    messages = re.findall(r"\{#(\w+error-[a-z0-9-]+)\}", hook("error_reference").render())
    errors = (site / "errors.html").read_text(encoding="utf-8")
    made = re.findall(r'<h4 id="?([a-z0-9-]+)', errors)
    assert len(messages) > 400
    assert set(messages) <= set(made)
    assert len(made) == len(set(made))
    notebook = (site / "quickstart.html").read_text(encoding="utf-8")
    assert notebook.count("data:image/jpeg;base64") > 20


@pytest.mark.parametrize(
    ("words", "page"), [("near-duplicates", "dataset-format"), ("no batch of images", "errors")]
)
def test_the_search_works_without_a_server(site: Path, browser: Browser, words: str, page: str) -> None:
    browser.resize(1280)
    browser.driver.get((site / "index.html").as_uri())
    field = browser.driver.find_element(By.CSS_SELECTOR, ".md-search__input")
    field.click()
    field.send_keys(words, Keys.END)
    found = WebDriverWait(browser.driver, 60).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, f".md-search-result__item a[href*='{page}']")
    )
    assert found
    assert [url for url in browser.requests() if not url.startswith(("file:", "about:", "blob:"))] == []


def test_releases_stand_side_by_side(tmp_path: Path, browser: Browser) -> None:
    folder = tmp_path / "served"
    older = folder / "0.1"
    older.mkdir(parents=True)
    (older / "index.html").write_text("the first release", encoding="utf-8")
    (folder / "versions.json").write_text(
        '[{"version": "0.1", "title": "0.1.3", "aliases": []}]', encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "docs/versioned_site.py", str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (older / "index.html").read_text(encoding="utf-8") == "the first release"
    newest = ".".join(__version__.split(".")[:2])
    with served(folder) as address:
        browser.driver.get(f"{address}/index.html")
        menu = browser.find("//*[contains(@class, 'md-version__current')]")
        assert browser.driver.current_url == f"{address}/{newest}/index.html"
        assert menu.text == __version__
        links = browser.driver.find_elements(By.CSS_SELECTOR, ".md-version__link")
        assert [link.get_attribute("textContent").strip() for link in links] == [__version__, "0.1.3"]
        assert all(url.startswith(address) for url in browser.requests() if not url.startswith("blob:"))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder, and yield its address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("screen", [{"width": 1280}, {"width": 390, "mobile": True, "dark": True}], ids=str)
def test_the_site_opens_from_a_folder_and_asks_nobody(
    site: Path, browser: Browser, screen: dict[str, int]
) -> None:
    browser.resize(**screen)
    for page in ("index", "quickstart", "names", "errors", "configuration", "dataset-format", "python-api"):
        browser.driver.get((site / f"{page}.html").as_uri())
        wide = browser.run(
            "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        assert not wide, page
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
    assert browser.complaints() == []

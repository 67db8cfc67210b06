"""`shardmill report`: where the page lies, in a browser, as a copy, and made again where it is missing."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from tests.samples.datasets.versions import VersionMaker


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with ``sample@1``, published without a page."""
    maker = VersionMaker(tmp_path / "datasets", source=str(tmp_path))
    maker.add_class("cat", 12)
    Catalog(maker.root).publish(maker.write().manifest)
    return maker.root


def place(root: Path) -> Path:
    return root / "sample/data/feed/report.html"


def run(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> str:
    assert cli.run(["report", "sample@1", "--root", str(root), *arguments]) == 0
    return capsys.readouterr().out.strip()


def test_a_missing_page_is_made(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not place(root).exists()
    assert run(capsys, root) == str(place(root))
    assert "sample@1" in place(root).read_text()


def test_a_page_is_made_again_only_where_that_is_asked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, root)
    place(root).write_text("edited")
    assert json.loads(run(capsys, root, "--json"))["rebuilt"] is False
    assert place(root).read_text() == "edited"
    found = json.loads(run(capsys, root, "--rebuild", "--json"))
    assert found == {"dataset": "sample", "version": 1, "report": str(place(root)), "rebuilt": True}
    assert "sample@1" in place(root).read_text()


def test_a_copy_can_be_had(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "page.html"
    assert run(capsys, root, "--out", str(copy)) == str(copy)
    assert copy.read_bytes() == place(root).read_bytes()


def test_a_copy_that_cannot_be_written_is_an_error(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere" / "page.html"
    assert cli.run(["report", "sample", "--root", str(root), "--out", str(out)]) == 4
    assert capsys.readouterr().err.startswith(f"error: cannot write {out}: No such file")


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_browser_gets_a_file_address(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_browser: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or has_browser)
    assert cli.run(["report", "sample", "--root", str(root), "--open"]) == 0
    assert opened == [place(root).as_uri()]
    assert ("no browser was found" in capsys.readouterr().err) is not has_browser


def test_a_rollback_shows_the_page_of_what_it_brought_back(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog(root)
    first = catalog.open("sample@1").manifest
    catalog.publish(first.model_copy(update={"version": 2, "parent": 1}))
    catalog.publish(first.model_copy(update={"version": 3, "parent": 2, "restores": 1}))
    catalog.publish(first.model_copy(update={"version": 4, "parent": 3, "restores": 3}))
    assert cli.run(["report", "sample", "--root", str(root)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("note: sample@4 restores sample@1")
    assert "<title>sample@1" in Path(said.out.strip()).read_text()

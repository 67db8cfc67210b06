"""The page of a run: well formed, complete, safe, and bounded, whatever the names."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardmill.infra.html.charts import curves_svg
from shardmill.training.config import TrainConfig
from shardmill.training.results.report.gallery import source_link
from shardmill.training.results.report.page import Contents, render_page
from tests.samples.pages.run_reports import reported_run

ODD = ["<script>alert(1)</script>", "caf\udce9", "naïve 中文"]
VOID = {"meta", "img"}
FACTS = {
    "code": {"shardmill": "0"}, "python": "3", "packages": {}, "platform": "linux", "cpus": 1,
    "devices": ["CPU"], "seed": 0, "dataset": {"source": "photos", "manifest_sha256": "0"},
    "config": TrainConfig().model_dump(mode="json"),
}  # fmt: skip


class Page(HTMLParser):
    """Checks that tags are closed in order; collects links, pictures and ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: dict[str, list[str]] = {"href": [], "src": [], "id": []}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in self.found:
                self.found[name].append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of made-up predictions on a dataset of odd names; a quarter of the test split is wrong."""
    return reported_run(tmp_path_factory.mktemp("report"), ODD, 20, num_wrong=15)


def test_the_page_is_whole(run_dir: Path) -> None:
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    sections = {"test", "validation", "curves", "hardest", "label-errors", "configuration", "environment"}
    assert sections <= set(page.found["id"])
    assert {link[1:] for link in page.found["href"] if link.startswith("#")} <= set(page.found["id"])
    assert text.index('id="test"') < text.index('id="validation"'), "the test split comes first"


def test_nothing_is_loaded_and_no_name_is_markup(run_dir: Path) -> None:
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert "<script" not in text
    assert "<b>a note" not in text
    assert "style=" not in text
    assert text.count("<style") == 1, "the policy allows one style sheet"
    assert {source.partition(",")[0] for source in page.found["src"]} == {"data:image/jpeg;base64"}
    assert all(link.startswith(("#", "file:///")) for link in page.found["href"])


def test_the_hardest_examples_and_label_errors_are_pictured(run_dir: Path) -> None:
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    assert text.count("taken for <b>") == 15
    assert "No example was predicted wrongly." in text, "of the validation split"
    assert "no picture" not in text
    assert "confident of another class" in text


def test_the_use_of_each_gpu_is_drawn(run_dir: Path) -> None:
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "<h3>GPU utilisation (%)</h3>" in text
    assert "<title>gpu0, epoch 2: 87.5</title>" in text
    assert "<h3>GPU memory, peak (GiB)</h3>" in text
    assert "<title>gpu0, epoch 1: 3</title>" in text


@pytest.mark.parametrize(
    ("source", "uri", "link"),
    [
        ("/photos", "cats/a b.jpg", "file:///photos/cats/a%20b.jpg"),
        ("file:///photos", r"caf\xe9.jpg", "file:///photos/caf%E9.jpg"),
        ("s3://bucket/photos", "a.jpg", None),
        ("photos", "a.jpg", None),
        ("/photos", "", None),
    ],
)
def test_links_to_sources(source: str, uri: str, link: str | None) -> None:
    assert source_link(source, uri) == link


@pytest.mark.parametrize(
    ("points", "dots"),
    [([], 0), ([(1, 0.5)], 1), ([(1, 0.5), (2, 0.5)], 2), ([(1, float("nan")), (2, 3.0), (3, 1e6)], 2)],
)
def test_curves_of_few_or_odd_points(points: list[tuple[float, float]], dots: int) -> None:
    svg = curves_svg({"train": points}, "loss by epoch")
    assert svg.count("<circle") == dots
    assert "nan" not in svg


def test_classes_of_a_task_with_figures_of_its_own() -> None:
    rows = {"cats": {"median_depth": 0.25, "support": 1234}, "dogs": {"median_depth": 0.5, "support": 7}}
    result = {
        "metrics": {"test": {"loss": 0.5, "num_examples": 4, "per_class": rows}}, "classes": ["cats", "dogs"],
        "task": "regression", "history": [], "model": "own", "dataset": "set", "version": 1, "epochs": 1,
        "steps": 1, "global_batch_size": 4, "num_parameters": None, "best": None, "notes": [],
    }  # fmt: skip
    text = render_page(Contents("run", result, FACTS, {}))
    assert "<th>median depth</th>" in text
    assert "<th>cats</th><td>0.250</td><td>1,234</td>" in text

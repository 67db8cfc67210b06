"""The page of a run: well formed, complete, safe, and bounded, whatever the names."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.storage.filesystem import Storage
from tests.samples.datasets.published import coloured, publish
from training.config import TrainConfig
from training.dataset import open_dataset
from training.results.metrics.single_label import SingleLabelTally
from training.results.predictions.file import PredictionsWriter
from training.results.report.curves import curves_svg
from training.results.report.gallery import source_link
from training.results.report.writing import write_run_report
from training.results.run_files.environment import describe_environment

ODD = ["<script>alert(1)</script>", "caf\udce9", "naïve 中文"]
VOID = {"meta", "img"}


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
    """A run of made-up predictions on a dataset of odd names; half of the test split is wrong."""
    root = tmp_path_factory.mktemp("report")
    counts = {split: dict.fromkeys(ODD, 20) for split in ("validation", "test")}
    publish(root, coloured({**counts, "train": {ODD[0]: 1}}), name="set")
    dataset = open_dataset("set", root=root)
    folder = root / "set-v1-0123456789"
    folder.mkdir()
    readers = {split: dataset.reader(split) for split in ("validation", "test")}
    metrics = {}
    for split, reader in readers.items():
        metrics[split] = _predict(folder, dataset, reader, wrong=0 if split == "validation" else 30)
    environment = describe_environment(TrainConfig(), dataset.version, ["/device:CPU:0"])
    (folder / "environment.json").write_text(json.dumps(environment))
    figures = {"loss": 0.5, "accuracy": 0.8, "macro_f1": 0.7}
    history = [
        {"epoch": epoch, "step": epoch, "train": {"loss": 1 / epoch, "accuracy": 0.5}, "validation": figures}
        for epoch in (1, 2)
    ]
    for row in history:
        row["devices"] = {"gpu0_utilization": 0.875, "gpu0_memory_bytes": 3 << 30}
    result = {
        "metrics": metrics, "classes": dataset.classes, "history": history, "model": "small_cnn",
        "dataset": "set", "version": 1, "epochs": 2, "steps": 2, "global_batch_size": 8, "image_size": 16,
        "num_parameters": 1234, "num_replicas": 1, "best": {"epoch": 2}, "notes": ["<b>a note</b>"],
        "images_per_second": 100.0, "input_wait_fraction": 0.1,
    }  # fmt: skip
    write_run_report(folder, result, readers)
    return folder


def _predict(folder: Path, dataset: Any, reader: Any, wrong: int) -> dict[str, Any]:
    labels = reader.table.label
    rows = np.arange(len(labels))
    predicted = np.where(rows < wrong, (labels + 1) % 3, labels)
    sure = np.linspace(0.5, 0.95, len(labels))
    probabilities = np.repeat(((1 - sure) / 2)[:, None], 3, axis=1)
    probabilities[rows, predicted] = sure
    probabilities = probabilities.astype(np.float32)
    losses = -np.log(probabilities[rows, labels])
    found = {"losses": losses, "predicted": predicted, "probabilities": probabilities}
    with PredictionsWriter(Storage.at(folder), dataset.version, reader.table) as writer:
        writer.add(rows, labels, found)
    tally = SingleLabelTally(3)
    tally.add(labels, found)
    return tally.evaluation().to_result(dataset.classes)


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
    assert text.count("taken for <b>") == 30
    assert "No example was predicted wrongly." in text, "of the validation split"
    assert "no picture" not in text
    assert "look like another class" in text


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

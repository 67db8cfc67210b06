"""The report: what it counts, what it shows, and that names stay text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.report import thumbnails, write_report
from shardmill.beam_jobs.report.figures.histogram import LogHistogram
from shardmill.beam_jobs.report.figures.inputs import count_by_class, count_inputs, reason_rows
from shardmill.beam_jobs.report.figures.splits import shard_balance
from shardmill.beam_jobs.report.figures.survey import survey_indexes
from shardmill.beam_jobs.report.findings import empty_splits, find, untrained_classes
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import CorruptDataError, StorageError
from shardmill.infra.format.contract import TableFile
from shardmill.infra.format.records import Container
from shardmill.infra.html.page import visible
from tests.samples.datasets.versions import Made, VersionMaker
from tests.samples.pages.questions import Elements

HOSTILE = [
    "<script>document.title='pwned'</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>body{display:none}</style>",
    "</title><h1>x</h1>",
    "{{ 7 * 7 }}{% raw %}",
    "-->",
]


def page_of(made: Made) -> str:
    path = write_report(made.storage, made.manifest, made.inputs)
    assert path == "data/feed/report.html"
    return made.storage.read_bytes(path).decode("utf-8")


@pytest.fixture
def maker(tmp_path: Path) -> VersionMaker:
    maker = VersionMaker(tmp_path)
    maker.add_class("cat", 40)
    maker.add_class("dog", 12)
    maker.add_duplicate("cat/again.jpg", "cat", of=1)
    maker.add_duplicate("dog/wrong.jpg", "dog", of=2)
    maker.add_lost("dog/half.jpg", "dog", "quarantined", "truncated", "the JPEG ends early")
    maker.add_lost("emu/only.jpg", "emu", "quarantined", "empty", "the file is empty (0 bytes)")
    maker.add_lost("cat/.DS_Store", "cat", "filtered", "ignored", "pattern .*")
    return maker


def test_classes_before_and_after(maker: VersionMaker) -> None:
    made = maker.write()
    rows = {row.name: row for row in count_by_class(made.inputs, made.manifest)}
    assert list(rows) == ["cat", "dog", "emu"]
    assert rows["cat"].outcomes == {
        "record": 40,
        "duplicate": 1,
    }  # the filtered file is no image of the class
    assert rows["dog"].outcomes == {"record": 12, "duplicate": 1, "quarantined": 1}
    assert rows["dog"].splits == {"train": 8, "validation": 2, "test": 2}
    assert rows["emu"].num_records == 0


def test_reasons_come_with_examples_and_the_most_frequent_first(maker: VersionMaker) -> None:
    for number in range(30):
        maker.add_lost(f"dog/x{number:02d}.jpg", "dog", "quarantined", "truncated", "early")
    rows = reason_rows(maker.write().inputs, "quarantined")
    assert [(row.reason, row.count) for row in rows] == [("truncated", 31), ("empty", 1)]
    first = rows[0].examples[0]
    assert (first.uri, first.message) == ("dog/half.jpg", "the JPEG ends early")
    assert len(rows[0].examples) == 25


def test_duplicate_groups_name_what_was_kept(maker: VersionMaker) -> None:
    maker.add_duplicate("cat/third.jpg", "cat", of=1)
    made = maker.write()
    found = count_inputs([made.inputs], made.manifest).duplicates
    assert found.num_groups == 2
    assert found.groups[0].kept == "cat/00001.jpg"
    assert found.groups[0].others == ("cat/again.jpg", "cat/third.jpg")


def test_findings_name_what_deserves_a_look(maker: VersionMaker) -> None:
    made = maker.write()
    texts = " ".join(item.text for item in find(made.manifest, count_by_class(made.inputs, made.manifest)))
    assert "1 image has the same bytes under different labels" in texts
    assert "2 inputs could not be used (3.57%; the failure budget allowed 50.0%)" in texts
    assert "without any usable image: “emu”" in texts
    assert "57 inputs = 52 records + 2 duplicates + 1 filtered + 2 quarantined" in texts
    assert "“cat” has 4 times the examples of “dog”" in texts


@pytest.mark.parametrize(
    ("source", "num_alike", "remedy"),
    [
        (
            {"kind": "table", "columns": {"split": "fold"}},
            60,
            "The source gives the splits: give images",
        ),
        (
            {"kind": "coco", "objects": {"annotations": [{"file": "a.json", "split": "train"}]}},
            60,
            "The source gives the splits: give images",
        ),
        (
            {"kind": "coco", "objects": {"annotations": [{"file": "a.json", "split": None}]}},
            60,
            "A group stays in one split: set groups.near_duplicates=false",
        ),
        ({"kind": "image_folder"}, 10, "If the source gives the splits"),
    ],
)
def test_the_remedy_of_an_empty_split_fits_the_source(
    source: dict[str, object], num_alike: int, remedy: str, maker: VersionMaker
) -> None:
    manifest = maker.write().manifest
    config = manifest.config | {
        "source": source,
        "splits": {"train": 0.8, "validation": 0.1, "test": 0.1},
        "groups": {"near_duplicates": True},
    }
    splits = {name: split for name, split in manifest.splits.items() if name != "test"}
    alike = TableFile(path="near.parquet", num_rows=num_alike, num_bytes=1, sha256="")
    settled = {"config": config, "splits": splits, "near_duplicates": alike}
    (finding,) = empty_splits(manifest.model_copy(update=settled))
    assert finding.text.startswith("No example is in test: all 52 records are in train and validation")
    assert finding.remedy.startswith(remedy)
    settled["accounting"] = manifest.accounting.model_copy(update={"num_records": 9})
    (finding,) = empty_splits(manifest.model_copy(update=settled))
    assert "images of each" in finding.remedy, "files of YOLO give splits that no setting tells"


def test_classes_that_train_lacks_are_told(maker: VersionMaker) -> None:
    manifest = maker.write().manifest
    assert untrained_classes(manifest) == []
    splits = dict(manifest.splits)
    splits["test"] = splits["test"].model_copy(update={"class_counts": {"cat": 1, "cat ": 3, "bird": 0}})
    (finding,) = untrained_classes(manifest.model_copy(update={"splits": splits}))
    assert finding.level == "warning"
    assert finding.text == "Without any example in train, and in another split: “cat ”."
    del splits["train"]
    assert untrained_classes(manifest.model_copy(update={"splits": splits})) == []


def test_balance_is_measured_per_class_and_not_only_in_count(maker: VersionMaker) -> None:
    manifest = maker.write().manifest
    train = shard_balance(manifest)[0]
    assert (train.split, train.num_shards, train.count_spread) == ("train", 2, 0)
    assert train.is_balanced
    first, second, *others = manifest.shards
    lopsided = [
        first.model_copy(update={"class_counts": {"cat": first.num_examples}}),
        second.model_copy(update={"class_counts": {"dog": second.num_examples}}),
    ]
    skewed = shard_balance(manifest.model_copy(update={"shards": [*lopsided, *others]}))[0]
    assert skewed.count_spread == 0
    assert skewed.class_spread == 20
    assert not skewed.is_balanced


@pytest.mark.parametrize(
    ("values", "low", "median", "high"),
    [
        ([256.0] * 5, 256, 256, 256),
        ([1.0, 2.0, 4.0], 1, 2, 4),
        ([3.0] * 10 + [1000.0], 3, 3, 1000),
        ([0.5, 40000.0, 1e9], 0.5, 40000, 1e9),  # beyond the range both ways
    ],
)
def test_histogram(values: list[float], low: float, median: float, high: float) -> None:
    histogram = LogHistogram(1, 2**16)
    for value in values:
        histogram.add(np.array([value]))
    assert (histogram.minimum, histogram.maximum) == (low, high)
    assert histogram.median() == pytest.approx(median, rel=0.02)
    bars = histogram.bars(10)
    assert sum(bar.count for bar in bars) == histogram.total == len(values)
    assert len(bars) <= 10


def test_pictures_are_read_from_the_shards_and_bounded(
    maker: VersionMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = maker.write()
    survey = survey_indexes(made.storage, made.manifest, ())
    everything = thumbnails.choose_and_read(made.storage, made.manifest, survey, ())
    assert [len(everything.sheets[label]) for label in (0, 1)] == [12, 12]
    monkeypatch.setattr(thumbnails, "SHEETS_AT_MOST", 5)
    few = thumbnails.choose_and_read(made.storage, made.manifest, survey, ())
    # a bound takes depth from all classes alike
    assert [len(few.sheets[label]) for label in (0, 1)] == [3, 2]
    assert few.sheets[0] == everything.sheets[0][:3]


def test_a_broken_shard_is_not_published_with_a_report(maker: VersionMaker) -> None:
    made = maker.write()
    shard = made.manifest.shards[0]
    data = bytearray(made.storage.read_bytes(shard.path))
    data[20:] = bytes(len(data) - 20)
    made.storage.write_atomic(shard.path, bytes(data))
    with pytest.raises(CorruptDataError):
        write_report(made.storage, made.manifest, made.inputs)


class _Away(SourceFolder):
    """A source that cannot be read at the moment, and counts the attempts."""

    reads = 0

    def read(self, file: FileRef) -> bytes:
        self.reads += 1
        raise StorageError("the store is away")


def test_a_source_that_cannot_be_read_is_tried_once(maker: VersionMaker, tmp_path: Path) -> None:
    for number in range(5):
        maker.add_lost(f"cat/{number}.jpg", "cat", "quarantined", "truncated", "the JPEG ends early")
    made, away = maker.write(), _Away(str(tmp_path))
    path = write_report(made.storage, made.manifest, made.inputs, source=away)
    assert made.storage.read_bytes(path).decode().count("the store is away") == 6
    assert away.reads == 1


def test_a_source_that_cannot_be_opened_costs_pictures_alone(maker: VersionMaker) -> None:
    made = maker.write()
    manifest = made.manifest.model_copy(update={"source": "s3://bucket/in?nonsense=1"})
    page = page_of(replace(made, manifest=manifest))
    assert page.count("cannot open storage s3://bucket/in:") == 1


def test_the_page_is_the_same_every_time(maker: VersionMaker) -> None:
    made = maker.write()
    assert page_of(made) == page_of(made)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_never_become_markup(tmp_path: Path, hostile: str) -> None:
    maker = VersionMaker(tmp_path)
    maker.add_class(hostile, 12)
    maker.add_class("plain", 12)
    maker.add_duplicate(f"{hostile}.jpg", hostile, of=0)
    maker.add_duplicate("plain/x.jpg", "plain", of=1)
    maker.add_lost(f"{hostile}/a", hostile, "quarantined", hostile, hostile)
    maker.add_lost(f"{hostile}/b", None, "filtered", hostile, hostile)
    maker.config = {hostile: {hostile: hostile}}
    elements = Elements(page_of(maker.write()))
    tags = [tag for tag, _ in elements.found]
    assert not {"script", "iframe", "object", "a href", "form", "link", "base"} & set(tags)
    assert tags.count("style") == tags.count("title") - _titles_in_charts(elements) == tags.count("h1") == 1
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert hostile in elements.text


def _titles_in_charts(elements: Elements) -> int:
    """SVG has <title> too: each follows the rect it names."""
    tags = [tag for tag, _ in elements.found]
    return sum(1 for before, tag in itertools.pairwise(tags) if (before, tag) == ("rect", "title"))


def test_the_page_needs_nothing_from_outside(maker: VersionMaker) -> None:
    page = page_of(maker.write())
    elements = Elements(page)
    policy = next(a["content"] for t, a in elements.found if t == "meta" and "http-equiv" in a) or ""
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    sources = [a[name] or "" for _, a in elements.found for name in ("src", "href", "action") if name in a]
    assert sources
    assert all(source.startswith(("data:image/jpeg;base64,", "#")) for source in sources)
    assert "style" not in {name for _, attributes in elements.found for name in attributes}
    assert "url(" not in style[1]
    assert "@import" not in style[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("photo\u202egnp.exe", "photo\\u202egnp.exe"),
        ("line\nbreak", "line\\u000abreak"),
        ("bytes\udcff.jpg", "bytes\\udcff.jpg"),
        ("日本語 صور", "日本語 صور"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # the joiner is part of the word
    ],
)
def test_hidden_characters_are_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_names_are_cut_and_sentences_are_not(tmp_path: Path) -> None:
    maker = VersionMaker(tmp_path)
    names = [f"{'n' * 90}{number}" for number in range(4)]
    for name in names:
        maker.add_class(name, 1)
    maker.add_class("m" * 999, 30)
    page = page_of(maker.write())
    assert (
        "Without any example in train, and in another split: " + ", ".join(f"“{name}”" for name in names)
        in page
    )
    assert "m" * 80 in page
    assert "m" * 81 not in page.split('id="classes"')[1]


def test_a_thousand_classes_stay_usable(tmp_path: Path) -> None:
    maker = VersionMaker(tmp_path)
    for number in range(1000):
        maker.add_class(f"class {number:04d}", 3 if number else 30)
    page = page_of(maker.write())
    assert len(page) < 6 << 20
    rows = page.count('<li class="classrow">')
    assert rows == 1000
    assert "960 classes between" in page
    (curve,) = (drawn["d"] or "" for drawn in Elements(page).of("path"))
    assert re.fullmatch(r"M0 180 (L[\d.]+ [\d.]+ ){2000}L1000 180 Z", curve)
    assert page.count("<img ") == 360


@pytest.mark.parametrize("container", ["gzip", "none"])
def test_the_smallest_version_has_a_report(tmp_path: Path, container: Container) -> None:
    maker = VersionMaker(tmp_path, container=container, config={})
    maker.add_class("only", 1)
    page = page_of(maker.write())
    assert "1 record in 1 class, 1 shard" in page
    assert "record in one shard" in page
    assert 'id="quarantine"' not in page


@pytest.mark.parametrize(
    ("source", "shown", "hidden"),
    [
        (
            {"kind": "image_folder"},
            ["source.kind", "source.layout"],
            ["source.urls.", "source.rows.", "source.masks."],
        ),
        (
            {
                "kind": "table",
                "table": {"file": "a.csv"},
                "columns": {"mask": "m"},
                "masks": {"classes": ["a"]},
            },
            ["source.columns.mask", "source.masks.classes"],
            ["source.urls.", "source.archive.", "source.objects."],
        ),
        ({"kind": "of_another_release", "urls": {"x": 1}}, ["source.urls.x"], []),
    ],
)
def test_settings_of_kinds_of_source_that_are_not_used_are_hidden(
    maker: VersionMaker, source: dict[str, Any], shown: list[str], hidden: list[str]
) -> None:
    made = maker.write()
    complete = source
    if "x" not in source.get("urls", {}):
        complete = PrepareConfig.model_validate({"source": source}).model_dump(mode="json")["source"]
    config = {**made.manifest.config, "source": complete}
    page = page_of(replace(made, manifest=made.manifest.model_copy(update={"config": config})))
    assert [name for name in shown if name not in page] == []
    assert [name for name in hidden if name in page] == []

"""Metadata of files as features: stored, inherited, queried, reported, and the filter for AI-made images."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmill import open_dataset
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.report.figures.survey import survey_indexes, traits
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.examples import parse_whole_example
from shardmill.infra.format.known_features import METADATA_NAMES
from shardmill.infra.format.records import iter_records
from tests.samples.images import described
from tests.samples.images.described import NEWSCODES, image_file, manifest, store, xmp
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import rows, run
from tests.samples.preparing.runs import Saved, problems

BY = "https://creativecommons.org/licenses/by/4.0/"
AI = store(manifest(b"m", NEWSCODES + "trainedAlgorithmicMedia"))
CONFIG: dict[str, Any] = {
    "image": {"size": 16, "metadata": "all"},
    "groups": {"near_duplicates": False},
    "splits": {"train": 1, "validation": 0, "test": 0},
    "shards": {"num_shards": 1},
}


def camera(seed: int, year: int, make: str) -> bytes:
    exif = described.exif({0x010F: make}, {0x9003: f"{year}:01:02 03:04:05"}, {2: (1.0, 2.0, 3.0)})
    return image_file("jpeg", exif_block=exif, packet=xmp({"xmpRights:WebStatement": BY}), seed=seed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A source, and a root whose dataset has all metadata of its files."""
    place = tmp_path_factory.mktemp("metadata") / "place"
    files = {
        "a/acme.jpg": camera(1, 2019, "Acme"),
        "a/copy.jpg": camera(1, 2019, "Acme"),
        "a/plain.jpg": jpeg(2),
        "b/late.jpg": camera(3, 2023, "Boxy"),
        "b/made.png": image_file("png", credentials=AI, seed=4),
        "b/broken.jpg": camera(5, 2020, "Acme")[:300],
    }
    run(write(place / "source", files), place / "root", failure_budget=1, **CONFIG)
    return Saved(place)


@pytest.fixture
def prepared(saved: Saved) -> Path:
    return saved.bring_back() / "root"


@pytest.fixture
def source(prepared: Path) -> Path:
    return prepared.parent / "source"


def version(root: Path, name: str = "d") -> DatasetVersion:
    return Catalog(root).open(name)


def told(opened: DatasetVersion) -> dict[str, dict[str, Any]]:
    """Source URI -> the metadata in the index that are not null."""
    return {
        row["source_uri"]: {name: row[name] for name in METADATA_NAMES if row[name] is not None}
        for shard in opened.manifest.shards
        for row in opened.index(shard).to_pylist()
    }


ACME = {
    "captured_at": "2019-01-02T03:04:05",
    "camera_make": "Acme",
    "gps_present": 1,
    "c2pa_present": 0,
    "licence": BY,
}
NOTHING_TOLD = {"gps_present": 0, "c2pa_present": 0}
ALL = {
    "a/acme.jpg": ACME,
    "a/plain.jpg": NOTHING_TOLD,
    "b/late.jpg": ACME | {"captured_at": "2023-01-02T03:04:05", "camera_make": "Boxy"},
    "b/made.png": {"gps_present": 0, "c2pa_present": 1, "digital_source_type": "trainedAlgorithmicMedia"},
}


def test_metadata_are_columns_of_the_index_and_features_of_the_records(prepared: Path) -> None:
    opened = version(prepared)
    assert told(opened) == ALL
    assert [feature.name for feature in opened.manifest.extra_features] == list(METADATA_NAMES)
    (shard,) = opened.manifest.shards
    payloads = iter_records(opened.storage, shard.path, opened.manifest.container)
    uris = opened.index(shard)["source_uri"].to_pylist()
    for uri, (_, _, payload) in zip(uris, payloads, strict=True):
        stored = {name: one.values[0] for name, one in parse_whole_example(payload)[1].items()}
        said = ALL[uri].items()
        assert stored == {name: one.encode() if isinstance(one, str) else one for name, one in said}
    assert problems(prepared) == []


@pytest.mark.parametrize(
    ("query", "uris"),
    [
        ("captured_at > '2020'", ["b/late.jpg"]),
        ("captured_at < '2019-06' and gps_present == 1", ["a/acme.jpg"]),
        ("captured_at is None", ["a/plain.jpg", "b/made.png"]),
        ("camera_make in ('Acme', 'Boxy')", ["a/acme.jpg", "b/late.jpg"]),
        ("digital_source_type == 'trainedAlgorithmicMedia' or c2pa_present == 1", ["b/made.png"]),
    ],
)
def test_metadata_are_queried(prepared: Path, query: str, uris: list[str]) -> None:
    found = open_dataset("d", prepared).query(query).to_arrow(["source_uri"]).to_table()
    assert sorted(found["source_uri"].to_pylist()) == uris


def test_the_report_counts_them(prepared: Path) -> None:
    opened = version(prepared)
    assert opened.manifest.report is not None
    cards = traits(survey_indexes(opened.storage, opened.manifest, []))
    counted = {card.title: dict(card.rows) for card in cards}
    assert counted["Year of capture"] == {"2019": 1, "2023": 1, "not stated": 2}
    assert counted["Declared origin"] == {"trainedAlgorithmicMedia": 1, "not stated": 3}
    assert counted["Licence"] == {BY: 2, "not stated": 2}
    assert counted["Position in the file"] == {"present": 2, "none": 2}
    assert counted["Content Credentials"] == {"present": 1, "none": 3}
    assert "Camera" not in counted, "no file names a model"
    page = opened.storage.read_bytes(opened.manifest.report).decode()
    assert "<h3>Year of capture</h3>" in page
    assert BY in page


def test_readers_return_them(prepared: Path) -> None:
    batches = open_dataset("d", prepared).batches(
        "train", features=["captured_at", "gps_present"], batch_size=4, image_size=16
    )
    features = next(iter(batches)).features
    assert set(zip(features["captured_at"].tolist(), features["gps_present"].tolist(), strict=True)) == {
        ("2019-01-02T03:04:05", 1),
        ("2023-01-02T03:04:05", 1),
        ("", 0),
    }


def test_a_later_version_inherits_what_it_knows(source: Path, prepared: Path, tmp_path: Path) -> None:
    root = prepared
    write(source, {"b/new.jpg": camera(9, 2024, "Acme"), "b/acme again.jpg": camera(1, 2019, "Acme")})
    outcome = run(source, root, failure_budget=1, **CONFIG)
    assert outcome["num_encoded"] == 1
    new = ACME | {"captured_at": "2024-01-02T03:04:05"}
    assert told(version(root)) == ALL | {"b/new.jpg": new}
    (source / "a/acme.jpg").unlink()
    (source / "a/copy.jpg").unlink()
    run(
        source,
        root,
        failure_budget=1,
        shards={"num_shards": 2},
        **{k: v for k, v in CONFIG.items() if k != "shards"},
    )
    again = {**ALL, "b/new.jpg": new, "b/acme again.jpg": ACME}
    del again["a/acme.jpg"]
    assert told(version(root)) == again
    compact(Catalog(root), "d")
    assert told(version(root)) == again
    assert problems(root) == []
    fresh = tmp_path / "fresh"
    run(source, fresh, failure_budget=1, **CONFIG)
    assert told(version(fresh)) == again


def test_asking_for_metadata_reads_the_images_again(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    without = CONFIG | {"image": {"size": 16}}
    assert run(source, root, failure_budget=1, **without)["num_encoded"] == 6
    assert not version(root).manifest.extra_features
    assert run(source, root, failure_budget=1, **CONFIG)["num_encoded"] == 6
    assert told(version(root)) == ALL


def test_ai_made_images_are_left_out_on_request(source: Path, prepared: Path) -> None:
    root = prepared
    plain = CONFIG | {"image": {"size": 16}, "filter": {"ai_made": "drop"}}
    run(source, root, failure_budget=1, **plain)
    found = rows(version(root))
    assert {uri: row["outcome"] for uri, row in found.items()} == {
        "a/acme.jpg": "record",
        "a/copy.jpg": "duplicate",
        "a/plain.jpg": "record",
        "b/broken.jpg": "quarantined",
        "b/late.jpg": "record",
        "b/made.png": "filtered",
    }
    made = found["b/made.png"]
    assert (made["stage"], made["reason"]) == ("filter", "ai_made")
    assert made["message"] == "it declares the digital source type trainedAlgorithmicMedia"
    again = run(source, root, failure_budget=1, **plain)
    assert again["unchanged"]


def test_a_configuration_that_asks_for_nothing_keeps_its_digests() -> None:
    effective = PrepareConfig().effective()
    assert digest_of(effective) == "e4ed86c557f5e0b8", "as of the first release that had these settings"
    assert "metadata" not in effective["image"]
    assert "ai_made" not in effective["filter"]


def test_the_order_of_the_names_does_not_matter() -> None:
    asked: list[Any] = ["licence, captured_at", ["captured_at", "licence", "licence"]]
    one, other = (PrepareConfig.model_validate({"image": {"metadata": names}}) for names in asked)
    assert one == other


def test_a_feature_of_the_table_with_the_same_name_is_refused(source: Path, tmp_path: Path) -> None:
    write(source, {"t.csv": b"path,label,licence\na/acme.jpg,a,own\n"})
    columns = {"features": ["licence"]}
    asked = {"source": {"kind": "table", "table": {"file": "t.csv"}, "columns": columns}}
    with pytest.raises(ConfigError, match="both give a feature 'licence'") as caught:
        run(source, tmp_path / "root", **CONFIG, **asked)
    assert "my_licence" in str(caught.value.remedy)
    run(source, tmp_path / "root", **CONFIG | {"image": {"metadata": "camera_make"}}, **asked)
    (row,) = version(tmp_path / "root").index(version(tmp_path / "root").manifest.shards[0]).to_pylist()
    assert (row["licence"], row["camera_make"]) == ("own", "Acme")
    opened = version(tmp_path / "root")
    counted = {card.title: card.rows for card in traits(survey_indexes(opened.storage, opened.manifest, []))}
    assert counted["Licence"] == (("own", 1),)


def zipped(place: Path) -> dict[str, Any]:
    with zipfile.ZipFile(place / "photos.zip", "w") as archive:
        archive.writestr("a/acme.jpg", camera(1, 2019, "Acme"))
        archive.writestr("b/plain.jpg", jpeg(2))
    return {"kind": "archive"}


def annotated(place: Path) -> dict[str, Any]:
    write(
        place,
        {"acme.jpg": camera(1, 2019, "Acme"), "plain.jpg": jpeg(2), "small.jpg": camera(7, 2020, "Acme")},
    )
    sizes = {"acme.jpg": (48, 64), "plain.jpg": (48, 64), "small.jpg": (5, 5)}  # not the size of the last one
    images = [
        {"id": at, "file_name": name, "height": height, "width": width}
        for at, (name, (height, width)) in enumerate(sizes.items())
    ]
    boxes = [{"id": at, "image_id": at, "category_id": 1, "bbox": [1, 1, 3, 3]} for at in range(len(sizes))]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (place / "instances.json").write_text(json.dumps(document))
    return {"kind": "coco", "objects": {"annotations": "instances.json"}}


# An image of another size than its annotation is read again by a later run.
@pytest.mark.parametrize(("make", "num_read_again"), [(zipped, 0), (annotated, 1)])
def test_other_sources_have_them_too(
    make: Callable[[Path], dict[str, Any]], num_read_again: int, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    kind = make(source)
    run(source, tmp_path / "root", failure_budget=1, source=kind, **CONFIG)
    found = {uri.rpartition("/")[2]: said for uri, said in told(version(tmp_path / "root")).items()}
    assert found == {"acme.jpg": ACME, "plain.jpg": NOTHING_TOLD}
    write(source, {"more.txt": b"x"})
    again = run(source, tmp_path / "root", failure_budget=1, source=kind, **CONFIG)
    assert again["num_encoded"] == num_read_again
    assert problems(tmp_path / "root") == []

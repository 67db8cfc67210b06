"""The Croissant description of a version: what it says, and that it follows its manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.croissant import Terms, croissant_json, write_croissant
from shardmill.infra.dataset.maintenance.garbage import collect_garbage
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.contract import INDEX_SCHEMA, Manifest
from shardmill.infra.format.features import Feature
from tests.samples.datasets.indexes import Image, indexed_version
from tests.samples.datasets.published import coloured, publish
from tests.samples.datasets.versions import VersionMaker

PICTURES = coloured({"train": {"fox": 4, "bad \udcff byte": 3}, "test": {"fox": 2}})


@pytest.fixture(params=["gzip", "none"])
def version(tmp_path: Path, request: pytest.FixtureRequest) -> DatasetVersion:
    return publish(tmp_path, PICTURES, name="birds", container=request.param)


def described(version: DatasetVersion) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(version.storage.read_bytes("croissant-000001.json"))
    return found


def record_sets(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in document["recordSet"]}


def test_it_names_every_file_with_its_checksum(version: DatasetVersion) -> None:
    files = [file for file in described(version)["distribution"] if file["@type"] == "cr:FileObject"]
    assert len(files) == 2 * len(version.manifest.shards)
    for file in files:
        data = version.storage.read_bytes(file["contentUrl"])
        assert file["sha256"] == sha256_hex(data)
        assert file["contentSize"] == f"{len(data)} B"
    sets = [file for file in described(version)["distribution"] if file["@type"] == "cr:FileSet"]
    paths = [
        [shard.path for shard in version.manifest.shards],
        [s.index_path for s in version.manifest.shards],
    ]
    assert [found["includes"] for found in sets] == paths


def test_it_describes_splits_classes_columns_and_features(version: DatasetVersion) -> None:
    sets = record_sets(described(version))
    assert sets["splits"]["data"] == [
        {"splits/name": "train", "splits/num_examples": 7},
        {"splits/name": "test", "splits/num_examples": 2},
    ]
    assert [row["classes/name"] for row in sets["classes"]["data"]] == ["bad \\xff byte", "fox"]
    columns = [field["name"] for field in sets["records"]["field"]]
    assert columns == ["split", *INDEX_SCHEMA.names]
    features = {field["name"]: field["dataType"] for field in sets["examples"]["field"]}
    assert set(features) == set(version.manifest.features)
    assert features["image"] == "sc:ImageObject"
    [label] = [field for field in sets["records"]["field"] if field["name"] == "label"]
    assert label["references"] == {"field": {"@id": "classes/label"}}


def test_further_features_are_described_with_their_types(version: DatasetVersion) -> None:
    features = [
        Feature(name="licence", dtype="bytes", is_text=True),
        Feature(name="depth", dtype="float32", shape="variable"),
    ]
    manifest = Manifest(**dict(version.manifest) | {"extra_features": features})
    sets = record_sets(json.loads(croissant_json(manifest, Terms())))
    for name in ("records", "examples"):
        found = {field["name"]: field for field in sets[name]["field"]}
        assert found["licence"]["dataType"] == "sc:Text"
        assert (found["depth"]["dataType"], found["depth"]["repeated"]) == ("sc:Float", True)


LICENCE = Feature(name="licence", dtype="bytes", is_text=True)
CREDIT = Feature(name="attribution", dtype="bytes", is_text=True)
BY, ZERO = (
    "https://creativecommons.org/licenses/by/4.0/",
    "https://creativecommons.org/publicdomain/zero/1.0/",
)


@pytest.mark.parametrize(
    ("licences", "credited", "found"),
    [
        ([BY, BY, BY], ["A. Müller"] * 3, {"license": BY, "citeAs": "A. Müller"}),
        ([BY, ZERO, BY], ["A", "A", "A"], {"citeAs": "A"}),
        ([BY, BY, None], ["A", "B", None], {}),
        ([None, None, None], ["", "", ""], {}),
    ],
)
def test_a_licence_and_an_attribution_of_all_records_are_those_of_the_dataset(
    tmp_path: Path, licences: list[str | None], credited: list[str | None], found: dict[str, str]
) -> None:
    images = [
        Image(f"{number}", facts={"licence": licence, "attribution": credit})
        for number, (licence, credit) in enumerate(zip(licences, credited, strict=True))
    ]
    shards = {"one": images[:2], "two": images[2:]}
    version = indexed_version(tmp_path, 1, shards, extra_features=[LICENCE, CREDIT])
    write_croissant(version.storage, version.manifest)
    document = described(version)
    assert {key: document[key] for key in ("license", "citeAs") if key in document} == found
    for name in ("records", "examples"):
        fields = {field["name"]: field for field in record_sets(document)[name]["field"]}
        properties = [fields[key]["equivalentProperty"] for key in ("licence", "attribution")]
        assert properties == ["sc:license", "sc:creditText"]
        assert "equivalentProperty" not in fields["id"]


def test_a_lost_index_is_only_a_warning(tmp_path: Path) -> None:
    version = indexed_version(tmp_path, 1, {"one": [Image("a")]}, extra_features=[LICENCE])
    version.storage.delete(version.manifest.shards[0].index_path)
    write_croissant(version.storage, version.manifest)
    assert not version.storage.exists("croissant-000001.json")


def test_it_is_a_function_of_the_manifest_and_hides_the_source(version: DatasetVersion) -> None:
    data = croissant_json(version.manifest, Terms())
    assert version.storage.read_bytes("croissant-000001.json") == data
    assert version.manifest.source.encode() not in data
    assert described(version)["datePublished"] == version.manifest.created_at[:10]


@pytest.fixture
def verified(tmp_path: Path) -> DatasetVersion:
    """A version in which ``verify`` finds no problem."""
    maker = VersionMaker(tmp_path, name="birds")
    maker.add_class("fox", 12)
    return Catalog(tmp_path).publish(maker.write().manifest)


def next_version(version: DatasetVersion, root: Path, number: int) -> DatasetVersion:
    changes = {"version": number, "parent": number - 1}
    return Catalog(root).publish(Manifest(**dict(version.manifest) | changes))


def test_the_next_version_adds_what_a_killed_writer_left_out(
    tmp_path: Path, verified: DatasetVersion
) -> None:
    verified.storage.delete("croissant-000001.json")
    assert verify(verified).problems == []
    next_version(verified, tmp_path, 2)
    assert verified.storage.read_bytes("croissant-000001.json") == croissant_json(verified.manifest, Terms())
    assert verify(Catalog(tmp_path).open("birds@2")).problems == []


def test_it_goes_with_its_version(tmp_path: Path, version: DatasetVersion) -> None:
    next_version(version, tmp_path, 2)
    collect_garbage(Catalog(tmp_path), "birds", drop=[1])
    names = sorted(entry.path for entry in version.storage.list_files() if entry.path.startswith("croissant"))
    assert names == ["croissant-000002.json"]


@pytest.mark.parametrize(
    "change", [lambda data: data.replace(b'"sha256": "', b'"sha256": "0'), lambda data: b"{"]
)
def test_verify_finds_a_description_of_other_files(verified: DatasetVersion, change: Any) -> None:
    verified.storage.write_atomic("croissant-000001.json", change(croissant_json(verified.manifest, Terms())))
    [problem] = verify(verified).problems
    assert "croissant-000001.json was changed" in problem


def test_a_place_that_cannot_be_written_costs_the_description_only(
    tmp_path: Path, version: DatasetVersion, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "birds" / "croissant-000002.json").mkdir()
    assert next_version(version, tmp_path, 2).version == 2
    assert Catalog(tmp_path).open("birds").version == 2


def test_show_prints_it(tmp_path: Path, version: DatasetVersion, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--root", str(tmp_path)]
    assert cli.run(["show", "birds", "--croissant", *at]) == 0
    assert json.loads(capsys.readouterr().out) == described(version)
    assert cli.run(["show", "birds?label == 'fox'", "--croissant", *at]) == 2
    assert "only versions are described" in capsys.readouterr().err

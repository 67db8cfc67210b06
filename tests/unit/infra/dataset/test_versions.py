"""Published versions: the catalog, verification, location, and manifests that cannot be made wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.locate import locate
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import (
    AccountingError,
    ConfigError,
    CorruptDataError,
    FormatVersionError,
    NotFoundError,
    PublishConflict,
    UsageError,
)
from shardmill.infra.format.contract import FORMAT_VERSIONS, Accounting, TableFile
from shardmill.infra.format.layout import data_dir, decode_manifest, encode_manifest, manifest_file
from shardmill.infra.storage.locations import check_dataset_name
from tests.samples.datasets.versions import Made, VersionMaker


def made(root: Path, **options: object) -> Made:
    """A version of two classes with a duplicate, a filtered and a quarantined input, not yet published."""
    maker = VersionMaker(root, **options)  # type: ignore[arg-type]
    maker.add_class("coat", 21)
    maker.add_class("hat <b>", 12)
    maker.add_duplicate("hat <b>/copy.jpg", "hat <b>", of=0)
    maker.add_lost("notes.txt", None, "filtered", "ignored", "not an image")
    maker.add_lost("coat/broken.jpg", "coat", "quarantined", "truncated", "ends early")
    version = maker.write()
    sink = io.BytesIO()
    pq.write_table(version.inputs, sink)
    path = f"{data_dir(version.manifest.plan_digest)}/inputs.parquet"
    version.storage.write_atomic(path, sink.getvalue())
    part = TableFile(
        path=path,
        num_rows=version.inputs.num_rows,
        num_bytes=len(sink.getvalue()),
        sha256=sha256_hex(sink.getvalue()),
    )
    version.manifest = version.manifest.model_copy(update={"inputs": [part]})
    return version


@pytest.fixture(params=["gzip", "none"])
def version(tmp_path: Path, request: pytest.FixtureRequest) -> DatasetVersion:
    return Catalog(tmp_path).publish(made(tmp_path, container=request.param).manifest)


def test_nothing_is_visible_before_publishing(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    sample = made(tmp_path)
    assert catalog.datasets() == []
    assert catalog.latest("sample") is None
    assert catalog.next_version("sample") == 1
    with pytest.raises(NotFoundError, match="no dataset 'sample'") as caught:
        catalog.open("sample")
    assert "shardmill prepare" in str(caught.value.remedy)
    catalog.publish(sample.manifest)
    assert catalog.datasets() == ["sample"]
    assert catalog.open("sample").manifest == sample.manifest


def test_references_to_versions(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    manifest = made(tmp_path).manifest
    for number in (1, 2, 10):
        catalog.publish(manifest.model_copy(update={"version": number}))
    assert catalog.versions("sample") == [1, 2, 10]
    assert catalog.next_version("sample") == 11
    found = [catalog.open(ref).version for ref in ("sample", "sample@latest", "sample@2", "sample@10")]
    assert found == [10, 10, 2, 10]
    assert catalog.open("sample@2").ref == "sample@2"
    for ref in ("sample@3", "sample@two", "sample@-1", "sample@²", "sample@１"):
        with pytest.raises(NotFoundError, match="it has: 1, 2, 10"):
            catalog.open(ref)
    with pytest.raises(NotFoundError, match="did you mean 'sample'"):
        catalog.open("sampel")


def test_a_number_is_published_once(tmp_path: Path) -> None:
    manifest = made(tmp_path).manifest
    Catalog(tmp_path).publish(manifest)
    with pytest.raises(PublishConflict, match=r"000001\.json is there already"):
        Catalog(tmp_path).publish(manifest.model_copy(update={"source": "elsewhere"}))
    assert Catalog(tmp_path).open("sample").manifest.source == manifest.source


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a b", "ä", "x" * 101])
def test_names_that_are_no_folder_everywhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        check_dataset_name(name)
    with pytest.raises(ConfigError):
        Catalog(tmp_path).open(name)


def test_accounting_that_does_not_add_up_cannot_be_made() -> None:
    with pytest.raises(AccountingError, match="10 inputs, but 9 outcomes"):
        Accounting(num_inputs=10, num_records=6, num_duplicates=1, num_filtered=1, num_quarantined=1)


def test_a_manifest_without_its_records_cannot_be_made(tmp_path: Path) -> None:
    document = json.loads(encode_manifest(made(tmp_path).manifest))
    del document["checksum"]
    document["shards"].pop()
    with pytest.raises(AccountingError, match="the shards of sample@1 hold"):
        decode_manifest(json.dumps(document).encode())


def test_a_manifest_that_holds_the_key_of_a_source_does_not_show_it(tmp_path: Path) -> None:
    written = json.loads(encode_manifest(made(tmp_path).manifest))
    del written["checksum"]
    written |= {"source": "s3://KEY:secret@bucket/in?region=eu"}
    written["config"] |= {"source": {"table": {"file": "s3://KEY:secret@bucket/t.csv"}}}
    manifest = decode_manifest(json.dumps(written).encode())
    assert manifest.source == "s3://bucket/in"
    assert manifest.config["source"]["table"]["file"] == "s3://bucket/t.csv"


def test_manifests_of_other_formats(tmp_path: Path) -> None:
    manifest = made(tmp_path).manifest
    Catalog(tmp_path).publish(manifest)
    path = tmp_path / "sample" / manifest_file(1)
    document = json.loads(path.read_text())
    assert decode_manifest(json.dumps(document).encode()) == manifest
    path.write_text(json.dumps(document | {"format_version": FORMAT_VERSIONS[-1] + 1}))
    with pytest.raises(FormatVersionError, match=r"000001\.json has format version 4"):
        Catalog(tmp_path).open("sample")
    for rubbish in ("", "[]", "{}", "not json"):
        path.write_text(rubbish)
        with pytest.raises(CorruptDataError, match="is not a manifest"):
            Catalog(tmp_path).open("sample")


def test_a_sound_version_verifies(version: DatasetVersion) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(version, lambda done, total: seen.append((done, total)))
    assert report.problems == []
    assert report.num_records == 33
    assert report.num_bytes == sum(shard.num_bytes for shard in version.manifest.shards)
    assert seen[-1] == (33, 33)


def damage(version: DatasetVersion, path: str, change: str) -> None:
    file = version.storage.local_path(path)
    assert file is not None
    data = bytearray(file.read_bytes())
    if change == "flip":
        data[len(data) // 2] ^= 0x10
    elif change == "truncate":
        del data[-20:]
    elif change == "append":
        data.extend(bytes(data))
    if change == "delete":
        file.unlink()
    else:
        file.write_bytes(data)


@pytest.mark.parametrize("change", ["flip", "truncate", "append", "delete"])
@pytest.mark.parametrize("what", ["shard", "index", "inputs"])
def test_any_damage_is_found_and_named(version: DatasetVersion, what: str, change: str) -> None:
    shard = version.shards("train")[1]
    paths = {"shard": shard.path, "index": shard.index_path, "inputs": version.manifest.inputs[0].path}
    damage(version, paths[what], change)
    problems = verify(version).problems
    assert any(paths[what] in problem for problem in problems), problems


def test_a_false_manifest_is_found(version: DatasetVersion) -> None:
    first, *others = version.manifest.shards
    counts = {"coat": first.class_counts["coat"] + 1, "hat <b>": first.class_counts["hat <b>"] - 1}
    false = first.model_copy(update={"class_counts": counts})
    manifest = version.manifest.model_copy(update={"shards": [false, *others]})
    problems = verify(DatasetVersion(version.storage, manifest)).problems
    assert any("class counts" in problem for problem in problems)
    assert any("sums of its shards" in problem for problem in problems)


def test_inputs_that_contradict_the_shards_are_found(version: DatasetVersion) -> None:
    inputs = version.inputs().slice(1)
    sink = io.BytesIO()
    pq.write_table(inputs, sink)
    [part] = version.manifest.inputs
    version.storage.write_atomic(part.path, sink.getvalue())
    honest = part.model_copy(
        update={"num_bytes": len(sink.getvalue()), "sha256": sha256_hex(sink.getvalue())}
    )
    manifest = version.manifest.model_copy(update={"inputs": [honest]})
    problems = verify(DatasetVersion(version.storage, manifest)).problems
    assert any("the inputs have outcomes" in problem for problem in problems)


def test_an_index_that_does_not_fit_is_refused(version: DatasetVersion) -> None:
    shard = version.shards("train")[0]
    with pytest.raises(CorruptDataError, match=r"rows, the manifest of sample@1 says"):
        version.index(shard.model_copy(update={"num_examples": 1}))


def test_from_source_to_record_and_back(version: DatasetVersion) -> None:
    [by_source] = locate(version, source="coat/00007.jpg")
    assert by_source["outcome"] == "record"
    assert by_source["label"] == "coat"
    rows = locate(version, record=by_source["record_id"])
    assert rows == [by_source]
    index = pq.read_table(version.storage.local_path(by_source["shard"].split(".")[0] + ".parquet"))
    assert index["id"][by_source["shard_row"]].as_py() == by_source["record_id"]
    assert index["offset_bytes"][by_source["shard_row"]].as_py() == by_source["offset_bytes"]


def test_every_source_is_found(version: DatasetVersion) -> None:
    for row in version.inputs().to_pylist():
        [found] = locate(version, source=row["uri"])
        assert found["outcome"] == row["outcome"]
        assert ("shard" in found) == (row["outcome"] in ("record", "duplicate"))


def test_a_duplicate_leads_to_the_record_kept(version: DatasetVersion) -> None:
    [duplicate] = locate(version, source="hat <b>/copy.jpg")
    kept, copy = locate(version, record=duplicate["record_id"])
    assert (kept["outcome"], copy["outcome"]) == ("record", "duplicate")
    assert kept["shard"] == copy["shard"]


def test_sources_by_absolute_name_and_near_misses(version: DatasetVersion) -> None:
    [found] = locate(version, source="/data/sample/coat/00007.jpg")
    assert found["uri"] == "coat/00007.jpg"
    with pytest.raises(NotFoundError, match="never saw") as caught:
        locate(version, source="coat/00007.jpeg")
    assert "coat/00007.jpg" in str(caught.value.remedy)
    with pytest.raises(NotFoundError, match="no record 'ffff'"):
        locate(version, record="ffff")
    for neither_or_both in ({}, {"source": "a", "record": "b"}):
        with pytest.raises(UsageError):
            locate(version, **neither_or_both)


def test_reading_inputs_of_several_parts(version: DatasetVersion) -> None:
    [part] = version.manifest.inputs
    manifest = version.manifest.model_copy(update={"inputs": [part, part]})
    doubled = DatasetVersion(version.storage, manifest).inputs()
    assert doubled.num_rows == 2 * version.inputs().num_rows
    assert isinstance(doubled, pa.Table)


def test_a_name_is_resolved_by_one_manifest(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    manifest = made(tmp_path).manifest
    for number in range(1, 11):
        catalog.publish(manifest.model_copy(update={"version": number}))
    for number in range(1, 10):
        (tmp_path / "sample" / manifest_file(number)).write_text("broken, but not asked for")
    assert catalog.open("sample").version == 10

"""Sealed manifests: alterations, copies, unknown keys and altered reports are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import find_garbage
from shardmill.infra.dataset.publishing import record_report, with_report
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, FormatVersionError
from shardmill.infra.format.layout import decode_manifest, encode_manifest, is_sealed, manifest_file
from tests.samples.datasets.versions import VersionMaker

REPORT = "data/feed/report.html"


@pytest.fixture
def version(tmp_path: Path) -> DatasetVersion:
    maker = VersionMaker(tmp_path)
    maker.add_class("coat", 6)
    maker.add_class("hat", 5)
    made = maker.write()
    made.storage.write_atomic(REPORT, b"<html>what went in</html>")
    return Catalog(tmp_path).publish(with_report(made.storage, made.manifest, REPORT))


@pytest.fixture
def path(version: DatasetVersion) -> Path:
    found = version.storage.local_path(manifest_file(1))
    assert found is not None
    return found


def alter(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=1))


def seal_problems(tmp_path: Path) -> list[str]:
    """The problems that verify finds in the manifest and the report (the sample has no inputs to check)."""
    report = verify(Catalog(tmp_path).open("sample"))
    return [line for line in report.problems if "manifests/" in line or "report" in line]


def test_a_sealed_version_has_no_problems_and_no_notes(tmp_path: Path, version: DatasetVersion) -> None:
    opened = Catalog(tmp_path).open("sample")
    assert opened.manifest == version.manifest
    assert verify(opened).notes == []
    assert seal_problems(tmp_path) == []


def test_white_space_is_not_part_of_the_seal(tmp_path: Path, path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert seal_problems(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(source="elsewhere"),
        lambda document: document["config"].update(seed=1),
        lambda document: document.pop("codecs"),
        lambda document: document["shards"].reverse(),
        lambda document: document.update(a_later_key=1),
        lambda document: document.update(checksum="0" * 64),
    ],
)
def test_an_altered_manifest_is_refused(tmp_path: Path, path: Path, change: Callable[[Any], object]) -> None:
    alter(path, change)
    with pytest.raises(CorruptDataError, match=r"000001\.json was altered after it was written"):
        Catalog(tmp_path).open("sample")


def test_an_alteration_after_opening_is_found(version: DatasetVersion, path: Path) -> None:
    alter(path, lambda document: document.update(source="elsewhere"))
    assert any("was altered after it was written" in problem for problem in verify(version).problems)


def test_a_manifest_without_a_checksum_opens_and_is_noted(tmp_path: Path, path: Path) -> None:
    alter(path, lambda document: [document.pop(key) for key in ("checksum", "report_sha256")])
    assert not is_sealed(path.read_bytes())
    notes = verify(Catalog(tmp_path).open("sample")).notes
    assert ["has no checksum" in note for note in notes] == [True, True]


def test_unknown_keys_are_of_a_newer_release(tmp_path: Path, path: Path) -> None:
    alter(path, lambda document: (document.pop("checksum"), document["shards"][0].update(a_later_key=1)))
    with pytest.raises(FormatVersionError, match=r"does not know: shards\.0\.a_later_key") as caught:
        Catalog(tmp_path).open("sample")
    assert "a newer release wrote it" in str(caught.value)


def test_a_manifest_copied_to_another_number_is_refused(tmp_path: Path, path: Path) -> None:
    shutil.copy(path, path.with_name("000002.json"))
    assert Catalog(tmp_path).open("sample@1").version == 1
    with pytest.raises(CorruptDataError, match="is the manifest of sample@1, not of sample@2"):
        Catalog(tmp_path).open("sample")
    with pytest.raises(CorruptDataError, match="is the manifest of sample@1"):
        find_garbage(Catalog(tmp_path), "sample")


def test_a_renamed_dataset_is_refused(tmp_path: Path, version: DatasetVersion) -> None:
    (tmp_path / "sample").rename(tmp_path / "other")
    with pytest.raises(CorruptDataError, match="is the manifest of sample@1, not of other@1"):
        Catalog(tmp_path).open("other")


@pytest.mark.parametrize("change", ["alter", "delete"])
def test_an_altered_or_missing_report_is_found(tmp_path: Path, version: DatasetVersion, change: str) -> None:
    page = version.storage.local_path(REPORT)
    assert page is not None
    page.write_text("<html>something else</html>") if change == "alter" else page.unlink()
    [problem] = seal_problems(tmp_path)
    assert REPORT in problem


def test_a_report_that_is_made_again_is_recorded(tmp_path: Path, version: DatasetVersion) -> None:
    catalog = Catalog(tmp_path)
    other = version.manifest.model_copy(update={"version": 2, "report": None, "report_sha256": None})
    catalog.publish(other)
    version.storage.write_atomic(REPORT, b"<html>made again</html>")
    assert len(seal_problems(tmp_path)) == 0, "the newest version has no report"
    assert len(verify(catalog.open("sample@1")).problems) > len(verify(catalog.open("sample")).problems)
    record_report(catalog, "sample", REPORT)
    assert len(verify(catalog.open("sample@1")).problems) == len(verify(catalog.open("sample")).problems)
    assert is_sealed(version.storage.read_bytes(manifest_file(1)))
    assert catalog.open("sample").manifest == other


def test_a_manifest_is_the_same_after_a_round_trip(version: DatasetVersion) -> None:
    stored = encode_manifest(version.manifest)
    assert decode_manifest(stored) == version.manifest
    assert encode_manifest(decode_manifest(stored)) == stored

"""A source whose URI holds a key: it opens the source, and is neither stored nor shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.images.photos import write
from tests.samples.preparing.prepared import make_messy, prepare, prepared_here
from tests.samples.stores.object_store import KEY, SECRET, serve

LENIENT = ("--set", "failure_budget=0.5", "--set", "runner.processes=1")


def pictures_of_report(version: DatasetVersion) -> int:
    assert version.manifest.report is not None
    return version.storage.read_bytes(version.manifest.report).count(b"data:image")


def test_a_key_in_the_source_is_neither_stored_nor_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_messy(tmp_path / "source")
    prepared_here(source, tmp_path / "near", *LENIENT)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serve("keys") as store:
        store.upload(source, "in")
        store.upload(write(tmp_path / "edits", {"edits.csv": b"source_uri,decision,label\n"}), "edits")
        labels = store.location("edits/edits.csv", credentials=f"{KEY}:{SECRET}@")
        words = [*LENIENT, "--label-edits", labels, "--json"]
        asked = [store.location(name, credentials=f"{KEY}:{SECRET}@") for name in ("in", "in", "none")]
        done = [prepare(location, tmp_path / "far", *words) for location in asked]
    assert [run.returncode for run in done] == [0, 0, 2], done
    assert json.loads(done[1].stdout.splitlines()[-1])["unchanged"]
    assert "source s3://keys/none holds no file" in done[2].stderr
    near, far = (Catalog(tmp_path / name).open("d") for name in ("near", "far"))
    assert far.manifest.source == "s3://keys/in"
    assert far.manifest.config["source"]["label_edits"] == "s3://keys/edits/edits.csv"
    assert pictures_of_report(far) == pictures_of_report(near) > 0
    said = [text for run in done for text in (run.stdout, run.stderr)]
    written = [path.read_bytes() for path in (tmp_path / "far").rglob("*") if path.is_file()]
    for secret in (KEY, SECRET):
        assert not [text for text in said if secret in text]
        assert not [data for data in written if secret.encode() in data]

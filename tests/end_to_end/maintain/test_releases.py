"""Datasets that earlier releases wrote are read, checked, prepared on top of, compacted and purged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shardmill import open_dataset
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.maintain.purge import purge
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import SPLITS
from tests.end_to_end.releases import DATASETS, NAMES, SOURCE, TABLE, releases, settings
from tests.samples.images.photos import png, write
from tests.samples.preparing.prepared import rows

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=releases(), ids=lambda path: path.name)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release wrote."""
    return Path(shutil.copytree(request.param, tmp_path / "release"))


def opened(release: Path, name: str) -> DatasetVersion:
    """The newest version, whose files are all as its manifest says."""
    version = Catalog(release / DATASETS).open(name)
    assert verify(version).problems == []
    return version


def outcomes(version: DatasetVersion) -> dict[str, tuple[str, str | None, str | None]]:
    """URI of each input -> its outcome, split and reason."""
    return {uri: (row["outcome"], row["split"], row["reason"]) for uri, row in rows(version).items()}


def request(release: Path, name: str) -> JobRequest:
    """Prepare the source again, with the settings of the release."""
    config = PrepareConfig.model_validate(settings(name, release / TABLE))
    return JobRequest(source=str(release / SOURCE), dataset=name, root=str(release / DATASETS), config=config)


def test_it_is_read(release: Path, name: str) -> None:
    manifest = opened(release, name).manifest
    assert manifest.format_version == {"classes": 2, "tags": 3}[name]
    dataset = open_dataset(name, root=release / DATASETS)
    batches = [batch for split in SPLITS for batch in dataset.batches(split, batch_size=1, image_size=16)]
    assert len(batches) == manifest.accounting.num_records > 10
    assert all(batch.images.shape == (1, 16, 16, 3) and batch.images.any() for batch in batches)


def test_work_goes_on(release: Path, name: str) -> None:
    before = outcomes(opened(release, name))
    assert {outcome for outcome, _, _ in before.values()} >= {"record", "duplicate", "quarantined"}
    root = str(release / DATASETS)
    # Version 2 may read all images again, if the codecs have changed since; version 3 adds to its shards.
    for number, added in ((2, "dog/new.png"), (3, "dog/newer.png")):
        write(release / SOURCE, {added: png(93 + number, 16, 20)})
        with (release / TABLE).open("a") as table:
            table.write(f"{added},red\n")
        assert prepare_version(request(release, name))["version"] == number
        after = outcomes(opened(release, name))
        assert after.pop(added)[0] == "record"
        assert after == before, "every earlier input keeps its outcome and its split"
        before = outcomes(opened(release, name))

    compact(Catalog(root), name)
    compacted = opened(release, name)
    assert compacted.manifest.version == 4
    assert outcomes(compacted).keys() == before.keys()

    (release / SOURCE / "cat/00000.png").unlink()
    purge(Catalog(root), name, ["cat/00000.png"])
    for version in (1, 2, 3, 4):
        left = Catalog(root).open(f"{name}@{version}")
        assert verify(left).problems == []
        assert "cat/00000.png" not in outcomes(left)

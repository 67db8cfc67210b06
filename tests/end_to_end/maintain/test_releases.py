"""Datasets that earlier releases wrote are read, checked, prepared on top of, compacted and purged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from beam_jobs.config import PrepareConfig
from beam_jobs.job import prepare_version
from beam_jobs.maintain.compaction import compact
from beam_jobs.maintain.purge.working import purge
from beam_jobs.request import JobRequest
from infra.dataset.catalog import Catalog
from infra.dataset.verify import verify
from infra.dataset.version import DatasetVersion
from infra.format.contract import SPLITS
from tests.end_to_end.releases import DATASETS, NAMES, SOURCE, TABLE, releases, settings
from tests.samples.images.photos import png, write
from tests.samples.preparing.prepared import rows
from training.dataset import open_dataset

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
    write(release / SOURCE, {"dog/new.png": png(95, 16, 20)})
    with (release / TABLE).open("a") as table:
        table.write("dog/new.png,red\n")
    root = str(release / DATASETS)
    assert prepare_version(request(release, name))["version"] == 2
    after = outcomes(opened(release, name))
    assert after.pop("dog/new.png")[0] == "record"
    assert after == before, "every earlier input keeps its outcome and its split"

    compact(Catalog(root), name)
    compacted = opened(release, name)
    assert compacted.manifest.version == 3
    assert outcomes(compacted).keys() == {*before, "dog/new.png"}

    (release / SOURCE / "cat/00000.png").unlink()
    purge(Catalog(root), name, ["cat/00000.png"])
    for version in (1, 2, 3):
        left = Catalog(root).open(f"{name}@{version}")
        assert verify(left).problems == []
        assert "cat/00000.png" not in outcomes(left)

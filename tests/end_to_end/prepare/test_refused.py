"""Prepares that end without a version: each with a helpful message, and nothing half-done."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_run
from shardmill.infra.errors import ConfigError, DataError, FailureBudgetExceeded, LockedError, NotFoundError
from tests.samples.images.photos import make_photos, write
from tests.samples.preparing.prepared import prepare_here, run


def test_the_failure_budget_stops_the_job_and_resuming_costs_nothing(messy: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FailureBudgetExceeded, match=r"4 of 30 inputs .*13\.33%.*nothing was published"
    ) as caught:
        run(messy, tmp_path / "root")
    assert Catalog(tmp_path / "root").versions("d") == []
    page, table = re.findall(r"/\S+(?:refused\.html|inputs\.parquet)", str(caught.value.remedy))
    assert Path(table).is_file()
    html = Path(page).read_text()
    assert "Of 34 inputs, 4 could not be used, and 4 were left out by a rule" in html
    lost = pq.read_table(table).filter(pc.field("outcome") == "quarantined")
    assert all(escape(row["uri"]) in html and row["reason"] in html for row in lost.to_pylist())
    done = run(messy, tmp_path / "root", failure_budget=0.2)
    assert done["reused"]["images"] == 29, "a larger budget reads no file again"
    assert done["num_records"] == 23


def test_all_filtered_is_an_error(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 3})
    with pytest.raises(DataError, match="no record came of 3 inputs: 3 filtered"):
        run(source, tmp_path / "root", filter={"min_width": 1000})


def test_a_second_run_on_the_same_work_is_turned_away(tmp_path: Path) -> None:
    from shardmill.beam_jobs.publish.digests import Digests
    from shardmill.beam_jobs.sources import list_inputs
    from shardmill.beam_jobs.sources.files.folder import SourceFolder

    source = make_photos(tmp_path / "source", {"a": 4})
    config = PrepareConfig.model_validate({"runner": {"processes": 2, "block_images": 8}})
    digests = Digests.of(str(source), list_inputs(SourceFolder(str(source)), config), config)
    storage = Catalog(tmp_path / "root").dataset_storage("d")
    with lock_for_run(storage, f"spool/{digests.run}.lock"), pytest.raises(LockedError, match="pid"):
        run(source, tmp_path / "root")
    assert run(source, tmp_path / "root")["version"] == 1


def test_a_full_disk_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    source = make_photos(tmp_path / "source", {"a": 20})
    fsync = os.fsync
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space left on device") as caught:
        run(source, tmp_path / "root")
    assert type(caught.value).__name__ == "StorageError"
    assert "free space" in str(caught.value)
    monkeypatch.undo()
    assert run(source, tmp_path / "root")["num_records"] == 20


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        (["--set", "image.siz=64"], 2, "did you mean 'image.size'"),
        (["--set", "runner.name=DaskRunner"], 2, "wrong results"),
        (["--set", "runner.name=embeded"], 2, "did you mean 'embedded'"),
        (["--runner", "flink"], 2, "runner.flink.master is missing"),
        (["--flink-master", "http://flink:8081/"], 2, "is not HOST:PORT"),
        (["--set", "source.kind=image_folders"], 2, "did you mean 'image_folder'"),
        (["--set", "filter.classes=['aa']"], 2, "did you mean 'a'"),
        (["--config-json", "{"], 2, "not JSON"),
        (["--dataset", "../up"], 2, "cannot be used"),
        (["--failure-budget", "2"], 2, "failure_budget"),
        (["--config", "nowhere.toml"], 2, "cannot read configuration"),
    ],
)
def test_usage_errors(more: list[str], status: int, says: str, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 2})
    done = prepare_here(source, tmp_path / "root", *more)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_missing_source_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = prepare_here(tmp_path / "nowhere", tmp_path / "root")
    assert done.returncode == 2
    assert "is not there" in done.stderr
    assert "remedy:" in done.stderr


def test_nothing_to_prepare(tmp_path: Path) -> None:
    write(tmp_path / "source", {"a/notes.txt": b"x"})
    with pytest.raises(NotFoundError, match=r"only 1 file that filter\.ignore names"):
        run(tmp_path / "source", tmp_path / "root")
    with pytest.raises(ConfigError):
        JobRequest(source="x", dataset="a/b", root="y")

"""A dataset that is prepared again: what is reused, and what heals."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.publish import versions as versions_module
from shardmill.infra.errors import CorruptDataError, FailureBudgetExceeded
from tests.samples.images.photos import make_photos
from tests.samples.preparing.runs import problems, run, stopped


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@contextmanager
def vanishing(path: Path, hidden: Path) -> Iterator[None]:
    """Let the file be there when a source is listed, and gone when it is read."""
    list_inputs = job_module.list_inputs

    def list_then_hide(*arguments: Any) -> Any:
        if hidden.exists():
            hidden.rename(path)
        listing = list_inputs(*arguments)
        path.rename(hidden)
        return listing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "list_inputs", list_then_hide)
        yield
    hidden.rename(path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 14, "b": 8})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


# -- what is damaged is not reused ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["train-*.tfrecord*", "train-*.parquet"])
def test_a_damaged_shard_of_an_earlier_version_is_written_again(
    pattern: str, source: Path, root: Path
) -> None:
    run(source, root)
    flip_last_byte(next(root.rglob(pattern)))
    run(source, root, seed=1)
    assert len(problems(root)) >= 1, "version 1 is damaged"
    back = run(source, root)
    assert (back["version"], back["reused"]["shards"]) == (3, 2)
    assert problems(root) == [], "the same bytes in the same place mend version 1 too"


def test_a_shard_that_is_damaged_before_the_run_goes_on_is_written_again(source: Path, root: Path) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    flip_last_byte(next(root.rglob("train-*.tfrecord*")))
    assert run(source, root)["reused"]["shards"] == 2
    assert problems(root) == []


def test_a_damaged_table_of_a_block_is_encoded_again(source: Path, root: Path) -> None:
    with stopped(job_module, "publish"):
        run(source, root)
    tables = sorted(root.rglob("blocks/*.arrow"))
    tables[0].write_bytes(b"")
    tables[1].with_suffix(".spool").unlink()  # as after a kill amid the removal of the spool
    assert run(source, root)["reused"]["blocks"] == len(tables) - 2
    assert problems(root) == []


def test_the_report_names_a_damaged_record_and_the_way_out(
    source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = versions_module.publish

    def damage(*arguments: Any) -> Any:
        shard = next(root.rglob("train-*.tfrecord*"))
        shard.write_bytes(b"\0" * shard.stat().st_size)
        return publish(*arguments)

    monkeypatch.setattr(job_module, "publish", damage)
    with pytest.raises(CorruptDataError, match=r"train-.*tfrecord\.gz at byte \d+: .*nothing was") as caught:
        run(source, root)
    monkeypatch.undo()
    assert "delete this shard and run again" in str(caught.value.remedy)
    run(source, root)
    assert problems(root) == []


def test_prepare_restores_any_file_that_was_deleted(source: Path, root: Path) -> None:
    run(source, root)
    for number, name in enumerate(("inputs-*.parquet", "report.html", "train-*.parquet", "test-*.tfrecord*")):
        damaged = root.with_name(f"damaged-{number}")
        shutil.copytree(root, damaged)
        (path,) = damaged.rglob(name)
        before = path.read_bytes()
        path.unlink()
        again = run(source, damaged)
        assert (again["version"], again["unchanged"]) == (2, False), name
        if name != "report.html":  # names its version
            assert path.read_bytes() == before, name
        assert problems(damaged) == [], name
        assert run(source, damaged)["unchanged"], name


# -- what could not be read may heal -------------------------------------------------------------------


def test_a_file_that_can_be_read_again_makes_a_new_version(source: Path, root: Path, tmp_path: Path) -> None:
    with vanishing(source / "a/00001.jpg", tmp_path / "hidden.jpg"):
        first = run(source, root, failure_budget=0.5)
        assert first["quarantine"] == {"vanished": 1}
        assert run(source, root, failure_budget=0.5)["unchanged"], "it still cannot be read"
    healed = run(source, root, failure_budget=0.5)
    assert (healed["version"], healed["unchanged"], healed["num_quarantined"]) == (2, False, 0)
    assert healed["num_records"] == 22


def test_a_finished_block_with_an_unreadable_file_is_encoded_again(
    source: Path, root: Path, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden.jpg"
    with vanishing(source / "a/00001.jpg", hidden), pytest.raises(FailureBudgetExceeded):
        run(source, root)
    num_blocks = len(list(root.rglob("blocks/*.arrow")))
    healed = run(source, root)
    assert (healed["num_quarantined"], healed["reused"]["blocks"]) == (0, num_blocks - 1)
    run(source, tmp_path / "undisturbed")
    one, two = (
        {path.name: path.read_bytes() for path in at.rglob("*") if path.suffix in (".gz", ".parquet")}
        for at in (root, tmp_path / "undisturbed")
    )
    assert one == two

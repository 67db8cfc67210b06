"""Images that look the same and groups by key, from files to a published version and on to the next."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.maintain.purge import purge
from shardmill.beam_jobs.plan import rows as inputs_module
from shardmill.beam_jobs.reasons import SAME_BYTES
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kind_modules import Workplace
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.summaries import version_lines
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import LeakError
from shardmill.infra.format.contract import Leaks
from tests.samples.images.photos import jpeg, make_photos, picture, write


def run(source: Path, root: Path, **groups: Any) -> dict[str, Any]:
    config = PrepareConfig.model_validate({"runner": {"processes": 2, "block_images": 8}, "groups": groups})
    return prepare_version(JobRequest(source=str(source), dataset="d", root=str(root), config=config))


def opened(root: Path, version: int = 1) -> DatasetVersion:
    found = Catalog(root).open(f"d@{version}")
    assert verify(found).problems == []
    return found


def rows(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    return {row["uri"]: row for row in version.inputs().to_pylist()}


def alike(seed: int, quality: int) -> bytes:
    """The picture of a seed as another JPEG: other bytes, the same looks."""
    sink = io.BytesIO()
    Image.fromarray(picture(seed, 96, 128)).save(sink, "JPEG", quality=quality)
    return sink.getvalue()


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """Given splits, with one picture of train in test under another label."""
    source = make_photos(tmp_path / "source", {"train/a": 12, "train/b": 9, "test/a": 4, "test/b": 3})
    return write(source, {"train/a/same.jpg": alike(900, 60), "test/b/same.jpg": alike(900, 92)})


def test_a_leak_across_given_splits_is_published_and_said(divided: Path, tmp_path: Path) -> None:
    done = run(divided, tmp_path / "root")
    assert done["near_duplicates"] == {"num_records": 2, "num_groups": 1, "num_conflicts": 1}
    assert done["leaks"]["near_duplicate_groups"] == 1
    version = opened(tmp_path / "root")
    part = version.manifest.near_duplicates
    assert part is not None
    table = version.checked_table(part.path, part.sha256).to_pylist()
    assert {(row["uri"], row["label"], row["split"]) for row in table} == {
        ("train/a/same.jpg", "a", "train"),
        ("test/b/same.jpg", "b", "test"),
    }
    assert all(0 <= row["distance"] <= 35 for row in table)
    lines = "\n".join(version_lines(done | {"peak_memory_bytes": 0}))
    assert "2 records look the same, in 1 group, 1 group under several labels" in lines
    assert "1 group is divided among the splits" in lines
    assert run(divided, tmp_path / "root")["unchanged"]


def test_a_leak_is_dropped_from_train(divided: Path, tmp_path: Path) -> None:
    done = run(divided, tmp_path / "root", leakage="drop-from-train")
    assert done["leaks"]["dropped_from_train"] == done["num_filtered"] == 1
    version = opened(tmp_path / "root")
    found = rows(version)["train/a/same.jpg"]
    assert (found["outcome"], found["reason"]) == ("filtered", "leak")
    assert found["message"] == "looks the same as test/b/same.jpg in test"
    # Once the other is gone, it is a record again.
    (divided / "test/b/same.jpg").unlink()
    run(divided, tmp_path / "root", leakage="drop-from-train")
    assert rows(opened(tmp_path / "root", 2))["train/a/same.jpg"]["outcome"] == "record"


def test_a_leak_fails_the_run_where_none_may_be(divided: Path, tmp_path: Path) -> None:
    with pytest.raises(LeakError, match=r"train/a/same.jpg \(train\) and test/b/same.jpg \(test\)"):
        run(divided, tmp_path / "root", leakage="fail")
    assert Catalog(tmp_path / "root").latest("d") is None


def test_what_looks_the_same_follows_the_earlier_version(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 30, "b": 20})
    run(source, tmp_path / "root")
    before = rows(opened(tmp_path / "root"))
    tested = next(uri for uri, row in before.items() if row["split"] == "test")
    image = Image.open(source / tested)
    sink = io.BytesIO()
    image.convert("RGB").save(sink, "PNG" if tested.endswith("jpg") else "JPEG")
    write(source, {"b/copy.img": sink.getvalue()})
    done = run(source, tmp_path / "root")
    after = rows(opened(tmp_path / "root", 2))
    assert after["b/copy.img"]["split"] == "test"
    assert {uri: after[uri]["split"] for uri in before} == {uri: row["split"] for uri, row in before.items()}
    assert done["leaks"]["near_duplicate_groups"] == 0
    # Statistics are of all records, inherited ones among them.
    manifest = Catalog(tmp_path / "root").open("d@2").manifest
    pixels = manifest.statistics["train"].pixels
    assert pixels is not None
    assert pixels.num_pixels == 48 * 64 * manifest.splits["train"].num_examples


def test_groups_by_key_stay_together(tmp_path: Path) -> None:
    files = {
        f"{'ab'[patient % 2]}/p{patient:02d}_{shot}.jpg": jpeg(patient * 10 + shot)
        for patient in range(20)
        for shot in range(3)
    }
    source = write(tmp_path / "source", files)
    run(source, tmp_path / "root", pattern=r"/(p\d+)_", leakage="fail")
    version = opened(tmp_path / "root")
    found = rows(version)
    splits: dict[str, set[str]] = {}
    for uri, row in found.items():
        assert row["group"] == uri.partition("/")[2].partition("_")[0]
        splits.setdefault(row["group"], set()).add(row["split"])
    assert all(len(names) == 1 for names in splits.values())
    assert {name: split.num_examples for name, split in version.manifest.splits.items()} == {
        "train": 48,
        "validation": 6,
        "test": 6,
    }
    indexed = {
        row["id"]: row["group"] for s in version.manifest.shards for row in version.index(s).to_pylist()
    }
    assert indexed == {row["record_id"]: row["group"] for row in found.values()}


def test_verify_sees_near_duplicates_that_were_tampered_with(divided: Path, tmp_path: Path) -> None:
    run(divided, tmp_path / "root")
    version = opened(tmp_path / "root")
    part = version.manifest.near_duplicates
    assert part is not None
    path = tmp_path / "root" / "d" / part.path
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    assert any(part.path in problem for problem in verify(version).problems)


@pytest.mark.parametrize("leakage", ["keep", "drop-from-train"])
def test_leaks_are_counted_anew_when_something_is_purged(leakage: str, divided: Path, tmp_path: Path) -> None:
    write(
        divided,
        {"train/a/cow1_x.jpg": jpeg(801), "train/a/cow2_y.jpg": jpeg(802), "train/b/plain.jpg": jpeg(805)},
    )
    write(divided, {"test/a/cow1_z.jpg": jpeg(803), "test/b/cow2_w.jpg": jpeg(804)})
    run(divided, tmp_path / "root", leakage=leakage, pattern="(cow[0-9])_")
    dropped = {"keep": 0, "drop-from-train": 3}[leakage]
    counted = Leaks(near_duplicate_groups=1, key_groups=2, dropped_from_train=dropped)
    assert opened(tmp_path / "root").manifest.leaks == counted
    for source, left in {
        "train/b/plain.jpg": counted,
        "test/a/cow1_z.jpg": counted.model_copy(update={"key_groups": 1}),
        "test/b/same.jpg": counted.model_copy(update={"key_groups": 1, "near_duplicate_groups": 0}),
    }.items():
        purge(Catalog(tmp_path / "root"), "d", [source])
        assert opened(tmp_path / "root").manifest.leaks == left


def test_duplicates_across_splits_are_counted_anew_when_one_is_purged(divided: Path, tmp_path: Path) -> None:
    for seed in (810, 811):
        write(divided, {f"{split}/a/twice{seed}.jpg": jpeg(seed) for split in ("train", "test")})
    write(divided, {f"train/{label}/inside.jpg": jpeg(812) for label in "ab"})
    run(divided, tmp_path / "root")
    assert opened(tmp_path / "root").manifest.cross_split_duplicates == 2
    purge(Catalog(tmp_path / "root"), "d", ["train/a/twice810.jpg"])
    assert opened(tmp_path / "root").manifest.cross_split_duplicates == 1


def test_splits_that_are_not_given_by_the_top_folder_are_counted_anew_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = job_module.list_inputs

    def deeper(source: SourceFolder, config: PrepareConfig, place: Workplace | None = None) -> Listing:
        """Classes on top, one of them named like a split; the splits are given below them."""
        listing = original(source, config, place)
        splits = [uri.split("/")[1] for uri in listing.table["uri"].to_pylist()]
        at = listing.table.schema.get_field_index("split")
        return Listing(listing.table.set_column(at, "split", pa.array(splits)))

    monkeypatch.setattr(job_module, "list_inputs", deeper)
    source = make_photos(tmp_path / "source", {f"{name}/train": 5 for name in ("a", "test")})
    for seed in (810, 811):
        write(source, {f"{name}/x{seed}.jpg": jpeg(seed) for name in ("a/train", "test/test", "test/train")})
    config = PrepareConfig.model_validate({"source": {"layout": "classes"}, "runner": {"processes": 2}})
    prepare_version(JobRequest(source=str(source), dataset="d", root=str(tmp_path / "root"), config=config))
    assert opened(tmp_path / "root").manifest.cross_split_duplicates == 2
    purge(Catalog(tmp_path / "root"), "d", ["a/train/x810.jpg"])
    assert opened(tmp_path / "root").manifest.cross_split_duplicates == 1


def test_rows_from_before_they_told_of_crossing_are_counted_as_before(
    divided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (810, 811):
        write(divided, {f"{split}/a/twice{seed}.jpg": jpeg(seed) for split in ("train", "test")})
    with monkeypatch.context() as patch:
        patch.setattr(inputs_module, "SAME_BYTES_ACROSS_SPLITS", SAME_BYTES)
        run(divided, tmp_path / "root")
    for source, left in {
        "train/a/00001.jpg": 2,
        "train/a/twice810.jpg": 1,
        "train/a/twice811.jpg": 0,
    }.items():
        purge(Catalog(tmp_path / "root"), "d", [source])
        assert opened(tmp_path / "root").manifest.cross_split_duplicates == left


def test_groups_that_join_all_images_are_warned_of(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 12, "b": 9})
    outcome = run(source, tmp_path / "root", pattern="(g)$")
    assert outcome["splits"]["train"]["num_examples"] == 21
    said = "No example is in validation and test: all 21 records are in train."
    remedy = "A group stays in one split: name a finer key with groups.pattern"
    assert outcome["empty_splits"] == ["validation", "test"]
    page = Path(outcome["report"]).read_text(encoding="utf-8")
    assert said in page
    assert remedy in page
    divided = run(source, tmp_path / "divided")
    assert divided["empty_splits"] == []
    assert "No example is in" not in Path(divided["report"]).read_text(encoding="utf-8")

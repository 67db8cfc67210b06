"""A folder of made images to a published version, by the command and in process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.config import PrepareConfig
from beam_jobs.job import run_job
from beam_jobs.request import JobRequest
from infra.catalog import Catalog, DatasetVersion
from infra.contract import SPLITS
from infra.errors import ConfigError, DataError, FailureBudgetExceeded, LockedError, NotFoundError
from infra.examples import parse_example
from infra.records import iter_records
from infra.verify import verify
from tests.samples.command import prepare_command
from tests.samples.photos import jpeg, make_photos, png, rotated_jpeg, write

CLOTHING = Path(__file__).parents[2] / "../shared/data/clothing"


def prepare(source: Path, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = prepare_command(source, root, *more)
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)


def prepared(source: Path, root: Path, *more: str) -> dict[str, Any]:
    done = prepare(source, root, "--json", *more)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def run(source: Path, root: Path, **config: Any) -> dict[str, Any]:
    config = {"runner": {"workers": 2, "block_images": 8}, **config}
    return run_job(
        JobRequest(
            source=str(source), dataset="d", root=str(root), config=PrepareConfig.model_validate(config)
        )
    )


def rows(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    return {row["uri"]: row for row in version.inputs().to_pylist()}


def stored_bytes(root: Path) -> dict[str, bytes]:
    """Relative path -> content of all shards, indexes and inputs."""
    data = root / "d" / "data"
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name != "report.html"
    }


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """Every kind of input that there is."""
    source = make_photos(tmp_path / "source", {"cat": 12, "dog": 8})
    return write(
        source,
        {
            "cat/rotated.jpg": rotated_jpeg(900, orientation=6),
            "cat/deeper/still/cat.png": png(901),
            "cat/same.jpg": jpeg(902),
            "dog/same too.jpg": jpeg(902),
            "dog/copy.png": png(901),
            "cat/zz copy.png": png(901),
            "cat/broken.jpg": jpeg(903)[:-60],
            "cat/empty.png": b"",
            "dog/no image.jpg": b"GIF? no, nothing of the kind",
            "dog/notes.txt": b"ignored",
            "dog/.DS_Store": b"ignored",
            ".git/config": b"ignored",
            "README.md": b"ignored",
            "stray.jpg": jpeg(904),
        },
    )


def test_every_input_has_its_outcome(messy: Path, tmp_path: Path) -> None:
    done = prepared(messy, tmp_path / "root", "--failure-budget", "0.5")

    assert done["num_inputs"] == 34
    assert (done["num_filtered"], done["num_quarantined"]) == (4, 4)
    assert (done["num_duplicates"], done["num_records"]) == (3, 23)
    assert done["quarantine"] == {"empty": 1, "no_class": 1, "truncated": 1, "unknown_format": 1}
    assert done["num_label_conflicts"] == 2
    assert done["class_counts_before"] == {"cat": 18, "dog": 11}
    assert done["peak_memory_bytes"] > 50 << 20
    assert not done["unchanged"]

    version = Catalog(tmp_path / "root").open("d")
    assert verify(version).problems == []
    found = rows(version)
    kept = found["cat/deeper/still/cat.png"]
    assert (kept["outcome"], kept["label"]) == ("record", "cat")
    assert found["cat/zz copy.png"]["outcome"] == found["dog/copy.png"]["outcome"] == "duplicate"
    assert found["dog/copy.png"]["record_id"] == kept["record_id"]
    assert found["dog/copy.png"]["split"] == kept["split"]
    assert found["dog/copy.png"]["message"] == "the same bytes as cat/deeper/still/cat.png"
    assert found["stray.jpg"]["reason"] == "no_class"
    assert (found["cat/empty.png"]["stage"], found["cat/empty.png"]["reason"]) == ("decode", "empty")
    assert found[".git/config"]["reason"] == "ignored"
    assert "'.*'" in found["dog/.DS_Store"]["message"]
    conflicts = {tuple(conflict.uris) for conflict in version.manifest.label_conflicts}
    assert conflicts == {
        ("cat/deeper/still/cat.png", "cat/zz copy.png", "dog/copy.png"),
        ("cat/same.jpg", "dog/same too.jpg"),
    }
    left = {path.suffix for path in (tmp_path / "root/d/spool").iterdir()}
    assert left == {".lock"}, "the spool is gone after publishing"
    report = (tmp_path / "root/d") / str(version.manifest.report)
    assert "cat/same.jpg" in report.read_text()


def test_a_rotated_image_is_stored_upright(messy: Path, tmp_path: Path) -> None:
    run(messy, tmp_path / "root", failure_budget=0.5, image={"size": 24})
    version = Catalog(tmp_path / "root").open("d")
    record_id = rows(version)["cat/rotated.jpg"]["record_id"]
    for shard in version.manifest.shards:
        for row in version.index(shard).to_pylist():
            if row["id"] == record_id:
                assert (row["source_height"], row["source_width"], row["orientation"]) == (48, 64, 6)
                assert (row["height"], row["width"]) == (32, 24)
                return
    pytest.fail("the rotated image is in no shard")


@pytest.mark.parametrize("container", ["gzip", "none"])
def test_stock_tensorflow_reads_every_record(container: str, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 30, "b": 21})
    done = run(source, tmp_path / "root", shards={"num_shards": 2, "container": container})
    pattern = "*.tfrecord.gz" if container == "gzip" else "*.tfrecord"
    paths = sorted(str(path) for path in (tmp_path / "root").rglob(pattern))
    assert len(paths) == sum(split["num_shards"] for split in done["splits"].values())
    # In a process of its own, with no code of ours: TensorFlow takes 5 s to load and half a gigabyte.
    script = (
        "import sys, tensorflow as tf\n"
        "feature = tf.io.FixedLenFeature\n"
        "spec = {'image': feature([], tf.string), 'label': feature([], tf.int64)}\n"
        "records = tf.data.TFRecordDataset(sys.argv[2:], compression_type=sys.argv[1])\n"
        "parsed = [tf.io.parse_single_example(record, spec) for record in records]\n"
        "shapes = {tuple(tf.io.decode_jpeg(example['image']).shape) for example in parsed}\n"
        "print(len(parsed), sum(int(example['label']) for example in parsed), shapes)\n"
    )
    kind = "GZIP" if container == "gzip" else ""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    read = subprocess.run(
        [sys.executable, "-c", script, kind, *paths],
        capture_output=True, text=True, timeout=240, check=False, env=environment,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    assert read.stdout.split("\n")[0] == "51 21 {(48, 64, 3)}"
    assert done["num_records"] == 51


def test_the_result_is_the_same_whatever_the_workers_and_blocks(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 40, "b": 25, "c": 3})
    settings: dict[str, Any] = {"shards": {"num_shards": 3}}
    run(source, tmp_path / "one", runner={"workers": 1, "block_images": 4}, **settings)
    run(source, tmp_path / "two", runner={"workers": 3, "block_images": 64}, **settings)
    one, two = stored_bytes(tmp_path / "one"), stored_bytes(tmp_path / "two")
    assert len(one) == 2 * 9 + 2  # and the inputs, and the near-duplicates
    assert one == two


def test_another_seed_gives_another_order(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 40, "b": 25})
    run(source, tmp_path / "one", seed=1)
    run(source, tmp_path / "two", seed=2)
    one, two = (Catalog(tmp_path / name).open("d").inputs()["split"].to_pylist() for name in ("one", "two"))
    assert one != two
    assert Counter(one) == Counter(two) == {"train": 52, "validation": 7, "test": 6}


def test_given_splits_are_honoured(tmp_path: Path) -> None:
    source = make_photos(
        tmp_path / "source", {"train/a": 9, "train/b": 5, "val/a": 3, "test/a": 2, "test/b": 2}
    )
    write(source, {"train/zz/copy.jpg": (source / "test/a/00001.jpg").read_bytes()})
    done = run(source, tmp_path / "root")
    assert {name: split["num_examples"] for name, split in done["splits"].items()} == {
        "train": 14,
        "validation": 3,
        "test": 4,
    }
    assert done["num_cross_split_duplicates"] == 1
    version = Catalog(tmp_path / "root").open("d")
    assert verify(version).problems == []
    assert version.manifest.classes == ["a", "b"], "a class without a record is no class"
    assert all(
        row["split"] == {"val": "validation"}.get(uri.split("/")[0], uri.split("/")[0])
        for uri, row in rows(version).items()
        if row["outcome"] == "record"
    )


def test_records_hold_what_the_index_says(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 20, "b": 10}, height=60, width=30)
    run(source, tmp_path / "root", image={"size": 16, "channels": 1, "quality": 70})
    version = Catalog(tmp_path / "root").open("d")
    seen = set()
    for shard in version.manifest.shards:
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container):
            record = parse_example(payload)
            assert (record.height, record.width, record.channels) == (32, 16, 1)
            seen.add(record.id)
    assert len(seen) == 30


def test_nothing_happens_where_nothing_has_changed(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8, "b": 8})
    first = prepared(source, tmp_path / "root")
    again = prepared(source, tmp_path / "root", "--set", "runner.workers=1")
    assert (again["version"], again["unchanged"]) == (1, True)
    assert again["splits"] == first["splits"]
    assert "encode" not in again["stage_seconds"]

    write(source, {"a/new.jpg": jpeg(700)})
    changed = run(source, tmp_path / "root")
    assert (changed["version"], changed["num_records"], changed["unchanged"]) == (2, 17, False)
    assert Catalog(tmp_path / "root").open("d").manifest.parent == 1
    assert verify(Catalog(tmp_path / "root").open("d@1")).problems == []


def test_a_source_that_is_what_it_was_before_shares_its_shards(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8, "b": 8})
    run(source, tmp_path / "root")
    first = stored_bytes(tmp_path / "root")
    extra = write(source, {"a/new.jpg": jpeg(700)}) / "a/new.jpg"
    run(source, tmp_path / "root")
    extra.unlink()
    back = run(source, tmp_path / "root")
    assert (back["version"], back["unchanged"], back["inherited_shards"]) == (3, False, 3)
    one, three = (Catalog(tmp_path / "root").open(f"d@{version}").manifest for version in (1, 3))
    assert one.shards == three.shards
    assert first.items() <= stored_bytes(tmp_path / "root").items()


def test_a_version_whose_files_were_deleted_is_made_again(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8})
    run(source, tmp_path / "root")
    next((tmp_path / "root").rglob("train-*.tfrecord*")).unlink()
    again = run(source, tmp_path / "root")
    assert (again["version"], again["unchanged"]) == (2, False)
    assert verify(Catalog(tmp_path / "root").open("d@1")).problems == []


def test_the_failure_budget_stops_the_job_and_resuming_costs_nothing(messy: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FailureBudgetExceeded, match=r"4 of 30 inputs .*13\.33%.*nothing was published"
    ) as caught:
        run(messy, tmp_path / "root")
    assert Catalog(tmp_path / "root").versions("d") == []
    assert "inputs.parquet" in str(caught.value.remedy)
    done = run(messy, tmp_path / "root", failure_budget=0.2)
    assert done["reused"]["images"] == 29, "a larger budget reads no file again"
    assert done["num_records"] == 23


def test_all_filtered_is_an_error(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 3})
    with pytest.raises(DataError, match="none of 3 inputs became a record: 3 filtered"):
        run(source, tmp_path / "root", filter={"min_width": 1000})


def test_filters_leave_rows(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 5, "b": 5})
    write(source, {"a/long.jpg": jpeg(800, 16, 200), "a/small.png": png(801, 8, 8)})
    done = run(source, tmp_path / "root", filter={"min_width": 20, "max_aspect": 4, "classes": ["a"]})
    assert (done["num_records"], done["num_filtered"], done["num_quarantined"]) == (5, 7, 0)
    found = rows(Catalog(tmp_path / "root").open("d"))
    assert found["a/long.jpg"]["reason"] == "aspect"
    assert (found["a/small.png"]["stage"], found["a/small.png"]["reason"]) == ("filter", "too_small")
    assert found["b/00001.jpg"]["reason"] == "class"


def test_names_that_are_not_text_go_all_the_way(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 4})
    odd = os.fsencode(source) + b"/caf\xe9"
    Path(os.fsdecode(odd)).mkdir()
    Path(os.fsdecode(odd + b"/\xff\xfe.jpg")).write_bytes(jpeg(500))
    source = source.rename(os.fsdecode(os.fsencode(tmp_path) + b"/p\xe4th"))
    write(source, {"a/quote ' \" <b> \\xff ünï 图.jpg": jpeg(501)})
    done = prepared(source, tmp_path / "root")
    assert (done["num_records"], done["num_quarantined"]) == (6, 0)
    assert done["classes"] == ["a", "caf\\xe9"]
    version = Catalog(tmp_path / "root").open("d")
    assert verify(version).problems == []
    assert {"caf\\xe9/\\xff\\xfe.jpg", "a/quote ' \" <b> \\x5cxff ünï 图.jpg"} <= set(rows(version))


def test_a_second_run_on_the_same_work_is_turned_away(tmp_path: Path) -> None:
    from beam_jobs.digests import Digests
    from beam_jobs.sources import list_inputs
    from beam_jobs.sources.folder import SourceFolder

    source = make_photos(tmp_path / "source", {"a": 4})
    config = PrepareConfig.model_validate({"runner": {"workers": 2, "block_images": 8}})
    digests = Digests.of(str(source), list_inputs(SourceFolder(str(source)), config), config)
    storage = Catalog(tmp_path / "root").dataset_storage("d")
    with storage.exclusive_lock(f"spool/{digests.run}.lock"), pytest.raises(LockedError, match="pid"):
        run(source, tmp_path / "root")
    assert run(source, tmp_path / "root")["version"] == 1


def test_a_full_disk_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from infra import storage as storage_module

    source = make_photos(tmp_path / "source", {"a": 20})
    fsync = os.fsync
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(storage_module.os, "fsync", full)
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
    done = prepare(source, tmp_path / "root", *more)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_missing_source_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = prepare(tmp_path / "nowhere", tmp_path / "root")
    assert done.returncode == 2
    assert "is not there" in done.stderr
    assert "remedy:" in done.stderr


def test_dry_run_writes_nothing_and_foresees_the_splits(messy: Path, tmp_path: Path) -> None:
    foreseen = prepared(messy, tmp_path / "root", "--dry-run", "--failure-budget", "0.5")
    assert not (tmp_path / "root").exists()
    assert foreseen["classes"] == {"cat": 18, "dog": 11}
    assert (foreseen["num_inputs"], foreseen["num_filtered"], foreseen["num_quarantined"]) == (34, 4, 1)
    assert sum(split["num_examples"] for split in foreseen["splits"].values()) == 29
    assert set(foreseen["splits"]) == set(SPLITS)
    assert foreseen["disk_bytes"] > 29 * 176

    told = prepare(messy, tmp_path / "root", "--dry-run")
    assert "nothing was written" in told.stdout
    assert "18  cat" in told.stdout


def test_dry_run_is_close_to_the_run_where_nothing_is_lost(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 33, "b": 17})
    foreseen = prepared(source, tmp_path / "root", "--dry-run", "--set", "shards.num_shards=2")
    done = prepared(source, tmp_path / "root", "--set", "shards.num_shards=2")
    for split in SPLITS:
        for key in ("num_examples", "num_shards", "class_counts"):
            assert foreseen["splits"][split][key] == done["splits"][split][key]
        assert foreseen["splits"][split]["num_bytes"] == pytest.approx(
            done["splits"][split]["num_bytes"], rel=0.25
        )


def test_the_source_must_not_change_between_versions_unseen(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 6})
    run(source, tmp_path / "root")
    os.utime(source / "a/00001.jpg", ns=(1, 1))
    assert run(source, tmp_path / "root")["version"] == 2


def test_nothing_to_prepare(tmp_path: Path) -> None:
    write(tmp_path / "source", {"a/notes.txt": b"x"})
    with pytest.raises(NotFoundError, match=r"only 1 file that filter\.ignore names"):
        run(tmp_path / "source", tmp_path / "root")
    with pytest.raises(ConfigError):
        JobRequest(source="x", dataset="a/b", root="y")


@pytest.mark.skipif(not CLOTHING.is_dir(), reason=f"no shared photographs at {CLOTHING}")
def test_photographs(tmp_path: Path) -> None:
    done = prepared(CLOTHING, tmp_path / "root", "--set", "shards.num_shards=4")
    assert (done["num_inputs"], done["num_records"], done["num_filtered"]) == (3783, 3781, 2)
    assert {name: split["num_examples"] for name, split in done["splits"].items()} == {
        "train": 3068,
        "validation": 341,
        "test": 372,
    }
    assert verify(Catalog(tmp_path / "root").open("d")).problems == []
    assert done["peak_memory_bytes"] < 400 << 20

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

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.format.examples import parse_example
from shardmill.infra.format.records import iter_records
from tests.samples.images.photos import jpeg, make_photos, png, write
from tests.samples.preparing.prepared import prepared, rows, run, stored_bytes
from tests.samples.strict_json import strict_documents

CLOTHING = Path(__file__).parents[3] / "../shared/data/clothing"


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
    assert strict_documents(tmp_path / "root")[".json"] > 0


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


def test_stock_tensorflow_reads_every_record(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 30, "b": 21})
    paths = []
    for container in ("gzip", "none"):
        done = run(source, tmp_path / container, shards={"num_shards": 2, "container": container})
        assert done["num_records"] == 51
        pattern = "*.tfrecord.gz" if container == "gzip" else "*.tfrecord"
        found = sorted(str(path) for path in (tmp_path / container).rglob(pattern))
        assert len(found) == sum(split["num_shards"] for split in done["splits"].values())
        paths.append(found)
    # In a process of its own, with no code of ours: TensorFlow takes 5 s to load and half a gigabyte.
    script = (
        "import json, sys, tensorflow as tf\n"
        "feature = tf.io.FixedLenFeature\n"
        "spec = {'image': feature([], tf.string), 'label': feature([], tf.int64)}\n"
        "for kind, paths in zip(('GZIP', ''), json.loads(sys.argv[1])):\n"
        "    records = tf.data.TFRecordDataset(paths, compression_type=kind)\n"
        "    parsed = [tf.io.parse_single_example(record, spec) for record in records]\n"
        "    shapes = {tuple(tf.io.decode_jpeg(example['image']).shape) for example in parsed}\n"
        "    print(len(parsed), sum(int(example['label']) for example in parsed), shapes)\n"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    read = subprocess.run(
        [sys.executable, "-c", script, json.dumps(paths)],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines() == ["51 21 {(48, 64, 3)}"] * 2


def test_the_result_is_the_same_whatever_the_workers_and_blocks(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 40, "b": 25, "c": 3})
    settings: dict[str, Any] = {"shards": {"num_shards": 3}}
    run(source, tmp_path / "one", runner={"processes": 1, "block_images": 4}, **settings)
    run(source, tmp_path / "two", runner={"processes": 3, "block_images": 64}, **settings)
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

"""A folder of videos through prepare and training: one split a video; later versions decode what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from tests.samples.images.photos import write
from tests.samples.images.videos import video
from tests.samples.preparing.prepared import rows, run
from tests.samples.training.trainer import settings, train_here

FORMS = [("mpeg4", "avi"), ("libx264", "mp4"), ("libvpx-vp9", "webm")]
NUM_VIDEOS, NUM_FRAMES = 8, 6
SETTINGS: dict[str, Any] = {
    "image": {"size": 32}, "groups": {"near_duplicates": False}, "failure_budget": 0.1,
    "runner": {"processes": 2, "block_images": 4},
}  # fmt: skip


def add_videos(source: Path, numbers: range) -> None:
    for number in numbers:
        codec, form = FORMS[number % 3]
        shown = range(number * NUM_FRAMES, (number + 1) * NUM_FRAMES)
        write(source / ("odd" if number % 2 else "even"), {f"{number:02}.{form}": video(shown, codec, form)})


def prepare(source: Path, root: Path, options: dict[str, Any]) -> dict[str, Any]:
    return run(source, root, source={"kind": "video", "options": options}, **SETTINGS)


def index(root: Path) -> list[dict[str, Any]]:
    version = Catalog(str(root)).open("d")
    return [row for shard in version.manifest.shards for row in version.index(shard).to_pylist()]


def test_versions(tmp_path: Path) -> None:
    source, root = tmp_path / "videos", tmp_path / "root"
    add_videos(source, range(NUM_VIDEOS))
    data = video(range(200, 250), "libvpx-vp9", "webm")
    write(source, {"odd/cut.webm": data[: len(data) // 2]})
    first = prepare(source, root, {"rate": 5})
    version = Catalog(str(root)).open("d")
    assert version.manifest.codecs["av"]
    found = rows(version)
    assert found["even/00.avi"]["message"] == "3 of its 6 frames are read"
    (lost,) = (row for row in found.values() if row["reason"] == "broken_container")
    assert lost["uri"].startswith("odd/cut.webm#frame=")
    splits: dict[str, set[str]] = {}
    for uri, row in found.items():
        if row["record_id"]:
            splits.setdefault(uri.partition("#")[0], set()).add(row["split"])
    assert len(splits) == NUM_VIDEOS + 1
    assert all(len(one) == 1 for one in splits.values()), "the frames of a video are in one split"
    assert set.union(*splits.values()) == {"train", "validation", "test"}
    (frame,) = (row for row in index(root) if row["source_uri"] == "odd/01.mp4#frame=0000004")
    assert (frame["frame"], frame["time_seconds"], frame["group"]) == (4, pytest.approx(0.4), "odd/01.mp4")
    assert prepare(source, root, {"rate": 5})["unchanged"]
    add_videos(source, range(NUM_VIDEOS, NUM_VIDEOS + 1))
    grown = prepare(source, root, {"rate": 5})
    assert (grown["version"], grown["num_encoded"]) == (2, 3)
    assert grown["num_records"] == first["num_records"] + 3


def test_scenes_of_later_versions(tmp_path: Path) -> None:
    source, root = tmp_path / "videos", tmp_path / "root"
    write(source, {"a/1.mp4": video([1] * 8 + [254] * 8), "b/2.mp4": video([3] * 8)})
    first = prepare(source, root, {"scenes": 0.1})
    assert (first["num_records"], first["num_filtered"]) == (3, 2 + 7 + 7 + 7)
    assert {row["frame"] for row in index(root)} == {0, 8}
    write(source, {"b/3.mp4": video([7] * 4)})
    grown = prepare(source, root, {"scenes": 0.1})
    assert (grown["num_records"], grown["num_filtered"]) == (4, 3 + 7 + 7 + 7 + 3)
    assert grown["num_encoded"] == 4, "known frames that begin no scene are not read again"


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    for number in range(16):
        shown = [(number + at) % 16 + 200 * (number % 2) for at in range(4)]
        write(tmp_path / "videos" / ("odd" if number % 2 else "even"), {f"{number}.mp4": video(shown)})
    config = {"splits": {"train": 0.5, "validation": 0.25, "test": 0.25}, **SETTINGS}
    run(
        tmp_path / "videos",
        tmp_path / "datasets",
        source={"kind": "video", "options": {"rate": "all"}},
        **config,
    )
    asked = settings(model={"name": "small_cnn"}, optimizer={"learning_rate": 0.02}, run={"epochs": 4})
    result = train_here(tmp_path, "d", asked)
    assert result["metrics"]["validation"]["num_examples"] > 0
    assert result["on_source_files"]["not_read"] == {
        "inside other files": result["metrics"]["test"]["num_examples"]
    }

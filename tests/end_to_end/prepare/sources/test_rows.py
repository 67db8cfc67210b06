"""Images that are rows of files, through the whole of prepare, and again after files were added."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.format.records import frame
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import rows, run, stored_bytes
from tests.samples.sources.rows import example, hugging_face_table, write_parquet

NAMES = ("cat", "dog", "cow")


def config(kind: str, **more: Any) -> dict[str, Any]:
    return {"source": {"kind": kind, **more}, "image": {"size": 16}, "failure_budget": 0.3}


def test_parquet_grows_by_files(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    images: list[bytes | None] = [jpeg(number) for number in range(24)]
    images[5], images[9], images[11] = None, jpeg(9)[:-60], jpeg(0)
    labels = [number % 3 for number in range(24)]
    write_parquet(source / "train-00000-of-00002.parquet", hugging_face_table(images, labels, NAMES))
    first = run(source, root, **config("parquet"))
    assert first["num_encoded"] == 24
    found = rows(Catalog(str(root)).open("d"))
    assert Counter(row["reason"] or row["outcome"] for row in found.values()) == {
        "record": 21, "same_bytes": 1, "no_image": 1, "truncated": 1, "row_file": 1
    }  # fmt: skip
    page = Path(first["report"]).read_text(encoding="utf-8")
    assert REASONS["no_image"][0] in page
    assert run(source, root, **config("parquet"))["unchanged"]
    more = hugging_face_table([jpeg(30 + number) for number in range(6)], labels[:6], NAMES)
    write_parquet(source / "train-00001-of-00002.parquet", more)
    write(source, {"broken.parquet": b"PAR1"})
    second = run(source, root, **config("parquet"))
    assert second["num_encoded"] == 6 + 1, "the rows of the new file, and the one that had no image"
    version = Catalog(str(root)).open("d")
    assert version.manifest.quarantine == {"broken_container": 1, "no_image": 1, "truncated": 1}
    assert not verify(version).problems


def test_the_same_images_make_the_same_records_from_any_kind(tmp_path: Path) -> None:
    images = [jpeg(number) for number in range(12)]
    folder = {f"{NAMES[number % 3]}/{number}.jpg": image for number, image in enumerate(images)}
    write(tmp_path / "folder", folder)
    write_parquet(
        tmp_path / "parquet/a.parquet", hugging_face_table(images, [n % 3 for n in range(12)], NAMES)
    )
    framed = b"".join(
        frame(example(image=[image], label=[number % 3])) for number, image in enumerate(images)
    )
    write(tmp_path / "tfrecord", {"a.tfrecord.gz": gzip.compress(framed)})
    run(tmp_path / "folder", tmp_path / "out/folder", image={"size": 16})
    run(tmp_path / "parquet", tmp_path / "out/parquet", **config("parquet"))
    run(
        tmp_path / "tfrecord", tmp_path / "out/tfrecord", **config("tfrecord", columns={"class_names": NAMES})
    )
    versions = [Catalog(str(tmp_path / "out" / kind)).open("d") for kind in ("folder", "parquet", "tfrecord")]
    assert len({tuple(sorted(record_ids(version))) for version in versions}) == 1
    assert not (tmp_path / "out/tfrecord/d/spool").exists() or not any(
        (tmp_path / "out/tfrecord/d/spool").rglob("unpacked/*")
    ), "unpacked copies are gone"


def record_ids(version: Any) -> list[tuple[str, str]]:
    return [(row["record_id"], row["label"]) for row in rows(version).values() if row["outcome"] == "record"]


@pytest.mark.slow
def test_arrays_in_two_roots_have_the_same_bytes(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    (tmp_path / "source").mkdir()
    np.savez_compressed(tmp_path / "source/a.npz", x=pixels, y=np.arange(12) % 2)
    stored = []
    for processes in (1, 2):
        root = tmp_path / f"root{processes}"
        runner = {"processes": processes, "block_images": 4}
        image = {"resize": "none", "encoding": "png", "channels": 1}
        outcome = run(tmp_path / "source", root, source={"kind": "arrays"}, image=image, runner=runner)
        assert outcome["num_records"] == 12
        stored.append(stored_bytes(root))
    assert stored[0] == stored[1]

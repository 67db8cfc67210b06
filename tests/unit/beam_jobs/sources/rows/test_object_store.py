"""Row files of every kind in an object store, listed and read as on a local disk."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.errors import NotFoundError
from shardmill.infra.format.records import frame
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.imports import import_of
from tests.samples.sources.rows import example, hugging_face_table, images_of, write_parquet
from tests.samples.sources.tfds_folders import make_tfds
from tests.samples.stores.object_store import KEY, SECRET, serve


def test_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    credentials = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "EC2_METADATA_DISABLED": "true"}
    for name, value in credentials.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    images = [jpeg(number) for number in range(6)]
    payloads = [example(image=[image], label=[0]) for image in images]
    source = tmp_path / "source"
    write_parquet(source / "parquet/a.parquet", hugging_face_table(images, [0] * 6, ["cat"]), 2)
    framed = b"".join(map(frame, payloads))
    write(source, {"tfrecord/a.tfrecord": framed, "tfrecord/b.tfrecord.gz": gzip.compress(framed)})
    (source / "array_record").mkdir()
    writer = ArrayRecordWriter(str(source / "array_record/a.array_record"), "group_size:1")
    for payload in payloads:
        writer.write(payload)
    writer.close()
    (source / "arrays").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    np.savez(source / "arrays/a.npz", x=pixels, y=np.zeros(6, int))
    make_tfds(source / "tfds", {"train": [payloads]})
    with serve("rows") as store:
        store.upload(source)
        for kind in ("parquet", "tfrecord", "array_record", "arrays", "tfds"):
            local = images_of(source / kind, kind, tmp_path / kind)
            assert images_of(store.location(kind), kind, tmp_path / f"{kind}2") == local
            if kind != "arrays":
                assert list(local.values()) == images * (len(local) // 6)
        found = import_of(store.location("tfds"), tmp_path / "root").config
        assert (found.source.kind, found.image.encoding, found.image.passthrough) == ("tfds", "jpeg", True)
        with pytest.raises(NotFoundError, match=r"has no dataset_info\.json"):
            images_of(store.location("arrays"), "tfds")

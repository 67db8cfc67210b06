"""Published datasets for tests of the reader and the trainer, written by the contract alone (no Beam)."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.codecs import Pixels
from infra.codecs.encode import Encoding, encode
from infra.dataset.catalog import Catalog
from infra.dataset.version import DatasetVersion
from infra.digests import sha256_hex
from infra.format.contract import INDEX_SCHEMA, SPLITS, Accounting, Manifest, Shard, summarise_splits
from infra.format.examples import ImageRecord, build_example
from infra.format.layout import data_dir, index_file, shard_file
from infra.format.records import Container, pack_record
from infra.storage.filesystem import Storage

PLAN = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Picture:
    """One example to publish."""

    split: str
    label_name: str
    pixels: Pixels


def publish(
    root: Path,
    pictures: Sequence[Picture],
    *,
    name: str = "sample",
    classes: Sequence[str] | None = None,
    container: Container = "gzip",
    shards_per_split: int = 2,
    quality: int = 92,
    encoding: Encoding = "jpeg",
) -> DatasetVersion:
    """Publish ``pictures`` as version 1 of a dataset; each must be different from the others."""
    storage = Storage.at(root / name)
    names = list(classes or sorted({picture.label_name for picture in pictures}))
    shards = []
    for split in SPLITS:
        members = [picture for picture in pictures if picture.split == split]
        count = min(shards_per_split, len(members))
        for i in range(count):
            paths = (
                f"{data_dir(PLAN)}/{shard_file(split, i, count, container)}",
                f"{data_dir(PLAN)}/{index_file(split, i, count)}",
            )
            stored = [encode(picture.pixels, encoding, quality) for picture in members[i::count]]
            shards.append(_write_shard(storage, paths, split, members[i::count], stored, names, container))
    total = len(pictures)
    manifest = Manifest(
        dataset=name,
        version=1,
        created_at="2026-01-02T03:04:05Z",
        plan_digest=PLAN,
        run_digest=PLAN,
        source="/made/for/tests",
        source_digest=PLAN,
        classes=names,
        container=container,
        image_encoding=encoding,
        config={},
        codecs={},
        shards=shards,
        inputs=[],
        accounting=Accounting(
            num_inputs=total, num_records=total, num_duplicates=0, num_filtered=0, num_quarantined=0
        ),
        splits=summarise_splits(shards),
    )
    return Catalog(root).publish(manifest)


def _write_shard(
    storage: Storage,
    paths: tuple[str, str],
    split: str,
    members: Sequence[Picture],
    images: Sequence[bytes],
    classes: list[str],
    container: Container,
) -> Shard:
    stored, rows, payload = bytearray(), [], 0
    for picture, image in zip(members, images, strict=True):
        sha256 = hashlib.sha256(picture.pixels.tobytes() + split.encode()).hexdigest()
        height, width, channels = picture.pixels.shape
        label = classes.index(picture.label_name)
        record = ImageRecord(sha256[:16], image, label, picture.label_name, height, width, channels)
        packed = pack_record(build_example(record), container)
        row = dict.fromkeys(INDEX_SCHEMA.names) | {
            "id": record.id,
            "offset_bytes": len(stored),
            "length_bytes": len(packed),
            "label": label,
            "sha256": sha256,
            "stored_bytes": len(image),
            "height": height,
            "width": width,
        }
        rows.append(row)
        stored += packed
        payload += len(image)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, INDEX_SCHEMA), sink)
    storage.write_atomic(paths[0], bytes(stored))
    storage.write_atomic(paths[1], sink.getvalue())
    return Shard(
        path=paths[0],
        index_path=paths[1],
        split=split,
        num_examples=len(rows),
        num_bytes=len(stored),
        payload_bytes=payload,
        sha256=sha256_hex(bytes(stored)),
        index_bytes=len(sink.getvalue()),
        index_sha256=sha256_hex(sink.getvalue()),
        class_counts=dict(Counter(picture.label_name for picture in members)),
    )


def coloured(counts: dict[str, dict[str, int]], *, size: tuple[int, int] = (40, 52)) -> list[Picture]:
    """Pictures whose class is their colour: {split: {class: number}}. Quick to learn, no two alike."""
    chance = np.random.default_rng(5)
    names = sorted({name for of_split in counts.values() for name in of_split})
    pictures = []
    for split, of_split in counts.items():
        for name, number in of_split.items():
            hue = 180 * names.index(name) // len(names)
            for _ in range(number):
                colour = np.array([[[hue, 180, 200]]], np.uint8)
                base = cv2.cvtColor(colour, cv2.COLOR_HSV2RGB)[0, 0].astype(np.int16)
                noise = chance.integers(-40, 41, (*size, 1))
                pictures.append(Picture(split, name, np.clip(base + noise, 0, 255).astype(np.uint8)))
    return pictures


def digits(*, size: int = 64, splits: Iterable[float] = (0.8, 0.1, 0.1)) -> list[Picture]:
    """The 1,797 handwritten digits of scikit-learn, enlarged to ``size`` pixels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    bounds = np.cumsum(list(splits))
    order = np.random.default_rng(0).permutation(len(data.images))
    pictures = []
    for rank, number in enumerate(order):
        small = np.rint(data.images[number] * (255 / 16)).astype(np.uint8)
        large = cv2.resize(small, (size, size), interpolation=cv2.INTER_CUBIC)
        pixels = np.repeat(large[:, :, np.newaxis], 3, axis=2)
        split = SPLITS[int(np.searchsorted(bounds, (rank + 0.5) / len(order)))]
        pictures.append(Picture(split, str(data.target[number]), pixels))
    return pictures

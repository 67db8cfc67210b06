"""Published datasets for tests of the reader and the trainer, written by the contract alone (no Beam)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.codecs import Pixels, encode
from shardmill.infra.codecs.arrays import encode_samples
from shardmill.infra.codecs.measures import looks, thumbnail, without_border
from shardmill.infra.codecs.prepare import luma
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.contract import (
    INDEX_SCHEMA,
    SPLITS,
    Accounting,
    ChannelStatistics,
    Manifest,
    Shard,
    SplitStatistics,
    class_counts_of,
    described_features,
    format_version_of,
    summarise_splits,
)
from shardmill.infra.format.examples import ImageRecord, build_example
from shardmill.infra.format.features import Feature, FeatureValues
from shardmill.infra.format.known_features import (
    LABELS,
    NO_CLASS,
    TARGETS,
    LabelKind,
    labels_feature,
    targets_feature,
)
from shardmill.infra.format.layout import data_dir, index_file, shard_file
from shardmill.infra.format.records import Container, pack_record
from shardmill.infra.preparation import Encoding, SampleKind
from shardmill.infra.storage.filesystem import Storage

PLAN = "0123456789abcdef"
_KINDS: dict[str, LabelKind] = {LABELS: "multi", TARGETS: "targets"}


@dataclass(frozen=True, slots=True)
class Picture:
    """One example to publish: with the name of its class, or with labels or numbers in ``values``."""

    split: str
    label_name: str
    pixels: npt.NDArray[Any]
    values: tuple[int, ...] | tuple[float, ...] | None = None


def publish(  # noqa: PLR0913
    root: Path,
    pictures: Sequence[Picture],
    *,
    name: str = "sample",
    classes: Sequence[str] | None = None,
    container: Container = "gzip",
    shards_per_split: int = 2,
    quality: int = 92,
    encoding: Encoding = "jpeg",
    feature: Feature | None = None,
    has_looks: bool = False,
) -> DatasetVersion:
    """Publish ``pictures`` as version 1 of a dataset; each must be different from the others.

    ``has_looks``: the indexes have the looks of the pictures, by which near-duplicates are found.

    Pictures that are not uint8 of one or three channels have statistics in the manifest, by numpy in float64.

    ``feature``: that of the ``values`` of the pictures, "labels" or "targets"; None: they have classes, or
    with empty ``classes`` no labels.
    """
    storage = Storage.at(root / name)
    first = pictures[0].pixels
    samples = SampleKind(first.dtype.name, first.shape[2])  # type: ignore[arg-type]
    stored_as = samples.stored_as(encoding)
    names = list(sorted({picture.label_name for picture in pictures}) if classes is None else classes)
    kind: LabelKind = _KINDS[feature.name] if feature is not None else "class" if names else "none"
    shards = []
    for split in SPLITS:
        members = [picture for picture in pictures if picture.split == split]
        count = min(shards_per_split, len(members))
        for i in range(count):
            paths = (
                f"{data_dir(PLAN)}/{shard_file(split, i, count, container)}",
                f"{data_dir(PLAN)}/{index_file(split, i, count)}",
            )
            stored = [
                encode(picture.pixels, encoding, quality)
                if samples.is_common
                else encode_samples(picture.pixels, stored_as)
                for picture in members[i::count]
            ]
            shards.append(
                _write_shard(
                    storage, paths, split, members[i::count], stored, names, container, feature, has_looks
                )
            )
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
        image_encoding=stored_as,
        dtype=None if samples.is_common else samples.dtype,
        channels=None if samples.is_common else samples.channels,
        statistics={} if samples.is_common else {split: _measured(pictures, split) for split in SPLITS},
        config={},
        codecs={},
        format_version=format_version_of(kind),
        features=described_features(kind),
        label_kind=kind,
        extra_features=[] if feature is None else [feature],
        shards=shards,
        inputs=[],
        accounting=Accounting(
            num_inputs=total, num_records=total, num_duplicates=0, num_filtered=0, num_quarantined=0
        ),
        splits=summarise_splits(shards),
    )
    return Catalog(root).publish(manifest)


def _measured(pictures: Sequence[Picture], split: str) -> SplitStatistics:
    """The statistics of a split, over the values that are finite."""
    members = [one.pixels.reshape(-1, one.pixels.shape[2]) for one in pictures if one.split == split]
    if not members:
        return SplitStatistics()
    values = np.concatenate(members).astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    mean, std = np.nanmean(values, 0).tolist(), np.nanstd(values, 0).tolist()
    return SplitStatistics(pixels=ChannelStatistics(num_pixels=len(values), mean=mean, std=std))


def _write_shard(  # noqa: PLR0913
    storage: Storage,
    paths: tuple[str, str],
    split: str,
    members: Sequence[Picture],
    images: Sequence[bytes],
    classes: list[str],
    container: Container,
    feature: Feature | None,
    has_looks: bool,
) -> Shard:
    stored, rows, payload = bytearray(), [], 0
    for picture, image in zip(members, images, strict=True):
        sha256 = hashlib.sha256(picture.pixels.tobytes() + split.encode()).hexdigest()
        height, width, channels = picture.pixels.shape
        name = picture.label_name if feature is None and classes else ""
        label = classes.index(name) if name else NO_CLASS
        features = {}
        if feature is not None:
            features = {feature.name: FeatureValues(feature.dtype, list(picture.values or ()))}
        record = ImageRecord(sha256[:16], image, label, name, height, width, channels)
        packed = pack_record(build_example(record, features), container)
        row = dict.fromkeys(INDEX_SCHEMA.names) | {
            "id": record.id,
            "offset_bytes": len(stored),
            "length_bytes": len(packed),
            "label": label,
            "sha256": sha256,
            "stored_bytes": len(image),
            "height": height,
            "width": width,
            "look": look_of(picture.pixels) if has_looks else None,
            **({} if feature is None else {feature.name: list(picture.values or ())}),
        }
        rows.append(row)
        stored += packed
        payload += len(image)
    sink = io.BytesIO()
    schema = INDEX_SCHEMA if feature is None else INDEX_SCHEMA.append(feature.arrow_field())
    index = pa.Table.from_pylist(rows, schema)
    pq.write_table(index, sink)
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
        class_counts=class_counts_of(index, classes),
    )


def look_of(pixels: Pixels) -> bytes | None:
    """One or two views, as prepare joins them."""
    grey = luma(pixels)
    shown = [view for view in (grey, without_border(grey)) if view is not None]
    return b"".join(look for look in looks(np.stack([thumbnail(view) for view in shown])) if look) or None


def patterned(
    split: str, number: int, *, several: bool, seed: int = 0, size: tuple[int, int] = (12, 12)
) -> list[Picture]:
    """Pictures of random colours, no two alike.

    ``several``: with the labels "red", "green" and "blue" (0 to 2), for each channel above a half; else with
    the targets brightness and redness, from 0 to 1.
    """
    chance = np.random.default_rng([seed, SPLITS.index(split)])
    pictures = []
    for colour in chance.uniform(0.1, 0.9, (number, 3)):
        values = tuple(np.flatnonzero(colour > 0.5).tolist()) if several else (colour.mean(), colour[0])
        noise = chance.integers(-12, 13, (*size, 1))
        pixels = np.clip(colour * 255 + noise, 0, 255).astype(np.uint8)
        pictures.append(Picture(split, "", pixels, values))
    return pictures


def publish_patterned(root: Path, counts: dict[str, int], *, several: bool, name: str) -> DatasetVersion:
    """Publish ``patterned`` pictures: {split: number}."""
    pictures = [one for split, number in counts.items() for one in patterned(split, number, several=several)]
    if several:
        return publish(
            root, pictures, name=name, classes=["red", "green", "blue"], feature=labels_feature("colours")
        )
    feature = targets_feature(2, "brightness, redness")
    return publish(root, pictures, name=name, classes=[], feature=feature)


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


def measured(
    dtype: str, channels: int, counts: dict[str, dict[str, int]], *, size: tuple[int, int] = (24, 30)
) -> list[Picture]:
    """Pictures as instruments make them: {split: {class: number}}; a class is bright in a channel of its own.

    Values reach over the range of the type, float32 from -3 to 9; of float32 some are not finite.
    """
    chance = np.random.default_rng([channels, len(dtype)])
    names = sorted({name for of_split in counts.values() for name in of_split})
    white = 12 if dtype == "float32" else np.iinfo(dtype).max
    pictures = []
    for split, of_split in counts.items():
        for name, number in of_split.items():
            for _ in range(number):
                shares = chance.random((*size, channels)) * 0.5
                shares[:, :, names.index(name) % channels] += 0.5
                pixels = (shares * white - 3 * (dtype == "float32")).astype(dtype)
                if dtype == "float32":
                    pixels[1, 2, 0], pixels[4, 7, -1] = np.nan, np.inf
                pictures.append(Picture(split, name, pixels))
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

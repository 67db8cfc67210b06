"""A version with something for every section of the report, and the version before it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from shardmill.infra.codecs import encode_jpeg
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.contract import (
    NEAR_DUPLICATES_SCHEMA,
    ChannelStatistics,
    Leaks,
    Manifest,
    SplitStatistics,
)
from tests.samples.datasets.versions import Made, VersionMaker, write_table

CLASSES = ("cat", "dog", "emu")


def version_with_everything(root: Path, name: str = "zoo", hostile: str = "plain") -> Made:
    """Version 2 of a dataset, of which version 1 is published; ``hostile`` is part of many names."""
    before = _maker(root, name, hostile)
    for number in range(3):
        before.add_class(f"gone{number} {hostile}", 2)
    first = before.write()
    Catalog(root).publish(first.manifest)
    maker = _maker(root, name, hostile)
    maker.plan, maker.version = "beef", 2
    maker.add_class(f"new {hostile}", 15)
    maker.rename("cat/00012.jpg", label="dog")
    maker.rename("cat/00013.jpg", split="validation")
    _add_lost(maker, Path(maker.source), hostile)
    maker.add_duplicate("cat/again.jpg", "cat", of=1)
    maker.add_duplicate(f"dog/{hostile}.jpg", "dog", of=2)
    made = maker.write()
    near = write_table(made.storage, "data/beef/near_duplicates.parquet", _near(made, hostile))
    manifest = made.manifest.model_copy(
        update={
            "near_duplicates": near,
            "leaks": Leaks(near_duplicate_groups=1, key_groups=1, dropped_from_train=1),
            "statistics": {split: _statistics(made.manifest, split) for split in made.manifest.splits},
            "container_reason": f"a sample of 64 records shrinks by 31 % {hostile}",
        }
    )
    return Made(made.storage, manifest, made.inputs)


def _maker(root: Path, name: str, hostile: str) -> VersionMaker:
    source = root / "source"
    source.mkdir(exist_ok=True)
    maker = VersionMaker(root, name=name, shards_per_split=3, source=str(source))
    maker.config = {"groups": {"leakage": "drop-from-train", "max_distance": 4}, "failure_budget": 0.5}
    for label in CLASSES:
        maker.add_class(label, 40)
    colours = ("YCbCr 4:2:0", "grey", "RGB 16-bit", hostile)
    for number in range(40):
        maker.facts[f"cat/{number:05d}.jpg"] = {
            "group": f"patient {number % 3 if number < 6 else number} {hostile}",
            "source_color": colours[number % 4],
            "source_format": ("jpeg", "png", "webp")[number % 3],
            "orientation": 1 + number % 8,
            "icc_profile": f"Display P3 {hostile}" if number % 5 == 0 else None,
            "had_alpha": number % 7 == 0,
            "salvaged": number == 3,
            "stored_from": ("planes", "pixels", "source")[number % 3],
        }
    return maker


def _add_lost(maker: VersionMaker, source: Path, hostile: str) -> None:
    """Inputs that were refused, the files among the sources."""
    files = {
        "half.jpg": ("truncated", half_a_jpeg()),
        "bomb.png": ("too_many_pixels", png_header(60_000, 60_000)),
        f"notes {hostile.replace('/', '')[:60]}.jpg": ("unknown_format", b"<script>alert(1)</script>" * 9),
        "empty.gif": ("empty", b""),
    }
    for name, (reason, data) in files.items():
        path = source / name
        path.write_bytes(data)
        found = path.stat()
        columns = {"size_bytes": found.st_size, "mtime_ns": found.st_mtime_ns}
        maker.add_lost(name, "dog", "quarantined", reason, f"what was found {hostile}", **columns)
    maker.add_lost("gone.jpg", "dog", "quarantined", "corrupt", "was there when it was read")
    maker.add_lost(
        "dropped.jpg", "cat", "filtered", "leak", f"looks like another {hostile}", **_whole(source)
    )


def _whole(source: Path) -> dict[str, int]:
    path = source / "dropped.jpg"
    path.write_bytes(a_jpeg())
    return {"size_bytes": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns}


def a_jpeg(height: int = 240, width: int = 320) -> bytes:
    """A JPEG with something to see."""
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([columns * 255 // width, rows * 255 // height, (rows ^ columns) & 255], axis=2)
    return encode_jpeg(pixels.astype(np.uint8), 90)


def half_a_jpeg() -> bytes:
    """A JPEG whose second half is missing."""
    whole = a_jpeg()
    return whole[: len(whole) // 2]


def png_header(width: int, height: int) -> bytes:
    """A PNG that announces a size and has almost no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _near(made: Made, hostile: str) -> pa.Table:
    """A leak with a dropped member, a conflict of labels, and a group as it should be."""
    rows = made.inputs.filter(pa.compute.equal(made.inputs["outcome"], "record")).to_pylist()
    by_uri = {row["uri"]: row for row in rows}
    groups = [
        ["cat/00000.jpg", "cat/00001.jpg"],
        ["dog/00002.jpg", "emu/00003.jpg"],
        [f"emu/{number:05d}.jpg" for number in range(12, 20)],
    ]
    members = []
    for uris in groups:
        ids = [by_uri[uri]["record_id"] for uri in uris]
        for uri in uris:
            row = by_uri[uri]
            members.append(_member(min(ids), row["record_id"], uri, row["label"], row["split"]))
    members.append(_member(members[0]["group"], "0" * 16, "dropped.jpg", f"cat {hostile}", None))
    members.sort(key=lambda member: (member["group"], member["record_id"]))
    return pa.Table.from_pylist(members, NEAR_DUPLICATES_SCHEMA)


def _member(
    group: str, record_id: str, uri: str, label: str, split: str | None
) -> dict[str, str | int | None]:
    return {
        "group": group,
        "record_id": record_id,
        "uri": uri,
        "label": label,
        "split": split,
        "perceptual_hash": 2**63 + 1,
        "distance": 3,
    }


def _statistics(manifest: Manifest, split: str) -> SplitStatistics:
    pixels = ChannelStatistics(
        num_pixels=1728 * manifest.splits[split].num_examples, mean=[127.5, 93.0, 5.25], std=[73.9, 40.1, 9.0]
    )
    return SplitStatistics(
        pixels=pixels,
        height=(36, 36.0, 36),
        width=(48, 48.0, 48),
        aspect=(1.33, 1.33, 1.33),
        stored_bytes=(700, 812.5, 1024),
    )

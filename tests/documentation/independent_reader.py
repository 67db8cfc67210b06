"""A reader of the dataset format, written from docs/dataset-format.md alone, without code of Shardmill.

    python tests/documentation/independent_reader.py datasets/photos [VERSION]

It checks everything that the page promises of a version, and prints what it counted as JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ 0x82F63B78 if byte & 1 else byte >> 1
    _CRC_TABLE.append(byte)

ENCODED_AS = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG", "webp": b"RIFF"}


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for value in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ value) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A CRC as TFRecord stores it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


def unframe(framed: bytes) -> bytes:
    """The payload of one framed record."""
    length, length_crc = struct.unpack_from("<QI", framed)
    payload = framed[12:-4]
    assert length_crc == masked(crc32c(framed[:8]))
    assert len(payload) == length
    assert struct.unpack("<I", framed[-4:])[0] == masked(crc32c(payload))
    return payload


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of a protocol buffer, and where it ends."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return number, at


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that consist of bytes: (number, content)."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        assert tag & 7 == 2, "every field of an Example has a length"
        length, at = varint(message, at)
        yield tag >> 3, message[at : at + length]
        at += length


def parse(payload: bytes) -> dict[str, list[Any]]:
    """The features of a tf.train.Example: name -> values."""
    found = {}
    for _, features in fields(payload):
        for _, entry in fields(features):
            parts = dict(fields(entry))
            (kind, values), *others = fields(parts[2])
            assert not others
            found[parts[1].decode()] = _values(kind, values)
    return found


def _values(kind: int, values: bytes) -> list[Any]:
    if kind == 1:
        return [value for _, value in fields(values)]
    packed = b"".join(value for _, value in fields(values))
    if kind == 2:
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    numbers, at = [], 0
    while at < len(packed):
        number, at = varint(packed, at)
        numbers.append(number - 2**64 if number >= 2**63 else number)
    return numbers


def open_manifest(dataset: Path, version: int | None) -> dict[str, Any]:
    """The manifest of a version, or of the newest, with its seal checked."""
    names = [path.name for path in (dataset / "manifests").iterdir()]
    numbers = {int(name[:-5]): name for name in names if re.fullmatch(r"\d{6,}\.json", name)}
    number = version or max(numbers)
    manifest: dict[str, Any] = json.loads((dataset / "manifests" / numbers[number]).read_text("ascii"))
    checksum = manifest.pop("checksum")
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(canonical.encode("ascii")).hexdigest() == checksum
    assert manifest["format_version"] == (2 if manifest.get("label_kind", "class") == "class" else 3)
    assert (manifest["dataset"], manifest["version"]) == (dataset.name, number)
    return manifest


def check_file(dataset: Path, path: str, num_bytes: int, sha256: str) -> bytes:
    """The content of a file, which has the size and digest that the manifest says."""
    content = (dataset / path).read_bytes()
    assert len(content) == num_bytes
    assert hashlib.sha256(content).hexdigest() == sha256
    return content


def check_shard(dataset: Path, manifest: dict[str, Any], shard: dict[str, Any]) -> Counter[str]:
    """Check every record of a shard against its index; return the number of records by class."""
    content = check_file(dataset, shard["path"], shard["num_bytes"], shard["sha256"])
    check_file(dataset, shard["index_path"], shard["index_bytes"], shard["index_sha256"])
    rows = pq.read_table(dataset / shard["index_path"]).to_pylist()
    assert len(rows) == shard["num_examples"]
    counts: Counter[str] = Counter()
    end = payload_bytes = 0
    for row in rows:
        assert row["offset_bytes"] == end
        end += row["length_bytes"]
        stored = content[row["offset_bytes"] : end]
        example = parse(
            unframe(zlib.decompress(stored, wbits=31) if manifest["container"] == "gzip" else stored)
        )
        check_record(manifest, row, example)
        payload_bytes += len(example["image"][0])
        labels = [row["label"]] if "label" in example else example.get("labels", [])
        counts.update(manifest["classes"][label] for label in labels)
    assert end == len(content)
    assert payload_bytes == shard["payload_bytes"]
    assert counts == shard["class_counts"]
    return counts


def check_record(manifest: dict[str, Any], row: dict[str, Any], example: dict[str, list[Any]]) -> None:
    """Check a record against its row in the index."""
    required = sorted(manifest["features"])
    assert list(example)[: len(required)] == required
    assert example["id"] == [row["id"].encode()]
    assert row["id"] == row["sha256"][:16]
    if "label" in required:
        assert example["label"] == [row["label"]]
        assert example["label_name"] == [manifest["classes"][row["label"]].encode()]
    else:
        assert row["label"] == -1
    assert (example["height"], example["width"]) == ([row["height"]], [row["width"]])
    channels, dtype = example["channels"][0], manifest.get("dtype", "uint8")
    assert channels == manifest.get("channels", channels if channels in (1, 3) else None)
    assert len(example["image"][0]) == row["stored_bytes"]
    size = row["height"] * row["width"] * channels
    if manifest["image_encoding"] == "raw":
        assert len(example["image"][0]) == size
    elif manifest["image_encoding"] == "array":
        num_bytes = size * {"uint8": 1, "uint16": 2, "float32": 4}[dtype]
        assert len(pa.Codec("zstd").decompress(example["image"][0], num_bytes)) == num_bytes
    else:
        assert example["image"][0].startswith(ENCODED_AS[manifest["image_encoding"]])
        if manifest["image_encoding"] == "png":
            assert example["image"][0][24] == {"uint8": 8, "uint16": 16}[dtype]
    if "mask/encoded" in required:
        check_mask(manifest, row, example["mask/encoded"][0])
    further = manifest.get("extra_features", [])
    there = {feature["name"] for feature in further if row[feature["name"]] is not None}
    assert set(example) - set(required) == there
    for feature in further:
        if feature["name"] in there:
            check_feature(feature, row[feature["name"]], example[feature["name"]])


def check_mask(manifest: dict[str, Any], row: dict[str, Any], png: bytes) -> None:
    """Check the header of a mask (PNG specification, 11.2.1): its size, its depth, and that it is grey."""
    assert len(png) == row["mask/stored_bytes"]
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, color = struct.unpack(">IIBB", png[16:26])
    assert (height, width, color) == (row["height"], row["width"], 0)
    assert (f"uint{depth}", (1 << depth) - 1) == (manifest["mask"]["dtype"], manifest["mask"]["ignore"])
    assert sum(row["mask/pixels"]) <= height * width
    assert len(row["mask/pixels"]) == len(row["labels"])


def check_feature(feature: dict[str, Any], in_index: Any, in_record: list[Any]) -> None:
    """Check the values of a further feature against the index."""
    values = in_index if isinstance(in_index, list) else [in_index]
    if feature["is_text"]:
        values = [value.encode() for value in values]
    if feature["shape"] != "variable":
        assert len(in_record) == (feature["length"] or 1)
    assert in_record == values


def check_inputs(dataset: Path, manifest: dict[str, Any]) -> Counter[str]:
    """Check the rows of the inputs; return their number by outcome."""
    rows = []
    for part in manifest["inputs"]:
        check_file(dataset, part["path"], part["num_bytes"], part["sha256"])
        rows += pq.read_table(dataset / part["path"]).to_pylist()
    uris = [row["uri"].encode() for row in rows]
    assert uris == sorted(uris)
    outcomes = Counter(row["outcome"] for row in rows)
    said = {"num_records": "record", "num_duplicates": "duplicate", "num_filtered": "filtered"}
    said["num_quarantined"] = "quarantined"
    assert {key: outcomes[outcome] for key, outcome in said.items()} | {"num_inputs": len(rows)} == manifest[
        "accounting"
    ]
    assert Counter(row["reason"] for row in rows if row["outcome"] == "quarantined") == manifest["quarantine"]
    return outcomes


def main(dataset: Path, version: int | None = None) -> dict[str, Any]:
    """Check a version; return what was counted."""
    manifest = open_manifest(dataset, version)
    classes: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    for shard in manifest["shards"]:
        classes += check_shard(dataset, manifest, shard)
        splits[shard["split"]] += shard["num_examples"]
    assert splits == {name: split["num_examples"] for name, split in manifest["splits"].items()}
    if manifest["near_duplicates"]:
        table = manifest["near_duplicates"]
        check_file(dataset, table["path"], table["num_bytes"], table["sha256"])
    if manifest["report"]:
        report = (dataset / manifest["report"]).read_bytes()
        assert hashlib.sha256(report).hexdigest() == manifest["report_sha256"]
    return {"classes": classes, "splits": splits, "outcomes": check_inputs(dataset, manifest)}


if __name__ == "__main__":
    assert crc32c(b"123456789") == 0xE3069283
    print(json.dumps(main(Path(sys.argv[1]), *(int(number) for number in sys.argv[2:]))))
    ours = {name for name in sys.modules if name.split(".")[0] == "shardmill"}
    assert not ours, ours

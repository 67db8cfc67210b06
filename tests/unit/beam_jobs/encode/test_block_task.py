"""Encoding one block, the image steps, and the messages that rows may keep."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from shardmill.beam_jobs.config import FilterConfig, ImageConfig, PrepareConfig, RunnerConfig
from shardmill.beam_jobs.encode import block_task as encode_module
from shardmill.beam_jobs.encode.block_task import (
    EncodeBlocks,
    ImageFiltered,
    check_size,
    convert,
    encode_block,
)
from shardmill.beam_jobs.encode.blocks import (
    Block,
    KnownContents,
    block_digest,
    cut_blocks,
    further_pictures,
    read_facts,
    reuse_blocks,
    spool_file,
    write_references,
)
from shardmill.beam_jobs.encode.facts import stable_message
from shardmill.beam_jobs.execution.pool import Pool
from shardmill.beam_jobs.execution.verdicts import known_verdicts
from shardmill.beam_jobs.request import prepare_command
from shardmill.beam_jobs.schemas import REFERENCE_SCHEMA, Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.codecs import ImageRejected, decode
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, png, rotated_jpeg, write
from tests.samples.preparing.deeds import CrashingReader


def references(root: Path, names: list[str]) -> pa.RecordBatch:
    rows = []
    for name in names:
        found = (root / name).stat()
        rows.append({"uri": name, "size_bytes": found.st_size, "mtime_ns": found.st_mtime_ns, "label": "a"})
    return pa.RecordBatch.from_pylist(rows, REFERENCE_SCHEMA)


def encoded(root: Path, spool: Path, batch: pa.RecordBatch, **config: Any) -> list[dict[str, Any]]:
    storage = Storage.at(spool)
    encode_block(batch, SourceFolder(str(root)), storage, PrepareConfig.model_validate(config))
    rows: list[dict[str, Any]] = read_facts(
        storage, Block(block_digest(batch), 0, batch.num_rows)
    ).to_pylist()
    return rows


def test_files_with_further_pictures_are_counted_unless_the_first_is_meant(tmp_path: Path) -> None:
    colours = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    root = write(tmp_path / "source", {"a.png": png(2), "d.jpg": jpeg(3)})
    for name in ("b.gif", "c.tif"):
        colours[0].save(root / name, save_all=True, append_images=colours[1:])
    batch = references(root, ["a.png", "b.gif", "c.tif", "d.jpg"])
    blocks, spool = [Block(block_digest(batch), 0, batch.num_rows)], Storage.at(tmp_path / "spool")
    encoded(root, tmp_path / "spool", batch)
    told = "2 files with further pages, frames or pictures, such as b.gif: only the first of each is stored"
    assert str(further_pictures(spool, blocks, ImageConfig())).startswith(f"{told}; set image.pages")
    assert further_pictures(spool, blocks, ImageConfig(pages="first")) is None
    command = prepare_command("s", "d", "r", PrepareConfig(image=ImageConfig(size=24)))
    (config,) = (PrepareConfig.model_validate_json(part) for part in command if part.startswith("{"))
    assert config.image.model_fields_set == {"size"}, "a child knows what was set"


def test_a_reader_that_crashes_costs_one_image(tmp_path: Path) -> None:
    """Readers that decode, as of videos, are tried alone too; a later block knows the verdict."""
    rows = [{"uri": str(number), "size_bytes": 0, "mtime_ns": 5, "label": "a"} for number in range(4)]
    batch, spool = pa.RecordBatch.from_pylist(rows, REFERENCE_SCHEMA), Storage.at(tmp_path / "spool")
    block = Block(block_digest(batch), 0, batch.num_rows)
    write_references(spool, pa.Table.from_batches([batch]), [block])
    pool = Pool(EncodeBlocks(CrashingReader("2"), spool, PrepareConfig()), 1)
    try:
        assert pool.submit(0).exception(timeout=120) is None
    finally:
        pool.close()
    facts = read_facts(spool, block).to_pylist()
    assert [row["reason"] for row in facts] == [None, None, "decoder_crashed", None]
    assert facts[2]["stage"] == "decode"
    assert reuse_blocks(spool, [block], known_verdicts(spool, RunnerConfig())) == {block.digest}


def test_a_block_of_all_kinds(tmp_path: Path) -> None:
    root = write(
        tmp_path / "source",
        {"a.jpg": jpeg(1), "b.txt.jpg": b"no", "c.png": png(2), "d.jpg": jpeg(3), "e.png": png(4, 9, 99)},
    )
    batch = references(root, ["a.jpg", "b.txt.jpg", "c.png", "d.jpg", "e.png"])
    (root / "d.jpg").unlink()
    a, b, c, d, e = encoded(root, tmp_path / "spool", batch, image={"size": 24}, filter={"max_aspect": 5})

    assert (a["status"], a["height"], a["width"], a["source_format"], a["orientation"]) == (
        Status.STORED,
        24,
        32,
        "jpeg",
        1,
    )
    assert a["sha256"] == hashlib.sha256(jpeg(1)).digest()
    assert (b["status"], b["stage"], b["reason"]) == (Status.QUARANTINED, "decode", "unknown_format")
    assert b["sha256"] == hashlib.sha256(b"no").digest()
    assert (c["offset_bytes"], c["source_height"], c["source_width"]) == (a["stored_bytes"], 48, 64)
    assert (d["status"], d["stage"], d["reason"], d["sha256"]) == (
        Status.QUARANTINED,
        "read",
        "vanished",
        None,
    )
    assert (e["status"], e["stage"], e["reason"]) == (Status.FILTERED, "filter", "aspect")
    stored = (tmp_path / "spool" / spool_file(block_digest(batch))).read_bytes()
    assert len(stored) == a["stored_bytes"] + c["stored_bytes"]
    assert decode(stored[c["offset_bytes"] :]).pixels.shape == (24, 32, 3)


def test_encoding_again_gives_the_same_bytes(tmp_path: Path) -> None:
    root = write(tmp_path / "source", {f"{number}.jpg": jpeg(number) for number in range(5)})
    batch = references(root, [f"{number}.jpg" for number in range(5)])
    for name in ("one", "two"):
        encoded(root, tmp_path / name, batch)
    for path in (tmp_path / "one/blocks").iterdir():
        assert path.read_bytes() == (tmp_path / "two/blocks" / path.name).read_bytes()


def test_a_block_that_another_attempt_finished_is_left_alone(tmp_path: Path) -> None:
    root = write(tmp_path / "source", {f"{number}.jpg": jpeg(number) for number in range(3)})
    table = pa.Table.from_batches([references(root, [f"{number}.jpg" for number in range(3)])])
    spool, blocks = Storage.at(tmp_path / "spool"), cut_blocks(table, 8)
    write_references(spool, table, blocks)
    KnownContents().write(spool)
    for _ in range(2):
        task = EncodeBlocks(SourceFolder(str(root)), spool, PrepareConfig())
        task.open()
        task.do(0)
        task.close()
        assert len(read_facts(spool, blocks[0])) == 3
        spool.write_atomic(spool_file(blocks[0].digest), b"as it was left")
    assert spool.read_bytes(spool_file(blocks[0].digest)) == b"as it was left"


def test_whatever_a_library_raises_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ValueError("odd object <x at 0x7f33a2>")

    root = write(tmp_path / "source", {"a.jpg": jpeg(1)})
    monkeypatch.setattr(encode_module, "convert", explode)
    (row,) = encoded(root, tmp_path / "spool", references(root, ["a.jpg"]))
    assert (row["reason"], row["message"]) == ("unprocessable", "cannot be processed: odd object <x>")


def test_a_very_long_image_becomes_a_row_not_an_end(tmp_path: Path) -> None:
    root = write(tmp_path / "source", {"a.png": png(1, 9, 70_000)})
    (row,) = encoded(root, tmp_path / "spool", references(root, ["a.png"]))
    assert (row["status"], row["reason"]) == (Status.QUARANTINED, "too_long")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot identify <_io.BytesIO object at 0x7F0aB3>", "cannot identify <_io.BytesIO object>"),
        ("two\n  lines", "two lines"),
        ("half \udcff a name", "half \\udcff a name"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_stable_message(message: str, expected: str) -> None:
    assert stable_message(message) == expected


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_stored_upright(orientation: int) -> None:
    found = convert(rotated_jpeg(5, orientation), ImageConfig(size=24), FilterConfig())
    assert found.source.orientation == orientation
    assert (found.source.height, found.source.width) == (48, 64)
    assert (found.height, found.width) == ((24, 32) if orientation < 5 else (32, 24))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels(channels: int) -> None:
    found = convert(png(7), ImageConfig.model_validate({"channels": channels}), FilterConfig())
    assert (found.height, found.width) == (48, 64), "never enlarged"
    assert decode(found.image, channels=channels).pixels.shape == (48, 64, channels)


def test_max_pixels_is_of_the_header() -> None:
    with pytest.raises(ImageRejected) as caught:
        convert(png(7), ImageConfig(max_pixels=1000), FilterConfig())
    assert caught.value.reason == "too_many_pixels"


@pytest.mark.parametrize(
    ("height", "width", "rules", "reason"),
    [
        (10, 10, {}, None),
        (9, 10, {"min_height": 10}, "too_small"),
        (10, 9, {"min_width": 10}, "too_small"),
        (10, 10, {"min_width": 10, "min_height": 10}, None),
        (10, 41, {"max_aspect": 4}, "aspect"),
        (41, 10, {"max_aspect": 4}, "aspect"),
        (40, 10, {"max_aspect": 4}, None),
    ],
)
def test_size_filters(height: int, width: int, rules: dict[str, Any], reason: str | None) -> None:
    config = FilterConfig.model_validate(rules)
    if reason is None:
        check_size(height, width, config)
        return
    with pytest.raises(ImageFiltered) as caught:
        check_size(height, width, config)
    assert caught.value.reason == reason

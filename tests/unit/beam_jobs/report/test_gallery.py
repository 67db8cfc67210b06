"""The quarantine gallery: what is refused is shown where that is safe, and can do no harm where it is not."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.execution.task import Limits
from shardmill.beam_jobs.report import gallery
from shardmill.beam_jobs.report.figures.inputs import LostInput, ReasonRow
from shardmill.beam_jobs.report.gallery import Exhibit, exhibit
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.codecs import decode
from tests.samples.images.decoders import misbehaving
from tests.samples.pages.reports import a_jpeg, half_a_jpeg, png_header


def lost(folder: Path, name: str, data: bytes) -> LostInput:
    path = folder / name
    path.write_bytes(data)
    return LostInput(name, None, "as found", len(data), path.stat().st_mtime_ns)


def one(folder: Path, data: bytes, reason: str = "corrupt") -> Exhibit:
    row = ReasonRow(reason, 1, (lost(folder, "suspect", data),))
    return exhibit(SourceFolder(str(folder)), [row])[reason][0]


def pixels_of(item: Exhibit) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    assert item.picture is not None
    return decode(base64.b64decode(item.picture.partition(",")[2])).pixels


def test_what_there_is_of_a_truncated_image_is_shown(tmp_path: Path) -> None:
    item = one(tmp_path, half_a_jpeg(), "truncated")
    assert (item.format, item.size) == ("JPEG", (320, 240))
    shown = pixels_of(item).astype(int)
    assert shown.shape == (126, 168, 3)
    assert shown[:40].std(axis=(0, 1)).min() > 20  # the upper part is a picture
    assert abs(shown[-20:] - 128).max() < 12  # what is missing is grey


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "P", "CMYK", "LA", "1", "F"])
def test_every_kind_of_pixels_can_be_shown(tmp_path: Path, mode: str) -> None:
    sink = io.BytesIO()
    image = Image.new(mode, (300, 200)) if mode != "P" else Image.new("RGB", (300, 200), "teal").quantize(4)
    image.save(sink, "TIFF")
    assert pixels_of(one(tmp_path, sink.getvalue())).shape == (112, 168, 3)


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    sink = io.BytesIO()
    Image.new("RGBA", (60, 40), (0, 0, 0, 0)).save(sink, "PNG")
    assert pixels_of(one(tmp_path, sink.getvalue())).min() > 250


@pytest.mark.parametrize(
    ("data", "kind", "size"),
    [
        (png_header(60_000, 60_000), "PNG", (60_000, 60_000)),  # never decoded
        (png_header(3_900, 3_900), "PNG", (3_900, 3_900)),  # decoded, and it ends early
        (b"GIF89a but no image", "GIF", None),
        (b"<script>alert(1)</script>", "", None),
        (b"\x00", "", None),
    ],
)
def test_the_rest_is_a_placeholder_that_says_what_it_is(
    tmp_path: Path, data: bytes, kind: str, size: tuple[int, int] | None
) -> None:
    item = one(tmp_path, data)
    assert item.format == kind
    assert item.size == size
    assert item.head[0] == data[:16].hex(" ")


@pytest.mark.parametrize("reason", ["empty", "vanished", "unreadable", "broken_link"])
def test_what_is_not_there_is_not_read(tmp_path: Path, reason: str) -> None:
    row = ReasonRow(reason, 1, (LostInput("no/such/file", None, "", 0, 0),))
    assert exhibit(SourceFolder(str(tmp_path)), [row])[reason] == [Exhibit(row.examples[0])]


def test_a_file_that_changed_since_is_not_shown(tmp_path: Path) -> None:
    found = lost(tmp_path, "a.jpg", half_a_jpeg())
    (tmp_path / "a.jpg").write_bytes(a_jpeg())
    (item,) = exhibit(SourceFolder(str(tmp_path)), [ReasonRow("truncated", 1, (found,))])["truncated"]
    assert item.picture is None
    assert "no longer what was listed" in item.note


def test_a_source_that_is_gone_leaves_placeholders(tmp_path: Path) -> None:
    row = ReasonRow("corrupt", 1, (LostInput("a.jpg", None, "", 10, 0),))
    (item,) = exhibit(SourceFolder(str(tmp_path / "nothing")), [row])["corrupt"]
    assert "gone" in item.note


def test_the_pictures_are_spread_over_the_reasons(tmp_path: Path) -> None:
    def row(reason: str, count: int) -> ReasonRow:
        return ReasonRow(
            reason, count, tuple(LostInput(f"{reason}{n}", None, "", 0, 0) for n in range(count))
        )

    rows = [row("empty", 25), row("vanished", 25), row("unreadable", 2), *(row(f"r{n}", 9) for n in range(9))]
    shown = exhibit(SourceFolder(str(tmp_path)), rows)
    assert sum(map(len, shown.values())) == gallery.SHOWN_AT_MOST
    assert {len(items) for reason, items in shown.items() if reason != "unreadable"} <= {4, 5}
    assert len(shown["unreadable"]) == 2


@pytest.mark.parametrize("evil", [b"abort", b"hang", b"eat"])
def test_a_decoder_that_dies_costs_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: bytes
) -> None:
    monkeypatch.setattr(gallery, "miniature", misbehaving)
    monkeypatch.setattr(gallery, "LIMITS", Limits(seconds=1.0, memory_bytes=1 << 28))
    files = [lost(tmp_path, f"{n}", data) for n, data in enumerate([b"x", evil, b"xyz"])]
    shown = exhibit(SourceFolder(str(tmp_path)), [ReasonRow("corrupt", 3, tuple(files))])["corrupt"]
    assert [item.size for item in shown] == [(1, 1), None, (3, 1)]
    assert [bool(item.note) for item in shown] == [False, True, False]


def test_when_time_is_up_nothing_more_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "SECONDS_AT_MOST", 0.0)
    item = one(tmp_path, a_jpeg())
    assert (item.picture, item.size) == (None, None)

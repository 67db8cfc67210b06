"""Metadata: read, bounded in work however often hostile files point at the same bytes, and removed."""

from __future__ import annotations

import io
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs.metadata import NOTHING, Metadata, read_metadata, without_metadata
from shardmill.infra.codecs.structure.boxes import declared_source_types, exif_and_xmp
from shardmill.infra.codecs.structure.texts import MAX_CHARACTERS, clean, iso_time
from shardmill.infra.codecs.structure.xmp import CREATOR, RIGHTS, read_xmp
from tests.samples.images import described
from tests.samples.images.described import NEWSCODES, box, image_file, jumbf, manifest, store, xmp
from tests.samples.images.forms import gradient, gradient_image, png_chunk, rgb_profile, saved


class CountedBytes(bytes):
    """Bytes that count how many of them were copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        self.copied += len(part) if isinstance(part, bytes) else 1
        return part


@contextmanager
def few_cpu_seconds() -> Iterator[None]:
    """Allow a hundred times what the work takes, and a tenth of what its square would."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 5


@pytest.mark.parametrize("text", ["2021-03-04T05:06:07{}x", "2021-03-04T05:06:07{}Z{}x"])
def test_a_time_with_a_long_run_of_spaces(text: str) -> None:
    with few_cpu_seconds():
        iso_time(text.replace("{}", " " * 500_000))
    assert iso_time(f"  {' ' * 500_000}2021-03-04T05:06:07 Z  ") == "2021-03-04T05:06:07+00:00"


def test_a_long_text_of_xmp_with_many_tags() -> None:
    packet = xmp({"dc:creator": " \n" * 200_000 + "<a/>" * 120_000 + "Bo"})
    with few_cpu_seconds():
        assert read_xmp(packet) == {CREATOR: "Bo"}


def test_an_unknown_encoding_of_xmp_tells_nothing() -> None:
    packet = b'<?xml version="1.0" encoding="x-unknown"?>' + xmp({"dc:creator": "Bo"})
    assert CREATOR not in read_xmp(packet)
    assert read_metadata(image_file("jpeg", packet=packet)).creator is None


def test_overlapping_values_of_content_credentials() -> None:
    actions = b"\x71digitalSourceType\x79\xff\xff" * 2_000
    assertion = jumbf(b"cbor\x00\x11", b"c2pa.actions", box(b"cbor", actions))
    manifest = jumbf(b"c2ma\x00\x11", b"m", jumbf(b"c2as\x00\x11", b"c2pa.assertions", assertion))
    found = declared_source_types(jumbf(b"c2pa\x00\x11", b"c2pa", manifest))
    assert 0 < sum(map(len, found)) <= 50_000


def test_descriptions_that_reach_beyond_their_boxes() -> None:
    described = struct.pack(">I4s16sB", 0x7FFF_FFFF, b"jumd", b"c2as", 3)
    manifest = jumbf(b"c2ma\x00\x11", b"m", box(b"jumb", described) * 900)
    store = CountedBytes(jumbf(b"c2pa\x00\x11", b"c2pa", manifest * 10))
    assert declared_source_types(store) == []
    assert store.copied < 10 * len(store)


def heif(extents: list[tuple[int, int]], repeated: int) -> CountedBytes:
    """A file with an item of EXIF, whose place is told again and again; extents: places and sizes."""
    item = box(b"infe", b"\x02\x00\x00\x00" + struct.pack(">HH4s", 1, 0, b"Exif"))
    places = struct.pack(">HHH", 1, 0, len(extents))
    places += b"".join(struct.pack(">II", *extent) for extent in extents)
    information = box(b"iinf", bytes(4) + struct.pack(">H", 1) + item)
    located = box(b"iloc", bytes(4) + b"\x44\x00" + struct.pack(">H", repeated) + places * repeated)
    brand = box(b"ftyp", b"avif" + bytes(4) + b"avif")
    return CountedBytes(brand + box(b"meta", bytes(4) + information + located) + bytes(100_000))


@pytest.mark.parametrize(
    ("extents", "is_found"),
    [([(0, 100_000)], True), ([(0, 50_000), (0, 50_000)], True), ([(0, 100_000)] * 100, False)],
)
def test_an_item_of_heif_that_is_told_again_and_again(extents: list[tuple[int, int]], is_found: bool) -> None:
    data = heif(extents, 50)
    tiff, _ = exif_and_xmp(data)
    assert (tiff is not None) is is_found
    assert data.copied < 3 * len(data)


def test_many_damaged_compressed_texts_of_png(monkeypatch: pytest.MonkeyPatch) -> None:
    inflated = []
    original = zlib.decompressobj

    def counted(*options: Any) -> Any:
        inflated.append(options)
        return original(*options)

    monkeypatch.setattr(zlib, "decompressobj", counted)
    content = b"iTXtXML:com.adobe.xmp\x00\x01\x00\x00\x00" + zlib.compress(bytes(2 << 20))
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    data = image_file("png")
    assert read_metadata(data[:33] + chunk * 50 + data[33:]).creator is None
    assert len(inflated) == 1


SECRETS = {"JPEG": b"\xff\xe1", "PNG": b"eXIf", "WEBP": b"EXIF"}


@pytest.mark.parametrize(
    ("format_", "mode"),
    [
        *(("JPEG", mode) for mode in ("RGB", "L")),
        *((format_, mode) for format_ in ("PNG", "WEBP") for mode in ("RGB", "RGBA", "L", "P")),
    ],
)
@pytest.mark.parametrize("lossless", [False, True])
def test_without_metadata_the_picture_is_the_same(format_: str, mode: str, lossless: bool) -> None:
    source = gradient_image().convert(mode)
    if mode == "RGBA":
        source.putalpha(Image.linear_gradient("L").resize(source.size))
    exif = Image.Exif()
    exif[0x010F] = "Camera of somebody"
    options: dict[str, Any] = {"exif": exif, "icc_profile": rgb_profile(swapped=False)}
    options |= {"lossless": lossless, "xmp": b"somebody"} if format_ == "WEBP" else {}
    plain = {"lossless": lossless} if format_ == "WEBP" else {}
    data = saved(source, format_, **options) + b"and more of somebody"
    clean = without_metadata(data, format_.lower())
    assert clean is not None
    assert b"somebody" in data
    for secret in (b"somebody", SECRETS[format_], b"ICC", b"iCCP"):
        assert secret not in clean
    assert without_metadata(clean, format_.lower()) == clean
    assert len(clean) <= len(saved(source, format_, **plain)) + 18
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(clean)) as after:
        assert np.array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.parametrize("format_", ["gif", "tiff", "bmp", "avif", "heif", "jpeg2000"])
def test_metadata_of_other_formats_cannot_be_removed(format_: str) -> None:
    assert without_metadata(b"anything", format_) is None


def test_metadata_of_an_animation_or_of_a_broken_file_cannot_be_removed() -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "blue")]
    assert without_metadata(saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]), "webp") is None
    for format_ in SECRETS:
        for end in (40, -2):
            assert without_metadata(saved(gradient_image(), format_)[:end], format_.lower()) is None


def test_what_lies_behind_a_chunk_that_cannot_be_followed_never_passes_for_the_picture() -> None:
    plain = saved(gradient_image(), "PNG")
    end = plain.index(b"IEND") - 4
    data = plain[:end] + png_chunk(b"\x00\x00\x00\x00", b"") + png_chunk(b"tEXt", b"somebody") + plain[end:]
    assert np.array_equal(codecs.decode(data).pixels, gradient())
    assert without_metadata(data, "png") is None


FORMATS = ("jpeg", "png", "webp", "tiff", "avif")
TRAINED, CAPTURE = NEWSCODES + "trainedAlgorithmicMedia", NEWSCODES + "digitalCapture"
PACKET = xmp(
    {
        "dc:rights": ["© Bo", "© auch Bo"],
        "dc:creator": ["Bo", "Cy"],
        "xmpRights:WebStatement": "https://creativecommons.org/licenses/by/4.0/",
        "photoshop:Credit": "Acme &amp; Sons",
        "Iptc4xmpExt:DigitalSourceType": CAPTURE,
    }
)
STORE = store(manifest(b"urn:c2pa:1", TRAINED))


@pytest.mark.parametrize("format_", FORMATS)
def test_a_camera_tells_all_there_is(format_: str) -> None:
    data = image_file(format_, exif_block=described.camera_exif(), packet=PACKET, credentials=STORE)
    assert read_metadata(data) == Metadata(
        captured_at="2021-03-04T05:06:07+02:00",
        camera_make="Acme",
        camera_model="One 2",
        gps_present=True,
        c2pa_present=True,
        digital_source_type="trainedAlgorithmicMedia",
        licence="https://creativecommons.org/licenses/by/4.0/",
        rights="© Bo",
        attribution="Acme & Sons",
        creator="Bo; Cy",
    )


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_without_metadata_tells_only_that(format_: str) -> None:
    assert read_metadata(image_file(format_)) == Metadata(gps_present=False, c2pa_present=False)


@pytest.mark.parametrize("data", [b"", b"BM" + bytes(60), b"GIF89a" + bytes(20), b"nothing"])
def test_other_files_are_not_searched(data: bytes) -> None:
    assert read_metadata(data) == NOTHING


def test_exif_and_iptc_stand_in_for_xmp() -> None:
    exif_block = described.exif({0x013B: "Ann", 0x8298: "Ann\x00Editors Ltd"})
    datasets = described.iptc([(80, b"Dee"), (80, b"Ed"), (110, "Zürich Press".encode("latin-1"))])
    found = read_metadata(image_file("jpeg", exif_block=exif_block, datasets=datasets))
    assert (found.creator, found.rights, found.attribution) == ("Ann", "Ann; Editors Ltd", "Zürich Press")
    only_iptc = read_metadata(image_file("tiff", datasets=datasets))
    assert (only_iptc.creator, only_iptc.attribution) == ("Dee; Ed", "Zürich Press")


@pytest.mark.parametrize(
    ("position", "told"),
    [
        ({2: (12.0, 30.0, 0.0), 4: (3.0, 0.0, 0.0)}, True),
        ({0: b"\x02\x03\x00\x00"}, False),  # a receiver without reception
        ({}, False),
    ],
)
def test_a_position_is_told_by_its_tags(position: dict[int, object], told: bool) -> None:
    data = image_file("jpeg", exif_block=described.exif({0x010F: "Acme"}, position=position))
    assert read_metadata(data).gps_present is told


def test_a_position_in_xmp_counts_too() -> None:
    packet = xmp({"exif:GPSLatitude": "12,30.0N"}, as_elements=False)
    assert read_metadata(image_file("png", packet=packet)).gps_present is True


@pytest.mark.parametrize(
    ("packet_says", "manifests", "found"),
    [
        (CAPTURE, [], "digitalCapture"),
        ("digsrctype:TrainedAlgorithmicMedia", [], "trainedAlgorithmicMedia"),
        (None, [(TRAINED,)], "trainedAlgorithmicMedia"),
        (CAPTURE, [(TRAINED,)], "trainedAlgorithmicMedia"),  # whoever says so
        (TRAINED, [(CAPTURE,)], "trainedAlgorithmicMedia"),
        (None, [(CAPTURE, TRAINED)], "trainedAlgorithmicMedia"),
        (None, [(CAPTURE,), ("",)], "digitalCapture"),  # of the image that it was made from
        (None, [(TRAINED,), (CAPTURE,)], "digitalCapture"),  # of the image itself
        (None, [("",)], None),
        (None, [(NEWSCODES + "x" * 280,)], "x" * 280),  # a long text in CBOR
    ],
)
def test_the_declared_source_type(
    packet_says: str | None, manifests: list[tuple[str, ...]], found: str | None
) -> None:
    packet = xmp({"Iptc4xmpExt:DigitalSourceType": packet_says}) if packet_says else None
    made = store(*(manifest(b"m%d" % at, *types) for at, types in enumerate(manifests)))
    data = image_file("jpeg", packet=packet, credentials=made if manifests else None)
    told = read_metadata(data)
    assert told.digital_source_type == found
    assert told.c2pa_present is bool(manifests)
    assert told.is_ai_made is (found == "trainedAlgorithmicMedia")


def test_another_box_in_the_place_of_a_store_is_no_store() -> None:
    other = described.jumbf(b"json\x00\x11", b"com.example", described.box(b"json", b"{}"))
    for format_ in ("jpeg", "png", "webp", "tiff"):
        assert read_metadata(image_file(format_, credentials=other)).c2pa_present is False


@pytest.mark.parametrize(
    ("text", "offset", "found"),
    [
        ("2021:03:04 05:06:07", None, "2021-03-04T05:06:07"),
        ("2021:03:04 05:06:07", "-0330", "2021-03-04T05:06:07-03:30"),
        ("2021:03:04 05:06:07", "   :  ", "2021-03-04T05:06:07"),
        ("2021-03-04T05:06:07.89Z", "+02:00", "2021-03-04T05:06:07+00:00"),
        ("2021-03-04T05:06", None, "2021-03-04T05:06:00"),
        ("2021-03-04", None, "2021-03-04"),
        ("2021", None, "2021"),
        ("0000:00:00 00:00:00", None, None),
        ("2021:13:04 05:06:07", None, None),
        ("    :  :     :  :  ", None, None),
        ("yesterday", None, None),
        (None, "+02:00", None),
    ],
)
def test_times_become_iso_8601(text: str | None, offset: str | None, found: str | None) -> None:
    assert iso_time(text, offset) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"Caf\xc3\xa9\x00\x00", "Café"),
        (b"Caf\xe9", "Café"),
        (b"one\x00two\x00", "one; two"),
        (" a\n\tb\x07 ", "a b"),
        (b"\x00 \x00", None),
        ("x" * 9_999, "x" * MAX_CHARACTERS),
    ],
)
def test_texts_are_cleaned(text: bytes | str, found: str | None) -> None:
    assert clean(text) == found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_xmp_of_other_encodings_and_prefixes(encoding: str) -> None:
    packet = (
        PACKET.decode().replace("dc:", "other:").replace("xmlns:dc", "xmlns:other").replace("\ufeff", "")
    ).encode(encoding)
    assert read_xmp(packet)[CREATOR] == "Bo; Cy"


def test_xmp_of_ingredients_does_not_count() -> None:
    inner = (
        b"<rdf:Description><dc:creator><rdf:Seq><rdf:li>X</rdf:li></rdf:Seq></dc:creator></rdf:Description>"
    )
    packet = PACKET.replace(b"<dc:creator>", b"<dc:source>" + inner + b"</dc:source><dc:creator>")
    assert read_xmp(packet)[CREATOR] == "Bo; Cy"


def test_entities_of_xml_are_refused_and_what_stands_before_a_fault_counts() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>' + PACKET.replace(
        b"Bo", b"&b;"
    )
    assert read_xmp(bomb) == {}
    assert read_xmp(PACKET[: PACKET.index(b"<xmpRights")]) == {RIGHTS: "© Bo", CREATOR: "Bo; Cy"}
    assert read_xmp(b"<dc:creator>" * 500) == {}


def looping_exif() -> bytes:
    """EXIF whose directories point at themselves, with values of huge lengths and places."""
    entries = [
        (0x010F, 2, 1 << 31, 8), (0x0110, 2, 20, 0xFFFF_FFF0), (0x013B, 99, 4, 0), (0x8298, 5, 1 << 29, 8),
        (0x8769, 4, 1, 8), (0x8825, 4, 1, 0xFFFF_FFFF),
    ]  # fmt: skip
    directory = struct.pack("<H", 0xFFFF) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"Exif\x00\x00II*\x00\x08\x00\x00\x00" + directory


def test_hostile_exif_costs_its_values_only() -> None:
    data = described.with_segment(image_file("jpeg"), 0xE1, looping_exif())
    assert read_metadata(data) == Metadata(gps_present=False, c2pa_present=False)


FULL = {
    format_: image_file(format_, exif_block=described.camera_exif(), packet=PACKET, credentials=STORE)
    for format_ in FORMATS
}


@settings(max_examples=400, deadline=None)
@given(
    format_=st.sampled_from(FORMATS),
    seed=st.integers(0, 2**32 - 1),
    bytes_changed=st.integers(1, 40),
    cut=st.floats(0, 1),
)
@example(format_="tiff", seed=0, bytes_changed=40, cut=1.0)
def test_damaged_files_raise_nothing(format_: str, seed: int, bytes_changed: int, cut: float) -> None:
    rng = np.random.default_rng(seed)
    data = np.frombuffer(FULL[format_], np.uint8).copy()
    extremes = np.array([0, 1, 0x7F, 0x80, 0xFE, 0xFF], np.uint8)
    data[rng.integers(12, len(data), bytes_changed)] = rng.choice(extremes, bytes_changed)
    told = read_metadata(data[: 12 + int(cut * len(data))].tobytes())
    for name in Metadata.__dataclass_fields__:
        value = getattr(told, name)
        assert value is None or isinstance(value, bool) or 0 < len(value) <= MAX_CHARACTERS


BEGINNINGS = [
    b"\xff\xd8\xff\xe1", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00+", b"RIFF\x00\x00\x00\x00WEBP",
    b"\x00\x00\x00\x14ftypavif\x00\x00\x00\x00avif",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=400))
def test_noise_raises_nothing(beginning: bytes, noise: bytes) -> None:
    read_metadata(beginning + noise)

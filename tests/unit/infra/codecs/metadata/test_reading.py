"""Metadata of files of each format, and of damaged ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardmill.infra.codecs.metadata.reading import NOTHING, Metadata, read_metadata
from shardmill.infra.codecs.metadata.text import MAX_CHARACTERS, clean, iso_time
from shardmill.infra.codecs.metadata.xmp import CREATOR, RIGHTS, read_xmp
from tests.samples.images import described
from tests.samples.images.described import NEWSCODES, image_file, manifest, store, xmp

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

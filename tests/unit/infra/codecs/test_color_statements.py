"""Which statement of colours counts, what is told of those that do not, and gain maps that are left out."""

from __future__ import annotations

import io
import struct
import zlib

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from shardmill.infra.codecs import decode
from shardmill.infra.codecs.color.stated import of_nclx
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.prepare import prepare_image
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.preparation import Preparation
from tests.samples.images import colors as std
from tests.samples.images.colors import saved, with_chunks
from tests.samples.images.forms import grey_profile, png_chunk, rgb_profile
from tests.unit.infra.codecs.test_color_table import CUBE, GREYS, avif, deep_cube, png, png16


def test_cicp_wins_over_a_profile_and_a_profile_over_srgb() -> None:
    icc = saved(CUBE, icc_profile=rgb_profile(swapped=True))
    assert decode(with_chunks(icc, cICP=bytes((12, 13, 0, 1)))).source.icc_profile == "Display P3 (cICP)"
    assert decode(with_chunks(icc, cICP=bytes((1, 13, 0, 1)))).pixels.tolist() == CUBE.tolist()
    for data in (with_chunks(icc, sRGB=b"\0"), with_chunks(icc, cICP=bytes((2, 2, 0, 1)))):
        assert decode(data).source.icc_profile == "swapped primaries"


@pytest.mark.parametrize(("primaries", "curve"), [(9, 16), (9, 18), (1, 16)])
def test_hdr_is_refused_by_choice(primaries: int, curve: int) -> None:
    name = {16: "PQ", 18: "HLG"}[curve]
    for data in (png(primaries, curve, 0, 1), png16(primaries, curve, 0, 1), avif(primaries, curve)):
        with pytest.raises(ImageRejected, match=f"its colours are HDR: .*{name}.*image.hdr") as caught:
            decode(data, hdr="quarantine")
        assert caught.value.reason == "unsupported"
    assert decode(png(12, 13, 0, 1), hdr="quarantine").source.icc_profile == "Display P3 (cICP)"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_hdr_may_be_stated_within_a_profile(kind: str) -> None:
    cicp = {b"cicp": b"cicp" + bytes(4) + bytes((9, 16, 0, 1))}
    icc = rgb_profile(swapped=True, more=cicp)
    options = {"PNG": {}, "TIFF": {}, "JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}
    data = saved(CUBE, kind, icc_profile=icc, **options[kind])
    decoded = decode(data)
    assert decoded.source.icc_profile == "BT.2020 PQ (ICC profile), tone-mapped"
    if kind != "JPEG":
        assert np.abs(decoded.pixels - std.shown(CUBE / 255, std.BT2020, std.pq)).max() <= 1.5
    for encoding in ("png", "jpeg"):
        with pytest.raises(ImageRejected, match="HDR"):
            prepare_image(data, Preparation(hdr="quarantine", encoding=encoding))
    assert decode(saved(CUBE, kind, icc_profile=icc[:-1], **options[kind])).pixels.shape == CUBE.shape


def test_hdr_may_be_stated_by_the_name_of_a_profile_in_png() -> None:
    found = decode(png(iCCP=b"ITUR_2100_PQ_FULL\0\0" + zlib.compress(b"x"))).source
    assert found.icc_profile == "BT.2020 PQ (iCCP), tone-mapped"


def test_hdr_in_boxes_wins_over_a_profile_and_other_code_points_do_not() -> None:
    data = saved(CUBE, "AVIF", icc_profile=rgb_profile(swapped=True), quality=100, subsampling="4:4:4")
    assert decode(data).source.icc_profile == "swapped primaries"
    at = data.index(b"nclx") + 4
    for codes, told in (((9, 16), "BT.2020 PQ (nclx), tone-mapped"), ((12, 13), "swapped primaries")):
        changed = data[:at] + struct.pack(">HH", *codes) + data[at + 4 :]
        assert decode(changed).source.icc_profile == told


@pytest.mark.parametrize("place", [b"PLTE", b"IDAT"])
@pytest.mark.parametrize(
    ("name", "content"), [("cICP", bytes((9, 16, 0, 1))), ("gAMA", std.gama(1)), ("cHRM", std.chrm(std.P3))]
)
def test_a_chunk_out_of_place_counts_as_absent(place: bytes, name: str, content: bytes) -> None:
    image = Image.fromarray(CUBE).quantize(200)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    plain = stream.getvalue()
    behind = plain.index(place) + 4 + int.from_bytes(plain[plain.index(place) - 4 :][:4], "big") + 4
    moved = plain[:behind] + png_chunk(name.encode(), content) + plain[behind:]
    assert np.array_equal(decode(moved).pixels, decode(plain).pixels)
    assert decode(with_chunks(plain, **{name: content})).source.icc_profile is not None


def test_palette_transparency_and_opacity_of_16_bits_are_converted_too() -> None:
    stream = io.BytesIO()
    Image.fromarray(CUBE).quantize(216).save(stream, "PNG", transparency=bytes([0] + [255] * 215))
    plain = decode(stream.getvalue(), background=(1, 2, 3))
    decoded = decode(with_chunks(stream.getvalue(), cICP=bytes((12, 13, 0, 1))), background=(1, 2, 3))
    assert (decoded.source.color, decoded.source.had_alpha) == ("palette", True)
    clear = (plain.pixels == (1, 2, 3)).all(axis=2)
    expected = std.shown(plain.pixels / 255, std.P3, std.srgb_curve)
    assert np.abs(decoded.pixels[~clear] - expected[~clear]).max() <= 1.5
    assert (decoded.pixels[clear] == (1, 2, 3)).all()
    for color_type, channels in ((6, 3), (4, 1)):
        rows = np.dstack([deep_cube()[:, :, :channels], np.full(CUBE.shape[:2], 65535)])
        rows[0, 0, -1] = 0
        data = png_with_alpha(rows, color_type, cICP=bytes((1, 8, 0, 1)))
        decoded = decode(data, background=(1, 2, 3))
        signal = np.broadcast_to(deep_cube()[:, :, :channels] / 65535, CUBE.shape)
        expected = std.shown(signal, std.SRGB, std.power(1))
        assert decoded.pixels[0, 0].tolist() == [1, 2, 3]
        assert np.abs(decoded.pixels[1:] - expected[1:]).max() <= 1.5


def png_with_alpha(samples: npt.NDArray[np.uint16], color_type: int, **chunks: bytes) -> bytes:
    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0))
    end = png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    return with_chunks(b"\x89PNG\r\n\x1a\n" + header + end, **chunks)


@pytest.mark.parametrize(
    ("data", "color"),
    [
        (png(0, 13, 0, 1), "RGB; cICP with reserved primaries 0"),
        (png(12, 3, 0, 1), "RGB; cICP with reserved curve 3"),
        (png(255, 255, 0, 1), "RGB; cICP with reserved primaries 255 and curve 255"),
        (png(12, 13, 9, 1), "RGB; cICP not sound"),
        (png(gAMA=std.gama(0)), "RGB; gAMA not sound"),
        (png(cHRM=bytes(32)), "RGB; cHRM not sound"),
        (saved(CUBE, icc_profile=b"rubbish" * 40), "RGB; ICC profile damaged"),
        (saved(CUBE, icc_profile=grey_profile(1.0)), "RGB; ICC profile for GRAY"),
        (saved(GREYS, icc_profile=rgb_profile(swapped=True)), "grey; ICC profile for RGB"),
        (png(iCCP=b"no zero"), "RGB; ICC profile damaged"),
        (saved(CUBE, "JPEG", quality=95, icc_profile=b"rubbish" * 40), "YCbCr 4:2:0; ICC profile damaged"),
        (saved(CUBE, "TIFF", icc_profile=b"rubbish" * 40), "RGB; ICC profile damaged"),
        (saved(CUBE, "WEBP", lossless=True, icc_profile=b"rubbish" * 40), "RGB; ICC profile damaged"),
        (saved(CUBE, icc_profile=rgb_profile(True).replace(b"rXYZ", b"rABC")), "RGB; ICC profile damaged"),
    ],
)  # fmt: skip
def test_what_is_not_sound_costs_the_colours_and_is_told(data: bytes, color: str) -> None:
    image = prepare_image(data, Preparation(resize="none", encoding="png"))
    found = image.source
    assert f"{found.color}; {found.note}" == color
    if found.format != "jpeg" and "reserved curve" not in color:
        assert found.icc_profile is None
        with Image.open(io.BytesIO(image.image)) as stored:
            wanted = np.dstack([GREYS] * 3) if found.color == "grey" else CUBE
            assert np.array_equal(np.asarray(stored), wanted)


def test_a_profile_that_turns_everything_black_is_damaged() -> None:
    black = rgb_profile(swapped=False)
    for name in (b"rXYZ", b"gXYZ", b"bXYZ"):
        at = int.from_bytes(black[black.index(name) + 4 :][:4], "big")
        black = black[: at + 8] + bytes(12) + black[at + 20 :]
    decoded = decode(saved(CUBE, icc_profile=black))
    assert (decoded.source.note, decoded.pixels.tolist()) == ("ICC profile damaged", CUBE.tolist())


def test_a_profile_that_is_not_sound_leaves_its_place_to_the_next_statement() -> None:
    data = with_chunks(saved(CUBE, icc_profile=b"rubbish" * 40), cHRM=std.chrm(std.P3))
    found = decode(data).source
    assert (found.icc_profile, found.note) == ("cHRM", "ICC profile damaged")


def test_damaged_boxes_state_no_colours() -> None:
    data = avif(9, 16, 10)
    assert (heif_colors(data).nclx, heif_colors(data).bits) == (
        b"nclx" + struct.pack(">HHHB", 9, 16, 0, 0x80),
        10,
    )
    for end in range(0, data.index(b"mdat"), 3):
        heif_colors(data[:end])  # raises nothing
    assert of_nclx(b"nclx\0\x0c") == ("nclx not sound",)
    at = data.index(b"pixi") + 9
    lying = data[:at] + b"\xff\x1e\xff" + data[at + 3 :]
    assert heif_colors(lying).bits == 10
    tiled = lying.replace(b"av1C", b"xxxx")
    assert heif_colors(tiled).bits == 16  # the most: a table of all levels takes little memory


def test_the_base_picture_of_a_gain_map_is_stored_and_told() -> None:
    ultra = imagecodecs.ultrahdr_encode(np.full((64, 64, 4), 0.5, np.float16))
    plain = saved(CUBE, "JPEG", quality=95)
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x xmlns:hdrgm='http://ns.adobe.com/hdr-gain-map/1.0/'/>"
    iso = b"urn:iso:std:iso:ts:21496:-1\0" + bytes(4)
    apple = segment(0xE2, b"MPF\0" + bytes(8)), b"\xff\xd8urn:com:apple:photo:2020:aux:hdrgainmap"
    made = {
        "Adobe": plain[:2] + segment(0xE1, xmp) + plain[2:],
        "ISO": plain[:2] + segment(0xE2, iso) + plain[2:],
        "Apple": plain[:2] + apple[0] + plain[2:] + apple[1],
    }  # fmt: skip
    for name, data in made.items():
        for how in (Preparation(), Preparation(encoding="png", resize="none")):  # by planes and by pixels
            image = prepare_image(data, how)
            assert (image.source.color, image.source.note) == ("YCbCr 4:2:0", "gain map left out"), name
            assert image.image == prepare_image(plain, how).image
    assert decode(ultra).source.note.startswith("gain map left out")
    assert decode(plain[:2] + apple[0] + plain[2:] + b"\xff\xd8 a second picture").source.note == ""


def segment(marker: int, content: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content


@pytest.mark.parametrize("name", [b"tmap", b"urn:com:apple:photo:2020:aux:hdrgainmap\0"])
def test_a_gain_map_of_heif_is_told(name: bytes) -> None:
    inner = box(b"iinf", bytes(12) + name) if name == b"tmap" else box(b"iprp", box(b"auxC", bytes(4) + name))
    assert heif_colors(box(b"ftyp", b"heic") + box(b"meta", bytes(4) + inner)).has_gain_map
    assert not heif_colors(box(b"meta", bytes(4) + box(b"free", name))).has_gain_map


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content

"""One compiled call for a JPEG gives what the Python code gives, to the bit, or leaves it to that code."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.codecs import area, planar
from infra.codecs.libturbojpeg import library
from infra.codecs.moments import Statistics, Sums, statistics_of
from infra.codecs.resize import Sizing, geometry
from infra.codecs.turbojpeg import PlanarHeader, read_planar_header

if library() is None:
    pytest.skip("libturbojpeg is not installed (Debian: apt install libturbojpeg0)", allow_module_level=True)
if not area.is_compiled():
    pytest.skip("nothing was compiled: no C compiler when installing", allow_module_level=True)

CLOTHING = Path(__file__).parents[3] / "../shared/data/clothing"
SAMPLINGS = ("444", "422", "420", "440", "411", "grey")


def noisy(height: int, width: int, seed: int = 0) -> Any:
    """uint8 [H, W, 3]: noise, in which every pixel that is taken wrongly shows."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def jpeg(pixels: Any, sampling: str = "420") -> bytes:
    if sampling == "grey":
        pixels = np.ascontiguousarray(pixels[:, :, :1])
        data: bytes = simplejpeg.encode_jpeg(pixels, colorspace="GRAY", colorsubsampling="Gray")
    else:
        data = simplejpeg.encode_jpeg(pixels, quality=95, colorsubsampling=sampling)
    return data


def header_of(data: bytes) -> PlanarHeader:
    header = read_planar_header(data)
    assert header is not None
    return header


def shrunk(data: bytes, scaled: tuple[int, int], channels: int = 3) -> planar.ShrunkJpeg | None:
    return planar._shrink(data, header_of(data), scaled, channels, 90)


def assert_is_that_of_the_steps(data: bytes, scaled: tuple[int, int], channels: int = 3) -> bool:
    """Whether the compiled code took it; if so, all that came out is the same."""
    found = shrunk(data, scaled, channels)
    if found is None:
        return False
    expected = planar._in_steps(data, header_of(data), scaled, channels, 90)
    assert found.image == expected.image
    assert found.statistics == expected.statistics
    assert found.thumbnail.dtype == np.uint8
    assert np.array_equal(found.thumbnail, expected.thumbnail)
    return True


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    ("size", "scaled"),
    [
        ((533, 400), (341, 256)),
        ((400, 533), (256, 341)),
        ((480, 640), (192, 255)),  # odd, by more than 2: chroma is wanted beyond the picture
        ((301, 203), (199, 134)),
        ((307, 211), (150, 103)),
        ((97, 131), (96, 129)),
        ((33, 700), (32, 679)),
        ((700, 33), (671, 32)),
        ((900, 700), (329, 256)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_comes_out_is_that_of_the_steps(
    size: tuple[int, int], scaled: tuple[int, int], sampling: str, channels: int
) -> None:
    taken = assert_is_that_of_the_steps(jpeg(noisy(*size), sampling), scaled, channels)
    grows = sampling == "411" and channels == 3 and size[1] < 2 * scaled[1]
    assert taken != grows


@pytest.mark.parametrize(("sampling", "taken"), [("420", True), ("grey", True), ("444", False)])
def test_to_half(sampling: str, taken: bool) -> None:
    """OpenCV counts it in integers, and so does the compiled code; a quarter, of the chroma of 4:4:4, not."""
    data = jpeg(noisy(300, 200), sampling)
    assert assert_is_that_of_the_steps(data, (150, 100)) == taken


@pytest.mark.parametrize(
    ("size", "scaled"),
    [
        ((64, 48), (64, 48)),  # nothing to shrink
        ((96, 144), (32, 48)),  # a third: OpenCV counts in integers
        ((256, 512), (128, 128)),
        ((384, 385), (192, 192)),  # the thumbnail is a third
        ((600, 500), (38, 31)),  # the thumbnail would grow
        ((3, 200), (1, 66)),
        ((200, 3), (67, 1)),
        ((1, 1), (1, 1)),
        ((30, 40), (60, 80)),
    ],
)
def test_what_is_not_ordinary_is_left_to_the_steps(size: tuple[int, int], scaled: tuple[int, int]) -> None:
    assert shrunk(jpeg(noisy(*size)), scaled) is None


@settings(max_examples=300)
@given(data=st.data())
def test_any_size_and_sampling(data: st.DataObject) -> None:
    height, width = (data.draw(st.integers(1, 300)) for _ in range(2))
    # What makes a thumbnail is what is of interest; other sizes are seldom taken.
    scaled = (
        data.draw(st.integers(min(32, height), height)),
        data.draw(st.integers(min(32, width), width)),
    )
    pixels = noisy(height, width, data.draw(st.integers(0, 2**32)))
    sampling = data.draw(st.sampled_from(SAMPLINGS))
    assert_is_that_of_the_steps(jpeg(pixels, sampling), scaled, data.draw(st.sampled_from([1, 3])))


def test_flat_pictures_and_extremes() -> None:
    for value in (0, 1, 127, 255):
        assert assert_is_that_of_the_steps(jpeg(np.full((130, 99, 3), value, np.uint8)), (101, 77))
    checks = np.where(np.indices((130, 99)).sum(axis=0)[:, :, np.newaxis] % 2, 255, 0).astype(np.uint8)
    assert assert_is_that_of_the_steps(jpeg(np.repeat(checks, 3, axis=2), "444"), (101, 77))


def test_sums_of_long_white_rows_do_not_overflow() -> None:
    data = jpeg(np.full((66, 65_500, 3), 255, np.uint8), "grey")
    assert assert_is_that_of_the_steps(data, (65, 65_499))


def test_large_pictures_and_small_ones_in_turn() -> None:
    """Memory that a thread keeps grows, and what is too large for it comes and goes."""
    large = jpeg(np.tile(noisy(100, 100), (61, 45, 1)))
    small = jpeg(noisy(131, 97))
    for _ in range(2):
        assert assert_is_that_of_the_steps(large, (4001, 2953))
        assert assert_is_that_of_the_steps(small, (120, 89))


def test_of_one_side_longer_than_all_others() -> None:
    assert assert_is_that_of_the_steps(jpeg(noisy(64, 20_000)), (33, 10_313))


@pytest.mark.skipif(not CLOTHING.is_dir(), reason=f"no shared photographs at {CLOTHING}")
@pytest.mark.parametrize("size", [224, 256])
def test_photographs(size: int) -> None:
    files = sorted(CLOTHING.rglob("*.jpg"))[::25]
    taken = 0
    for file in files:
        data = file.read_bytes()
        header = header_of(data)
        to = geometry(header.height, header.width, Sizing("short", size, size))
        taken += assert_is_that_of_the_steps(data, to.scaled)
    assert taken > 0.9 * len(files)


def test_a_file_that_cannot_be_written_is_left_to_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(noisy(200, 269))
    planar._plan.cache_clear()
    monkeypatch.setattr(planar, "longest_file", lambda *_: 0)
    monkeypatch.setattr(planar, "stored_sampling", lambda _: 99)
    assert shrunk(data, (101, 137)) is None
    planar._plan.cache_clear()
    monkeypatch.undo()
    assert assert_is_that_of_the_steps(data, (101, 137))


def test_code_that_gives_anything_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(sums: Sums) -> Statistics:
        return statistics_of(sums._replace(luma=sums.luma + 1))

    planar._agrees.cache_clear()
    monkeypatch.setattr(planar, "statistics_of", wrong)
    assert not planar.is_used()
    data = jpeg(noisy(200, 269))
    to = geometry(200, 269, Sizing("short", 64, 64))
    assert planar.shrink_jpeg(data, header_of(data), to, 3, 90) is None
    planar._agrees.cache_clear()
    monkeypatch.undo()
    assert planar.is_used()


def test_threads_do_not_share_what_they_work_with() -> None:
    files = [jpeg(noisy(200 + number, 300, number)) for number in range(6)]
    alone = [shrunk(data, (101, 153)) for data in files]
    found: dict[int, set[bytes]] = {}

    def work(number: int) -> None:
        each = [shrunk(files[number], (101, 153)) for _ in range(30)]
        found[number] = {one.image + one.thumbnail.tobytes() for one in each if one is not None}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, one in enumerate(alone):
        assert one is not None
        assert found[number] == {one.image + one.thumbnail.tobytes()}

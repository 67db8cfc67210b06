"""Points and polygons lie where a picture of them lies that is turned, cut and scaled as pixels are."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from shardmill.beam_jobs.config import ImageConfig
from shardmill.beam_jobs.encode.placing import Frames, Placing
from shardmill.infra.codecs.geometry import geometry
from shardmill.infra.codecs.polygons import signed_areas

FINE = 8  # pixels of the drawing to one of the image
HEIGHT, WIDTH = 40, 64
# An arrow with a hole, which no turn and no mirror leaves the same, reaching over two edges.
RING = np.array([[4.0, 6], [30, 6], [30, 40], [46, 20], [30, -9], [4, 2]])
HOLE = np.array([[10.0, 12], [25, 30], [10, 20]])
MODES = (
    {"resize": "short", "size": 24},
    {"resize": "crop", "size": 24},
    {"resize": "pad", "height": 32, "width": 28},
    {"resize": "crop", "height": 56, "width": 80, "upscale": True},
)


def drawn(rings: list[npt.NDArray[np.float64]], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Rings filled by OpenCV at a fine grid: its numbers are the middles of pixels."""
    picture = np.zeros((height * FINE, width * FINE), np.uint8)
    corners = [np.rint(ring[:, ::-1] * FINE * 16 - 8).astype(np.int32) for ring in rings]
    cv2.fillPoly(picture, corners, 255, shift=4)
    return picture


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_polygons_and_points_are_where_pixels_are(orientation: int, mode: dict[str, object]) -> None:
    image = ImageConfig.model_validate(mode)
    file = Image.fromarray(drawn([RING, HOLE], HEIGHT, WIDTH))
    file.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(file))
    to = geometry(upright.shape[0] // FINE, upright.shape[1] // FINE, image.sizing)
    top, left, height, width = (number * FINE for number in to.window)
    scaled = cv2.resize(
        upright[top : top + height, left : left + width],
        (to.scaled[1] * FINE, to.scaled[0] * FINE),
        interpolation=cv2.INTER_LINEAR,
    )
    expected = np.zeros([side * FINE for side in to.canvas], np.uint8)
    top, left = (number * FINE for number in to.offset)
    expected[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    sizes = np.array([[HEIGHT, WIDTH]])
    frames = Frames.compared(sizes, np.array([orientation]), sizes, upright=False)
    placing = Placing.of(frames, np.zeros(1, np.int64), image, relative=False)
    points, counts, rings = placing.rings(
        np.concatenate([RING, HOLE]), np.array([len(RING), len(HOLE)]), np.array([2])
    )
    assert (rings.tolist(), len(counts)) == ([2], 2)
    assert ((points >= 0) & (points <= 1)).all()
    assert np.sign(signed_areas(points, counts)).tolist() == [-1, 1]  # as they turn in the file
    found = drawn(np.split(points * to.canvas, counts[:1]), *to.canvas)
    edges = np.abs(np.diff((expected > 127).astype(int))).sum() + 4 * FINE
    assert ((found > 127) != (expected > 127)).sum() < 2 * edges  # a row of fine pixels along the edges

    shown = (expected > 127) | (found > 127)
    middles = np.argwhere(shown[FINE // 2 :: FINE, FINE // 2 :: FINE])
    assert len(middles)
    relative, are_in = placing.points(np.array([[[0.5, 0.5], [HEIGHT - 0.5, 0.5], [-3.0, 9.0]]]))
    assert not are_in[0, 2]
    corners = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    corners[0, 0, 0] = corners[1, -1, 0] = 1
    for point, is_in, corner in zip(relative[0], are_in[0], corners, strict=False):
        marked = Image.fromarray(corner)
        marked.getexif()[0x0112] = orientation
        (place,) = np.argwhere(np.asarray(ImageOps.exif_transpose(marked)))
        window = np.array(to.window)
        in_window = place + 0.5 - window[:2]
        assert is_in == ((in_window >= 0) & (in_window <= window[2:])).all()
        wanted = (in_window * to.scaled / window[2:] + to.offset) / to.canvas
        assert point == pytest.approx(wanted, abs=1e-12)


def test_annotations_may_be_of_the_upright_image_or_relative() -> None:
    image = ImageConfig(size=24)
    file = np.array([[HEIGHT, WIDTH]])
    turned = Frames.compared(file, np.array([6]), file[:, ::-1], upright=False)
    point = np.array([[[10.0, 5.0]]])
    placed, _ = Placing.of(turned, np.zeros(1, np.int64), image, relative=False).points(point)
    assert placed.tolist() == [[[10 / WIDTH, 5 / HEIGHT]]]
    placed, _ = Placing.of(turned, np.zeros(1, np.int64), image, relative=True).points(point / 100)
    assert placed == pytest.approx(point / 100)

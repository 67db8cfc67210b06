"""What serves sees what was trained on: over preparations and formats, for files and in the exported graph.

Tolerances, in grey levels of 255. The pixels of a file and those of its record are equal to the bit. The
graph is within 2 levels where records are stored without loss: averaging and interpolation round otherwise.
JPEG records add what another cosine transform and chroma at another size do: 3 on average. A WebP record adds
its own loss, which a graph cannot make: 6 on average.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from shardmill import open_dataset
from shardmill.infra.preparation import Preparation
from shardmill.training.config.data import Decoding
from shardmill.training.export.model_input import ModelInput, View, read_model_input
from shardmill.training.models.spec import Fit
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.record_ids import id_number
from tests.samples.images.colors import P3, SRGB, chrm, gama, with_chunks
from tests.samples.images.forms import grey_profile, rgb_profile
from tests.samples.preparing.prepared import run

EXACT, JPEG, WEBP = 2.0, 3.0, 6.0
PREPARATIONS: dict[str, dict[str, Any]] = {
    "pad": {"resize": "pad", "height": 40, "width": 72, "background": "#204060", "encoding": "png"},
    "crop": {"resize": "crop", "height": 40, "width": 72, "upscale": True},
    "grey": {"resize": "long", "size": 48, "channels": 1, "resample": "lanczos", "encoding": "raw"},
}
MORE_PREPARATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "unchanged": {"resize": "none", "passthrough": True, "quality": 60},
    "unchanged png": {"resize": "none", "passthrough": True, "encoding": "png"},
    "pad up": {"resize": "pad", "size": 60, "upscale": True, "resample": "lanczos"},
    "crop exactly": {"resize": "crop", "height": 65, "width": 33, "encoding": "png"},
    "grey pad": {"resize": "pad", "size": 48, "channels": 1, "background": "#ff0000"},
    "webp": {"resize": "short", "size": 40, "encoding": "webp"},
    "long up": {"resize": "long", "size": 64, "upscale": True, "encoding": "png", "background": "#000000"},
    "truncated": {"resize": "crop", "size": 32, "allow_truncated": True, "encoding": "png"},
}
KINDS = [*PREPARATIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_PREPARATIONS)]
FITS: list[Fit] = ["crop", "stretch"]
DECODINGS: list[Decoding] = ["scaled", "whole"]
# Fit, size and channels of the graph's input, where not both are tried: building a graph takes seconds.
VIEWS: dict[str, list[tuple[Fit, int, int]]] = {
    "pad": [("crop", 24, 3)],
    "crop": [("stretch", 24, 3)],
    "grey": [("crop", 40, 1)],
}
AT_ONCE = {"crop", "grey"}  # tests/unit/training/export/test_inference.py exports a graph of grey records


def photo(height: int, width: int) -> Image.Image:
    """Smooth, with another colour in every corner, and a dark bar, so that no turn or shift looks alike."""
    y, x = np.mgrid[0:height, 0:width]
    red, green, blue = 255 * x / width, 255 * y / height, 255 * (1 - x / width) * (1 - y / height)
    pixels = np.stack([red, green, blue], axis=2)
    pixels[height // 5 : height // 3, width // 4 :] *= 0.5
    return Image.fromarray(pixels.astype(np.uint8))


def see_through(image: Image.Image) -> Image.Image:
    """The picture, more and more opaque from left to right."""
    alpha = np.linspace(0, 255, image.width).astype(np.uint8)
    image.putalpha(Image.fromarray(np.tile(alpha, (image.height, 1))))
    return image


def saved(image: Image.Image, kind: str, orientation: int = 1, **options: Any) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    stream = io.BytesIO()
    image.save(stream, kind, **options, **({} if orientation == 1 else {"exif": exif}))
    return stream.getvalue()


def files() -> dict[str, bytes]:
    """Files of each kind that a graph decodes, by name; tiny, long and larger than every stored image."""
    made = {}
    for height, width in ((90, 131), (7, 11), (401, 60)):
        size = f"{height}x{width}"
        made |= {
            f"{size}.jpg": saved(photo(height, width), "JPEG", quality=92),
            f"{size} turned.jpg": saved(photo(height, width), "JPEG", 6, quality=92, subsampling=0),
            f"{size} grey.jpg": saved(photo(height, width).convert("L"), "JPEG", 3),
            f"{size} cmyk.jpg": saved(photo(height, width).convert("CMYK"), "JPEG"),
            f"{size}.png": saved(photo(height, width), "PNG", 8),
            f"{size} alpha.png": saved(see_through(photo(height, width)), "PNG"),
            f"{size} grey alpha.png": saved(see_through(photo(height, width)).convert("LA"), "PNG"),
            f"{size}.webp": saved(photo(height, width), "WEBP", 5, quality=90),
            f"{size} alpha.webp": saved(see_through(photo(height, width)), "WEBP", lossless=True, exact=True),
            f"{size}.bmp": saved(photo(height, width), "BMP"),
            f"{size}.gif": saved(photo(height, width).quantize(64), "GIF"),
        }
    return made


def others() -> dict[str, bytes]:
    """Files of kinds that a graph does not decode, or decodes otherwise."""
    image = photo(60, 44)
    colours = image.quantize(4)
    return {
        "a.tiff": saved(image, "TIFF"),
        "b.jp2": saved(image, "JPEG2000"),
        "c.gif": saved(colours, "GIF", transparency=0),
        "d.png": saved(colours, "PNG", bits=2, transparency=0),
        "e.bmp": saved(image.convert("1"), "BMP"),
        "f.png": with_chunks(saved(image, "PNG"), cICP=bytes((12, 13, 0, 1))),
        "g.png": with_chunks(saved(image, "PNG"), gAMA=gama(1.0)),
        "h.png": with_chunks(saved(image, "PNG"), cHRM=chrm(P3)),
    }


def given(name: str, fit: Fit, size: int = 24, channels: int = 3) -> ModelInput:
    how = Preparation.of({**PREPARATIONS, **MORE_PREPARATIONS}[name])
    return ModelInput.model_validate(
        {"preparation": how, "image_size": size, "fit": fit, "image_channels": channels}
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_file_gives_the_pixels_of_its_record(name: str, tmp_path: Path) -> None:
    """The records that ``prepare`` makes, as evaluation reads them."""
    sources = {**files(), **others()}
    if name == "truncated":
        sources["short.jpg"] = sources["90x131.jpg"][:-500]
    for path, data in sources.items():
        (tmp_path / "photos").mkdir(exist_ok=True)
        (tmp_path / "photos" / path).write_bytes(data)
    image = {**PREPARATIONS, **MORE_PREPARATIONS}[name]
    rules = {"splits": {"train": 1, "validation": 0, "test": 0}, "groups": {"near_duplicates": False}}
    run(tmp_path / "photos", tmp_path / "root", source={"labels": "none"}, image=image, **rules)
    reader = open_dataset("d", tmp_path / "root").reader("train")
    of_id = {id_number(hashlib.sha256(data).hexdigest()[:16]): data for data in sources.values()}
    assert len(reader.table) == len(sources)
    order = SequentialOrder(len(sources), len(sources))
    for seen in [*({"fit": fit} for fit in FITS), {"decoding": "whole"}]:
        spec = ExampleSpec.of_options(image_size=24, **seen)
        model_input = ModelInput.of(reader, spec)
        assert model_input.preparation == Preparation.of(image)
        batch = BatchMaker(reader, spec).make(order.step(0, 0))
        for ordinal, pixels in zip(batch.ordinals, batch.images, strict=True):
            file = of_id[int(reader.table.id[ordinal])]
            assert np.array_equal(model_input.see(file).pixels, pixels)


def in_graph(model_input: ModelInput) -> Any:
    """What an export computes: a graph of its own, which takes seconds to build."""
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.export.graph.preparing import see_in_graph

    signature = [tf.TensorSpec([], tf.string)]
    return tf.function(lambda data: see_in_graph(data, model_input), signature, autograph=False)


@pytest.mark.parametrize("name", KINDS)
def test_the_graph_sees_what_the_model_was_trained_on(name: str) -> None:
    encoding = given(name, "crop").preparation.encoding
    for fit, size, channels in VIEWS.get(name, [("stretch", 24, 3), ("crop", 40, 1)]):
        model_input = given(name, fit, size, channels)
        graph = at_once(model_input) if name in AT_ONCE else in_graph(model_input)
        wrong = []
        for file, data in files().items():
            wanted = model_input.see(data)
            pixels, edges = (found.numpy() for found in graph(data))
            off = np.abs(pixels.astype(float) - wanted.pixels)
            most = off.max() if encoding in ("png", "raw") else off.mean()
            allowed = {"jpeg": JPEG, "webp": WEBP}.get(encoding, EXACT)
            if most > (
                4 * allowed if file.startswith("7x11") else allowed
            ):  # 4 × 6 samples of chroma, enlarged
                wrong.append(f"{file}: {off.mean():.2f} on average, {off.max():.0f} at most")
            height, width = wanted.view.upright
            relative = wanted.view.edges() / [height, width, height, width]
            assert edges == pytest.approx(relative, abs=1e-5), file
        assert not wrong, "\n".join([f"{name} {fit}", *wrong])


def at_once(model_input: ModelInput) -> Any:
    """The same operations one by one."""
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.export.graph.preparing import see_in_graph

    return lambda data: see_in_graph(tf.constant(data), model_input)


def profiled() -> dict[str, bytes]:
    """Files with a profile that changes colours by 60 levels, and with those that change nothing."""
    image, strong = photo(90, 131), rgb_profile(swapped=True)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return {
        "a.jpg": saved(image, "JPEG", 6, quality=95, icc_profile=strong),
        "b.png": saved(see_through(image.copy()), "PNG", icc_profile=strong),
        "c.png": saved(image.quantize(16), "PNG", icc_profile=strong),
        "d.webp": saved(image, "WEBP", quality=95, icc_profile=strong),
        "e.jpg": saved(image, "JPEG", quality=95, icc_profile=srgb),
        "f.png": saved(image, "PNG", icc_profile=srgb),
        "g.jpg": saved(image.convert("L"), "JPEG", quality=95, icc_profile=strong),  # not for its channels
        "h.jpg": saved(image, "JPEG", quality=95, icc_profile=strong[:200]),  # damaged
        "i.png": with_chunks(saved(image, "PNG"), gAMA=gama(0.45455), cHRM=chrm(SRGB)),
        "j.png": with_chunks(saved(image, "PNG"), sRGB=b"\0", gAMA=gama(1.0)),
    }


@pytest.mark.parametrize(("channels", "encoding"), [(3, "png"), (3, "jpeg"), (1, "png")])
def test_the_graph_converts_profiles_as_prepare_does(channels: Any, encoding: Any) -> None:
    how = Preparation(resize="pad", size=64, encoding=encoding, channels=channels)
    model_input = ModelInput(preparation=how, image_size=48, fit="crop", image_channels=channels)
    see = at_once(model_input)
    for name, data in profiled().items():
        off = np.abs(see(data)[0].numpy().astype(float) - model_input.see(data).pixels)
        assert off.mean() <= 1.0, (name, off.mean(), off.max())


def test_profiles_that_a_graph_cannot_convert_are_refused() -> None:
    tf = pytest.importorskip("tensorflow")
    see = at_once(given("pad", "crop"))
    grey = photo(60, 44).convert("L")
    for kind in ("JPEG", "PNG"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"a colour profile of grey.*model-input"):
            see(saved(grey, kind, icc_profile=grey_profile(gamma=1.0)))
    of_pq = rgb_profile(swapped=False, more={b"cicp": b"cicp" + bytes(4) + bytes((9, 16, 0, 1))})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a colour profile of.*HDR.*model-input"):
        see(saved(photo(60, 44), "JPEG", icc_profile=of_pq))


def test_what_the_graph_cannot_do_is_refused_in_words() -> None:
    tf = pytest.importorskip("tensorflow")
    graph = at_once(given("pad", "crop"))
    for name, data in others().items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"model-input\.json"):
            graph(data)
        assert given("pad", "crop").see(data).pixels.shape == (24, 24, 3), name
    # TensorFlow fills what is missing otherwise than the preparation does where image.allow_truncated is set.
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG data"):
        graph(saved(photo(90, 131), "JPEG")[:-500])
    few = given("pad", "crop").model_copy(update={"preparation": Preparation(max_pixels=1000)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1,000 pixels"):
        at_once(few)(saved(photo(40, 30), "PNG"))


def overlaps(old: int, new: int) -> np.ndarray:
    """The share of each old pixel in each new one, along a side that shrinks: float64 [new, old]."""
    edges = np.arange(new + 1) * old / new
    starts, ends = (
        np.maximum.outer(edges[:-1], np.arange(old)),
        np.minimum.outer(edges[1:], np.arange(1, old + 1)),
    )
    return np.maximum(ends - starts, 0) * new / old


@pytest.mark.parametrize("size", [24, 40, 70, 95])
def test_the_graph_decodes_large_jpegs_at_the_same_scale(size: int) -> None:
    pytest.importorskip("tensorflow")
    data = saved(photo(301, 423), "JPEG", quality=92)
    how = Preparation(resize="none", passthrough=True)
    seen = [ModelInput(preparation=how, image_size=size, decoding=each) for each in DECODINGS]
    for model_input in seen:
        found = at_once(model_input)(data)[0].numpy()
        assert np.abs(found.astype(int) - model_input.see(data).pixels).max() <= 1
    assert not np.array_equal(seen[0].see(data).pixels, seen[1].see(data).pixels)


def test_padding_is_what_numpy_says() -> None:
    """Averaged in float64 and laid on the canvas, without any code of the project."""
    picture = np.asarray(photo(160, 200), np.float64)
    small = np.einsum("ij,jkc,lk->ilc", overlaps(160, 40), picture, overlaps(200, 50))
    wanted = np.full((40, 72, 3), [0x20, 0x40, 0x60], np.float64)
    wanted[:, 10:60] = small  # 11 rounded down to an even place, where chroma samples begin
    model_input = given("pad", "crop", 40)
    pixels = model_input.see(saved(photo(160, 200), "PNG")).pixels
    assert np.abs(pixels - wanted[:, 16:56]).max() <= 1.0


def marked(height: int, width: int) -> np.ndarray:
    """A black picture with a white rectangle: uint8 [H, W]."""
    picture = np.zeros((height, width), np.uint8)
    picture[height // 4 : height // 2, width // 3 : width // 2] = 255
    return picture


def views() -> Iterator[tuple[View, np.ndarray, np.ndarray]]:
    """Views, the picture and where the model sees the rectangle in it: bool [S, S]."""
    for settings in (*PREPARATIONS.values(), *MORE_PREPARATIONS.values()):
        for fit in FITS:
            for height, width in ((120, 200), (300, 90)):
                how = Preparation.of({**settings, "encoding": "png", "background": "#000000"})
                model_input = ModelInput(preparation=how, image_size=64, fit=fit)
                seen = model_input.see(saved(Image.fromarray(marked(height, width)), "PNG"))
                yield seen.view, marked(height, width), seen.pixels[:, :, 0] > 127


def test_boxes_and_masks_refer_to_the_upright_picture() -> None:
    for view, picture, found in views():
        height, width = picture.shape
        rows, columns = np.flatnonzero(found.any(1)), np.flatnonzero(found.any(0))
        box = np.array([[rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]]) / 64
        top, left, bottom, right = view.edges()
        pixel = max(bottom - top, right - left) / 64  # of the model's, in those of the picture
        wanted = [
            max(height // 4, top),
            max(width // 3, left),
            min(height // 2, bottom),
            min(width // 2, right),
        ]
        assert view.boxes(box)[0] == pytest.approx(wanted, abs=1.5 * pixel + 1)
        mask = view.mask(found.astype(np.uint8), 255)
        assert mask.shape == picture.shape
        is_seen = mask != 255
        assert (mask == (picture > 127))[is_seen].mean() > 0.95
        y, x = np.arange(height) + 0.5, np.arange(width) + 0.5
        inside = (y > top) & (y < bottom), (x > left) & (x < right)
        assert is_seen.sum() == pytest.approx(inside[0].sum() * inside[1].sum(), abs=height + width)


@pytest.mark.parametrize(
    ("size", "fit", "lefts", "unseen"),
    [
        ((16, 16), "stretch", 8, 0),
        ((6, 40), "stretch", 20, 0),
        ((6, 40), "crop", 3, 17),  # the central 6 × 6 pixels
        ((3, 3), "stretch", 1, 0),  # the centre of the middle pixel lies on the border: it is right of it
    ],
)
def test_a_mask_gets_the_size_of_its_picture(
    size: tuple[int, int], fit: Fit, lefts: int, unseen: int
) -> None:
    how = Preparation(resize="none", encoding="png")
    view = ModelInput(preparation=how, image_size=8, fit=fit).see(saved(photo(*size), "PNG")).view
    halves = np.repeat(np.array([[0] * 4 + [1] * 4], np.uint16), 8, axis=0)  # left 0, right 1
    found = view.mask(halves, 65_535)
    row = [65_535] * unseen + [0] * lefts + [1] * (size[1] - 2 * unseen - lefts) + [65_535] * unseen
    assert found[size[0] // 2].tolist() == row
    assert found.dtype == np.uint16


def test_boxes_around_padding_alone_are_left_out_of_the_saved_model() -> None:
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.export.saved_model import in_pictures

    boxes = tf.constant([[[0.0, 0.0, 0.2, 1.0], [0.25, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]]])
    scores, classes = tf.constant([[0.9, 0.8, 0.0]]), tf.constant([[2, 1, -1]])
    edges = tf.constant([[-0.5, 0.0, 1.5, 1.0]])  # a quarter of the input is padding above, and below
    found = in_pictures(boxes, scores, classes, edges)
    assert found["classes"].numpy().tolist() == [[1, -1, -1]]
    assert found["scores"].numpy()[0] == pytest.approx([0.8, 0, 0])
    assert found["boxes"].numpy()[0, 0] == pytest.approx([0.0, 0.0, 0.5, 0.5])


def test_the_file_beside_an_export_says_it_all(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    model_input = given("pad", "stretch", 24, 1)
    model_input.write(tmp_path)
    assert (
        read_model_input(tmp_path)
        == read_model_input(tmp_path / "export" / "model-input.json")
        == model_input
    )

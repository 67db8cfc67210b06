"""An exported model sees the same pixels of an image as the preparation of records.

A fresh process with TensorFlow alone loads the SavedModel of a "model" whose logits are its input's pixels,
so that every pixel can be read off the probabilities and compared with ``shardmill.infra.codecs.decode``.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from shardmill.infra.codecs import decode
from shardmill.infra.preparation import Preparation
from shardmill.training.augment.windows import central_windows
from shardmill.training.export.model_input import ModelInput

# Pillow warns of the broken EXIF in some cases; what it then takes is what counts.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Metadata Warning"),
    pytest.mark.filterwarnings("ignore:Corrupt EXIF"),
    pytest.mark.filterwarnings("ignore:Possibly corrupt EXIF"),
    pytest.mark.filterwarnings("ignore:Truncated File Read"),
]

SIZE = 16
LEVELS_A_NAT = 16  # grey levels that make one unit of a logit
HEIGHT, WIDTH = 37, 50  # odd, so that the middle is off by half a pixel


def _photo() -> Image.Image:
    """Smooth, with a different colour in every corner."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    red, green, blue = 255 * x / WIDTH, 255 * y / HEIGHT, 255 * (1 - x / WIDTH) * (1 - y / HEIGHT)
    return Image.fromarray(np.stack([red, green, blue], axis=2).astype(np.uint8))


def _alpha() -> Image.Image:
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8))


def _file(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def _tiff(orientation: int, order: str, *, kind: int = 3, count: int = 1, before: int = 3) -> bytes:
    """A TIFF structure whose entry 274 comes after some others."""
    letters = {"<": b"II*\x00", ">": b"MM\x00*"}[order]
    entries = [struct.pack(order + "HHII", 256 + number, 4, 1, 7) for number in range(before)]
    value = struct.pack(
        order + ("HH" if kind == 3 else "I"), *([orientation, 0] if kind == 3 else [orientation])
    )
    entries.append(struct.pack(order + "HHI", 274, kind, count) + value)
    body = struct.pack(order + "H", len(entries)) + b"".join(entries) + bytes(4)
    return letters + struct.pack(order + "I", 12) + b"pad!" + body


def _jpeg(exif: bytes | None, before: bytes = b"", **options: Any) -> bytes:
    """A JPEG with a block of EXIF after its own first segment and ``before``."""
    plain = _file(_photo(), "JPEG", quality=95, **options)
    first = 4 + int.from_bytes(plain[4:6], "big")
    segment = b"" if exif is None else _segment(0xE1, b"Exif\x00\x00" + exif)
    return plain[:first] + before + segment + plain[first:]


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def _with_transparency(mode: str) -> bytes:
    image = _photo().quantize(32) if mode == "P" else _photo().convert(mode)
    return _file(
        image,
        "PNG",
        transparency=bytes(range(0, 256, 8)) if mode == "P" else (60 if mode == "L" else (0, 0, 255)),
    )


def _webp_with(exif: bytes) -> bytes:
    return _file(_photo(), "WEBP", lossless=True, exif=b"Exif\x00\x00" + exif)


def _late_exif_png() -> bytes:
    """A PNG whose eXIf chunk is behind its pixels."""
    early = _file(_photo(), "PNG", exif=_tiff(8, ">"))
    at = early.index(b"eXIf") - 4
    end = at + 12 + int.from_bytes(early[at : at + 4], "big")
    chunk, rest = early[at:end], early[:at] + early[end:]
    return rest[:-12] + chunk + rest[-12:]


def _grey16() -> Image.Image:
    return Image.fromarray(np.asarray(_photo().convert("L")).astype(np.uint16) * 256 + 200)


def _rgba() -> Image.Image:
    image = _photo()
    image.putalpha(_alpha())
    return image


def _comment() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "eXIf" * 40)
    return info


XMP = _segment(0xE1, b"http://ns.adobe.com/xap/1.0/\x00<x/>")
ICC = _segment(0xE2, bytes(60_000))
CASES: dict[str, bytes] = {
    **{f"jpeg {value} {order}": _jpeg(_tiff(value, order)) for value in range(1, 9) for order in "<>"},
    "jpeg long value": _jpeg(_tiff(6, ">", kind=4)),
    "jpeg two values": _jpeg(_tiff(6, "<", count=2)),
    "jpeg after other segments": _jpeg(_tiff(5, "<"), before=XMP + ICC + b"\xff\xff"),
    "jpeg beyond what is searched": _jpeg(_tiff(5, "<"), before=2 * _segment(0xE2, bytes(40_000))),
    "jpeg without exif": _jpeg(None),
    "jpeg only xmp": _jpeg(None, before=XMP),
    "jpeg orientation 0": _jpeg(_tiff(0, "<")),
    "jpeg orientation 9": _jpeg(_tiff(9, "<")),
    "jpeg empty exif": _jpeg(b""),
    "jpeg no tiff": _jpeg(b"what is this, then?"),
    "jpeg exif cut in its directory": _jpeg(_tiff(6, "<")[:30]),
    "jpeg exif cut after the tag": _jpeg(_tiff(6, "<")[:-6]),
    "jpeg directory far outside": _jpeg(b"II*\x00\xf0\xff\xff\xff" + bytes(20)),
    "jpeg too many entries announced": _jpeg(_tiff(6, "<").replace(b"\x04\x00", b"\xff\xff", 1)),
    "jpeg text value": _jpeg(_tiff(6, "<", kind=2, count=4)),
    "jpeg grey": _file(_photo().convert("L"), "JPEG", exif=b"Exif\x00\x00" + _tiff(6, "<")),
    "jpeg cmyk": _file(_photo().convert("CMYK"), "JPEG", exif=b"Exif\x00\x00" + _tiff(7, ">")),
    "jpeg 4:4:4": _jpeg(_tiff(3, "<"), subsampling=0),
    "jpeg progressive": _jpeg(_tiff(8, "<"), progressive=True),
    "png": _file(_photo(), "PNG"),
    "png rgba": _file(_rgba(), "PNG"),
    "png grey": _file(_photo().convert("L"), "PNG"),
    "png grey alpha": _file(_rgba().convert("LA"), "PNG"),
    "png palette": _file(_photo().quantize(32), "PNG"),
    "png palette transparent": _with_transparency("P"),
    "png grey transparent": _with_transparency("L"),
    "png rgb transparent": _with_transparency("RGB"),
    "png bits": _file(_photo().convert("1"), "PNG"),
    "png four colours": _file(_photo().quantize(4), "PNG", bits=2),
    "png 16-bit grey": _file(_grey16(), "PNG"),
    "png exif": _file(_photo(), "PNG", exif=_tiff(6, "<"), pnginfo=_comment()),
    "png exif at the end": _late_exif_png(),
    "png rgba exif": _file(_rgba(), "PNG", exif=_tiff(7, ">")),
    "webp": _file(_photo(), "WEBP", quality=90),
    "webp rgba": _file(_rgba(), "WEBP", lossless=True, exact=True),
    "webp exif": _webp_with(_tiff(5, "<")),
    "gif": _file(_photo().quantize(64), "GIF"),
    "bmp": _file(_photo(), "BMP"),
    "bmp rgba": _file(_rgba(), "BMP"),
    "bmp palette": _file(_photo().quantize(64), "BMP"),
    "bmp grey": _file(_photo().convert("L"), "BMP"),
}  # fmt: skip

SERVE = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
folder = Path(sys.argv[1])
images = [file.read_bytes() for file in sorted((folder / "images").iterdir())]
for name in sys.argv[2:]:
    serve = tf.saved_model.load(str(folder / name)).signatures["serving_default"]
    alone = [serve(image_bytes=tf.constant([image]))["probabilities"].numpy()[0] for image in images[::8]]
    together = serve(image_bytes=tf.constant(images))["probabilities"].numpy()
    nothing = serve(image_bytes=tf.constant([], tf.string))
    nothing = {f"empty_{name}": value.numpy().shape for name, value in nothing.items()}
    np.savez(folder / f"{name}.npz", alone=np.stack(alone), together=together, **nothing)
sys.exit("shardmill" in sys.modules)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    """Channels of the records -> probabilities of all cases, from a process that knows only TensorFlow."""
    folder = tmp_path_factory.mktemp("served")
    names = {channels: f"export{channels}" for channels in (3, 1)}
    for channels, name in names.items():
        _export(folder / name, grey=channels == 1)
    (folder / "images").mkdir()
    for number, data in enumerate(CASES.values()):
        (folder / "images" / f"{number:03d}").write_bytes(data)
    arguments = [str(folder), *names.values()]
    subprocess.run([sys.executable, "-c", SERVE, *arguments], check=True, cwd=folder, timeout=300)
    found = {}
    for channels, name in names.items():
        with np.load(folder / f"{name}.npz") as archive:
            found[channels] = dict(archive)
    return found


def _export(folder: Path, *, grey: bool) -> None:
    import keras

    from shardmill.training.tasks.single_label import SingleLabel
    from shardmill.training.tensorflow.export.forms import Exported
    from shardmill.training.tensorflow.export.saved_model import export
    from shardmill.training.tensorflow.operations import OPERATIONS

    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            # Fused kernels of batch normalisation refuse an empty batch.
            keras.layers.BatchNormalization(epsilon=0.0),
            keras.layers.Rescaling(1 / LEVELS_A_NAT),
            keras.layers.Flatten(),
        ]
    )
    names = [str(number) for number in range(SIZE * SIZE * 3)]
    export(Exported(model, SingleLabel(OPERATIONS, len(names)), names, given(1 if grey else 3)), folder)


def given(channels: int) -> ModelInput:
    """Return the input of a model whose records are images as they are."""
    how = Preparation.of({"resize": "none", "encoding": "png", "channels": channels})
    return ModelInput(preparation=how, image_size=SIZE)


def _expected(data: bytes, channels: int) -> np.ndarray:
    """The central square of what the preparation decodes, as evaluation shrinks it: uint8 [S, S, 3]."""
    from shardmill.training.tensorflow.data.preprocess import resize

    pixels = decode(data, channels).pixels
    top, left, height, width = central_windows(*(np.array([side]) for side in pixels.shape[:2]))[0]
    square = np.repeat(pixels, 3 // channels, axis=2)[top : top + height, left : left + width]
    return np.asarray(resize(square, SIZE))


@pytest.mark.parametrize("channels", [3, 1])
def test_the_exported_model_sees_what_prepare_sees(
    channels: int, served: dict[int, dict[str, np.ndarray]]
) -> None:
    """To the bit but for JPEG with halved chroma: within 0.1 grey levels on average and 3 anywhere. There the
    outermost columns differ, where chroma is interpolated, for only the central square is decoded.
    """
    out = served[channels]
    assert np.allclose(out["alone"], out["together"][::8], atol=1e-6)
    wrong = []
    for (name, data), answer in zip(CASES.items(), out["together"], strict=True):
        wanted = _expected(data, channels).astype(float)
        seen = LEVELS_A_NAT * np.log(answer.astype(float)).reshape(SIZE, SIZE, 3)
        seen += wanted.max() - seen.max()  # a softmax keeps differences only
        off = np.abs(seen - wanted)
        if off.mean() > (0.1 if "jpeg" in name else 0.01) or off.max() > (3.0 if "jpeg" in name else 0.05):
            wrong.append(f"{name}: {off.mean():.2f} on average, {off.max():.1f} at most")
    assert not wrong, "\n".join(wrong)
    assert out["empty_probabilities"].tolist() == [0, SIZE * SIZE * 3]
    assert out["empty_label"].tolist() == out["empty_class_name"].tolist() == [0]


def test_the_cases_are_what_they_say() -> None:
    """Orientations that the preparation reads, so that the test above compares something."""
    assert [decode(CASES[f"jpeg {value} <"]).source.orientation for value in range(1, 9)] == list(range(1, 9))
    turned = {
        name: decode(data).source.orientation
        for name, data in CASES.items()
        if decode(data).source.orientation != 1
    }
    assert {"jpeg long value", "png exif", "png exif at the end", "webp exif", "jpeg cmyk"} <= set(turned)
    assert not {"jpeg without exif", "jpeg beyond what is searched", "jpeg no tiff"} & set(turned)

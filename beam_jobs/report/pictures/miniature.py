"""Thumbnails of suspicious images: called in a sandbox only (shardmill.beam_jobs.execution.pool.sandbox).

The decoders refused these images, so the function may crash, hang or fill its memory. It changes settings
of Pillow that hold for the whole process.
"""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageFile, ImageOps

LONG_SIDE = 168  # pixels
QUALITY = 72
MAX_PIXELS = 16_000_000  # after the decoder has scaled down as far as it can


def miniature(data: bytes) -> tuple[dict[str, object], bytes]:
    """A thumbnail of an image that may be broken.

    Returns:
        Format, width and height as far as the header tells; and a JPEG, empty if nothing can be shown.
        The part that a truncated file lacks is grey or black.
    """
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # judged after the draft
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    found: dict[str, object] = {}
    try:
        with Image.open(io.BytesIO(data)) as image:
            found = {"format": image.format or "", "width": image.width, "height": image.height}
            image.draft("RGB", (LONG_SIDE, LONG_SIDE))  # JPEG can leave out up to 63 of 64 pixels
            if image.width * image.height > MAX_PIXELS:
                return found, b""
            shown = _eight_bit(image)
            shown.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BOX)
            shown = _opaque(ImageOps.exif_transpose(shown))
            sink = io.BytesIO()
            shown.save(sink, "JPEG", quality=QUALITY)
            return found, sink.getvalue()
    except Exception:  # noqa: BLE001  whatever is wrong with it: it is shown as a placeholder
        return found, b""


def _eight_bit(image: Image.Image) -> Image.Image:
    """RGB, or RGBA where there is something to see through."""
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")

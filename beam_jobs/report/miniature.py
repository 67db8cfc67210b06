"""A program of its own that makes thumbnails of suspicious images: run by path, never imported by others.

What it reads was refused by the decoders, so it trusts nothing: the parent may lose it at any moment and
starts another. Limits on memory, processor time and files are set before the first byte is read, and an alarm
ends a decoder that hangs. It imports nothing of ours and little of others, so that it starts quickly.

On standard input: ``<length: 8 bytes, little-endian><image>`` repeated. On standard output, for each:
``<length: 8 bytes><JSON><length: 8 bytes><JPEG>``; the JPEG is empty where nothing can be shown.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import struct
import sys
import warnings

from PIL import Image, ImageFile, ImageOps

LONG_SIDE = 168  # pixels
QUALITY = 72
MAX_PIXELS = 16_000_000  # after what the decoder itself can leave out
MEMORY_BYTES = 1 << 30  # of address space; what is resident stays far below
SECONDS_AN_IMAGE = 4


def miniature(data: bytes) -> tuple[dict[str, object], bytes]:
    """(what the header says, a JPEG) of an image that may be broken.

    What a file that ends early lacks stays grey or black. Nothing is raised for the file's fault.
    """
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


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _limit_the_next() -> None:
    """Time for one image more; the default of both signals ends the process, whatever C code it is in."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    until = int(spent.ru_utime + spent.ru_stime) + SECONDS_AN_IMAGE + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    signal.alarm(SECONDS_AN_IMAGE + 1)


def main() -> None:
    """Answer until the input ends."""
    _limit()
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # judged after the draft
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while len(header := source.read(8)) == 8:
        _limit_the_next()
        found, jpeg = miniature(source.read(struct.unpack("<Q", header)[0]))
        signal.alarm(0)
        text = json.dumps(found).encode("ascii")
        sink.write(struct.pack("<Q", len(text)) + text + struct.pack("<Q", len(jpeg)) + jpeg)
        sink.flush()


if __name__ == "__main__":
    main()

"""The samples of a file, and the image that is wanted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy.typing as npt

from shardmill.infra.codecs.color import Conversion, ToneMapping
from shardmill.infra.codecs.formats import Color, SourceFacts
from shardmill.infra.preparation import Depth, Hdr, NoData, Pages, Preparation, Window

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DeepWanted:
    """The image that is made of a file.

    Attributes:
        depth: 8, 16, "float32" or "keep".
        channels: samples of a pixel; "keep": those of the file, of which opacity is one.
        max_pixels: refuse larger images by their header. Their samples may take 3 bytes for each.
        background: colour behind transparent pixels, where 1 or 3 channels are wanted.
        allow_truncated: decode what there is of a TIFF that ends early.
        hdr: what becomes of HDR.
        window: the values that are black and white at a depth of 8 or 16.
        pages: "channels": the channels of all pages of a TIFF or frames of DICOM, one page after the other.
        bands: the channels that are kept, from 1, in this order; none: all.
        no_data: what becomes of pixels without data: "keep", a number in their place, or "mask": 0, and a
            last channel that is 0 there and white elsewhere.
    """

    depth: Depth
    channels: int | Literal["keep"]
    max_pixels: int
    background: Color
    allow_truncated: bool = False
    hdr: Hdr = "tone-map"
    window: Window = "file"
    pages: Pages = "first"
    bands: tuple[int, ...] = ()
    no_data: NoData = "keep"

    @classmethod
    def of(cls, how: Preparation) -> Self:
        """Return what a preparation wants."""
        return cls(
            how.depth, how.channels, how.max_pixels, how.color_behind, how.allow_truncated, how.hdr,
            how.window, how.pages, how.bands, how.no_data,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileSamples:
    """The samples of a file.

    Attributes:
        values: [H, W, S] of a numeric type, upright.
        source: facts about the file.
        colors: how many samples are colours: 1 (grey), 3 (RGB), or 0 if the file does not say.
        shades: the numbers of black and white; None if the file does not say.
        alpha_at: the sample that is the opacity, or None.
        premultiplied: colours are multiplied by the opacity.
        conversion: of the colours to sRGB; None if they are in sRGB, or no colours.
        no_data: the value that stands for no data; None if the file tells none. NaN always does.
    """

    values: Values
    source: SourceFacts
    colors: int = 0
    shades: tuple[float, float] | None = None
    alpha_at: int | None = None
    premultiplied: bool = False
    no_data: float | None = None
    conversion: Conversion | ToneMapping | None = None

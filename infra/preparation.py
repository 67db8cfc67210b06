"""The settings that say how an image file becomes a stored image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from shardmill.infra.settings import AlsoCalled, Settings, WholeText, WrongValue

Resize = Literal["short", "long", "pad", "crop", "none"]
Resample = Literal["area", "lanczos"]
Encoding = Literal["jpeg", "webp", "png", "raw"]
StoredEncoding = Literal["jpeg", "webp", "png", "raw", "array"]
SampleType = Literal["uint8", "uint16", "float32"]
_LARGEST_FLOAT32 = 3.4028234663852886e38
_Finite = Annotated[float, Field(allow_inf_nan=False, ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32)]
Pages = Literal["first", "images", "channels"]
NoData = Literal["keep", "mask"] | _Finite
# Its centre and width are two numbers.
Window = Literal["file", "full"] | tuple[_Finite, Annotated[float, Field(gt=0, allow_inf_nan=False)]]

Depth = Literal[8, 16, "float32", "keep"]

MAX_CHANNELS: Final = 512
MAYBE_FLOAT: Final = ("float32", "keep")  # depths
ARRAY: Final = "array"  # the encoding of images that no image format holds: shardmill.infra.codecs.arrays
Hdr = Literal["tone-map", "quarantine"]


@dataclass(frozen=True, slots=True)
class Sizing:
    """The size at which images are stored.

    Attributes:
        mode: "short" or "long": that side becomes ``height``; "pad" or "crop": exactly ``height`` × ``width``
            pixels; "none": unchanged.
        height: pixels.
        width: pixels.
        upscale: enlarge smaller images too.
    """

    mode: Resize
    height: int
    width: int
    upscale: bool = False


@dataclass(frozen=True, slots=True)
class SampleKind:
    """The samples of stored images. All images of a dataset have the same.

    Attributes:
        dtype: "uint8", "uint16" or "float32".
        channels: samples of a pixel.
    """

    dtype: SampleType
    channels: int

    @property
    def is_common(self) -> bool:
        """Whether every image format holds them: 8 bits of grey or RGB."""
        return self.dtype == "uint8" and self.channels in (1, 3)

    @property
    def decoded(self) -> SampleKind:
        """The samples of whole images that are decoded: common ones become RGB."""
        return SampleKind("uint8", 3) if self.is_common else self

    @property
    def white(self) -> int | None:
        """The largest value; None: float32, which has no range."""
        return None if self.dtype == "float32" else (1 << 8 * self.sample_bytes) - 1

    @property
    def sample_bytes(self) -> int:
        """The size of a sample (bytes)."""
        return {"uint8": 1, "uint16": 2, "float32": 4}[self.dtype]

    @property
    def pixel_bytes(self) -> int:
        """The size of a pixel (bytes)."""
        return self.sample_bytes * self.channels

    def __str__(self) -> str:
        return f"{self.dtype} with {self.channels} channel" + "s" * (self.channels != 1)

    def stored_as(self, encoding: Encoding) -> StoredEncoding:
        """Return the encoding of such images, which is the one that the settings name if they are common."""
        if self.is_common:
            return encoding
        return "png" if self.dtype == "uint16" and self.channels in (1, 3) else ARRAY


def _one_is_a_list(value: object) -> object:
    return (value,) if isinstance(value, int) else value


# Settings of images that change no pixel of one that is stored with either value.
_NO_PIXELS = {"max_pixels", "max_bytes", "allow_truncated", "metadata", "passthrough"}


def changed_pixels(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings by which the same file becomes other pixels: name -> value then and now.

    Args:
        then: ``image`` of the configuration in a manifest.
        now: likewise. A setting that one of them lacks is newer than the release that wrote it.
    """
    names = [name for name in then if name in now and name not in _NO_PIXELS]
    return {name: (then[name], now[name]) for name in names if then[name] != now[name]}


class Preparation(Settings):
    """Which stored image the file of an image becomes. ``shardmill.infra.codecs.prepare`` makes it."""

    resize: Annotated[Resize, AlsoCalled("crop", "pad")] = Field(
        "short",
        description=(
            "short or long: scale that side to size; pad or crop: to height × width, with "
            "background around or cut from the centre; none: as it is"
        ),
    )
    size: Annotated[int, Field(ge=8, le=8192), AlsoCalled("image_size", "img_size", "resolution")] = Field(
        256, description="Side for short and long (pixels)"
    )
    height: Annotated[int, Field(ge=8, le=8192)] | None = Field(
        None, description="Height for pad and crop (pixels); unset for size"
    )
    width: Annotated[int, Field(ge=8, le=8192)] | None = Field(
        None, description="Width for pad and crop (pixels); unset for size"
    )
    upscale: bool = Field(False, description="Enlarge smaller images too")
    resample: Resample = Field(
        "area", description="area: averaging, the fastest; lanczos: sharper. Neither aliases"
    )
    encoding: Annotated[Encoding, AlsoCalled("format", "image_format")] = Field(
        "jpeg",
        description=(
            "Stored form of 8 bits in grey or RGB; raw: uint8 [height, width, channels]; others "
            "are png or array"
        ),
    )
    quality: Annotated[int, Field(ge=1, le=100), AlsoCalled("jpeg_quality", "compression")] = Field(
        90, description="Quality of stored JPEG and WebP"
    )
    passthrough: bool = Field(
        False,
        description=("Copy source bytes, without metadata, that are already as they would be stored"),
    )
    depth: Annotated[Depth, AlsoCalled("bit_depth", "dtype", "bits")] = Field(
        8,
        description=(
            "8 or 16 bits from black to white; float32: the file's numbers; keep: its numbers and type"
        ),
    )
    channels: Annotated[
        Annotated[int, Field(ge=1, le=MAX_CHANNELS)] | Literal["keep"],
        AlsoCalled("grayscale", "greyscale", "gray", "color_mode"),
    ] = Field(3, description="1 stores grey images, 3 RGB; other numbers and keep: as many as files have")
    background: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$"), WholeText()] = Field(
        "#ffffff", description="Colour behind transparent pixels and around padded images: #rrggbb"
    )
    hdr: Hdr = Field(
        "tone-map",
        description="HDR images (PQ, HLG): brought to sRGB, or refused",
    )
    max_pixels: Annotated[int, Field(ge=1, le=1 << 32)] = Field(
        178_956_970, description="Images with more pixels are quarantined undecoded"
    )
    pages: Pages = Field(
        "first",
        description=(
            "first: the first page of a TIFF, and no DICOM of several frames; images: each page or frame is "
            "an image; channels: they are the channels of one"
        ),
    )
    bands: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_one_is_a_list)] = Field(
        (),
        description="Channels of the files, from 1, that are kept, in this order; unset: all",
    )
    no_data: NoData = Field(
        "keep",
        description=(
            "Pixels without data (NaN, or as a GeoTIFF says): keep (NaN is refused); mask: 0, and a last "
            "channel that is 0 there; or a number in their place"
        ),
    )
    window: Window = Field(
        "file",
        description=(
            "Values that become black and white: [centre, width]; file: of DICOM its own window, else all "
            "its bits; full: all its bits"
        ),
    )
    allow_truncated: bool = Field(False, description="Keep images that end early, flagged as salvaged")

    @model_validator(mode="after")
    def _encodes_its_samples(self) -> Self:
        kind = self.samples
        if kind is not None and not kind.is_common and (self.passthrough or self.encoding in ("webp", "raw")):
            setting = "passthrough" if self.passthrough else f"encoding = {self.encoding!r}"
            raise WrongValue(
                f"image.{setting} is for 8 bits in grey or RGB, and images are {kind}",
                "leave it out; they are stored without loss",
            )
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the preparation among the settings of a dataset's images; missing ones have the default.

        Args:
            settings: ``image`` of the configuration in a manifest.
        """
        return cls.model_validate({name: settings[name] for name in cls.model_fields if name in settings})

    @property
    def samples(self) -> SampleKind | None:
        """The samples of stored images; None if those of the files decide."""
        if self.depth == "keep" or self.channels == "keep":
            return None
        dtype: dict[int | str, SampleType] = {8: "uint8", 16: "uint16", "float32": "float32"}
        return SampleKind(dtype[self.depth], self.channels)

    @property
    def reads_samples(self) -> bool:
        """Whether the samples of files are chosen or scaled, so that pictures for viewing will not do."""
        chosen = bool(self.bands) or self.pages == "channels" or self.no_data != "keep"
        return chosen or isinstance(self.window, tuple) or self.samples is None or not self.samples.is_common

    @property
    def may_be_float(self) -> bool:
        """Whether stored images may be float32."""
        return self.depth in MAYBE_FLOAT

    @property
    def sizing(self) -> Sizing:
        """The rule for the size of stored images."""
        exact = self.resize in ("pad", "crop")
        height = self.height if exact and self.height else self.size
        width = self.width if exact and self.width else self.size
        return Sizing(self.resize, height, width, self.upscale)

    @property
    def color_behind(self) -> tuple[int, int, int]:
        """Red, green and blue of ``background``, 0 to 255."""
        value = int(self.background[1:], 16)
        return value >> 16, value >> 8 & 255, value & 255

"""The stored form of an image."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infra.format.metadata import METADATA_NAMES, MetadataName
from infra.settings import Settings, WholeText

_MIB = 1 << 20
Resize = Literal["short", "long", "pad", "crop", "none"]
Resample = Literal["area", "lanczos"]
Encoding = Literal["jpeg", "webp", "png", "raw"]


class ImageConfig(Settings):
    """The stored form of an image."""

    resize: Resize = Field(
        "short",
        description="short or long: scale that side to size; pad or crop: exactly height × width, padded "
        "with the background or cropped around the centre; none: keep the size",
    )
    size: Annotated[int, Field(ge=8, le=8192)] = Field(
        256, description="Side of the stored image (pixels): the shorter for short, the longer for long"
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
    encoding: Encoding = Field("jpeg", description="Stored form; raw: uint8 [height, width, channels]")
    quality: Annotated[int, Field(ge=1, le=100)] = Field(90, description="Quality of stored JPEG and WebP")
    passthrough: bool = Field(
        False,
        description="Copy the source bytes, without metadata, when they already have the stored encoding, "
        "size, orientation, colour space (sRGB) and channels",
    )
    channels: Literal[1, 3] = Field(3, description="1 stores grey images, 3 RGB")
    background: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$"), WholeText()] = Field(
        "#ffffff", description="Colour behind transparent pixels and around padded images: #rrggbb"
    )
    max_pixels: Annotated[int, Field(ge=1, le=1 << 32)] = Field(
        178_956_970, description="Most pixels of a source image; images with more are quarantined undecoded"
    )
    max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        256 * _MIB,
        description="Largest source file that is read (bytes); larger files are quarantined as too_large. "
        "Does not limit the stored image",
    )
    allow_truncated: bool = Field(
        False, description="Keep images that end early, flagged as salvaged, instead of quarantining them"
    )
    metadata: tuple[MetadataName, ...] = Field(
        (),
        description="What the files say of themselves (EXIF, XMP, IPTC, C2PA) that becomes features of the "
        "records: names, or all",
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _all_or_names(cls, value: object) -> object:
        if value == "all":
            return METADATA_NAMES
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("metadata")
    @classmethod
    def _in_order(cls, names: tuple[MetadataName, ...]) -> tuple[MetadataName, ...]:
        return tuple(name for name in METADATA_NAMES if name in names)

"""Convert one image from source bytes to the stored form, if no filter excludes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shardmill.beam_jobs.config import FilterConfig, ImageConfig
from shardmill.beam_jobs.images.metadata import needed_metadata
from shardmill.beam_jobs.schemas import AI_MADE, ASPECT, TOO_SMALL
from shardmill.infra.codecs.metadata.reading import NOTHING, Metadata
from shardmill.infra.codecs.prepare import StoredImage, prepare_image
from shardmill.infra.errors import UnusableInput


class ImageFiltered(UnusableInput):
    """A filter of the configuration excludes this image.

    Attributes:
        reason: "too_small", "aspect" or "ai_made".
        message: the size and the limit, or what the file declares.
    """


def convert(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """Convert source bytes to their stored form.

    Raises:
        shardmill.infra.codecs.ImageRejected: the bytes are not a complete image.
        ImageFiltered: a filter excludes the image, by its metadata, size or aspect.
    """
    metadata = needed_metadata(data, image, rules)
    check_origin(metadata, rules)
    stored = prepare_image(data, image, partial(check_size, rules=rules))
    return stored if metadata is NOTHING else replace(stored, metadata=metadata)


def check_origin(metadata: Metadata, rules: FilterConfig) -> None:
    """Check what a file declares of its origin against the filters.

    Raises:
        ImageFiltered: it declares that a generative model made it, and such images are left out.
    """
    if rules.ai_made == "drop" and metadata.is_ai_made:
        raise ImageFiltered(AI_MADE, f"it declares the digital source type {metadata.digital_source_type}")


def check_size(height: int, width: int, rules: FilterConfig) -> None:
    """Check the size of an upright image (pixels) against the filters.

    Raises:
        ImageFiltered: the image is smaller or longer than they allow.
    """
    if width < rules.min_width or height < rules.min_height:
        raise ImageFiltered(
            TOO_SMALL, f"{width}×{height} pixels, the least is {rules.min_width}×{rules.min_height}"
        )
    if rules.max_aspect is not None and max(height, width) > rules.max_aspect * min(height, width):
        raise ImageFiltered(
            ASPECT, f"{width}×{height} pixels: longer than {rules.max_aspect:g} times the shorter side"
        )

"""Masks as run lengths, in both forms of COCO: lists of numbers, and the texts of pycocotools.

A mask is read column by column; the lengths of runs of pixels beside the object and of the object take turns.
In a text each length from the fourth on is the difference to the one before the last, and each number is
written in groups of 5 bits, the lowest first, as characters from "0"; the sixth bit says that more follow
(https://github.com/cocodataset/cocoapi/blob/master/common/maskApi.c, rleFrString).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.sources.annotations.collecting import size_of
from shardmill.beam_jobs.sources.annotations.shapes import MOST_MASK_PIXELS

Mask = npt.NDArray[np.bool_]

_FIRST, _GROUP, _MORE, _NEGATIVE = 48, 5, 0x20, 0x10
_MOST_GROUPS = 8  # of 5 bits, for one length


class RunLengthsBroken(ValueError):
    """Run lengths are no mask; says why, as the end of a sentence that begins with masks."""


def size_of_mask(entry: object) -> tuple[int, int] | None:
    """Return the height and width that run lengths tell (pixels), or None."""
    given = entry.get("size") if isinstance(entry, dict) else None
    return size_of(*given) if isinstance(given, list) and len(given) == 2 else None


def mask_of_run_lengths(entry: Mapping[str, Any], size: tuple[int, int] | None) -> Mask:
    """Return the mask of an object: bool [H, W].

    Args:
        entry: with ``size`` (height, width) and ``counts``.
        size: height and width of the annotated image (pixels), if they are known.

    Raises:
        RunLengthsBroken: it is none, or of another size than its image.
    """
    own, counts = size_of_mask(entry), entry.get("counts")
    if own is None:
        raise RunLengthsBroken("without a height and a width")
    if size is not None and own != size:
        raise RunLengthsBroken("of another size than their image")
    if own[0] * own[1] > MOST_MASK_PIXELS:
        raise RunLengthsBroken(f"of more than {MOST_MASK_PIXELS:,} pixels")
    lengths = _of_text(counts) if isinstance(counts, str) else _of_list(counts)
    if sum(lengths) != own[0] * own[1] or min(lengths, default=0) < 0:
        raise RunLengthsBroken("whose run lengths do not add up to their size")
    values = np.arange(len(lengths)) % 2 == 1
    return np.repeat(values, lengths).reshape(own[::-1]).T


def _of_list(counts: object) -> list[int]:
    if not isinstance(counts, list) or not all(type(count) in (int, float) for count in counts):
        raise RunLengthsBroken("whose run lengths are no list of numbers and no text")
    if not all(abs(count) <= MOST_MASK_PIXELS and float(count).is_integer() for count in counts):
        raise RunLengthsBroken("whose run lengths do not add up to their size")
    return [int(count) for count in counts]


def _of_text(text: str) -> list[int]:
    lengths: list[int] = []
    number = groups = 0
    for letter in text:
        bits = ord(letter) - _FIRST
        if not 0 <= bits < 2 * _MORE or groups == _MOST_GROUPS:
            raise RunLengthsBroken("whose text is none of run lengths")
        number |= (bits & (_MORE - 1)) << _GROUP * groups
        groups += 1
        if bits & _MORE:
            continue
        if bits & _NEGATIVE:
            number -= 1 << _GROUP * groups
        lengths.append(number + (lengths[-2] if len(lengths) > 2 else 0))
        number = groups = 0
    if groups:
        raise RunLengthsBroken("whose text is none of run lengths")
    return lengths

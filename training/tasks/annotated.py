"""Draw labels and predictions into the picture of an example: boxes, or masks side by side. No framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.masks import lay_over
from shardmill.infra.dataset.outlines import Boxes, with_boxes

_WHITE, _RED = (255, 255, 255), (230, 40, 40)
_GAP = 4  # pixels between two pictures


class Annotation(ABC):
    """The label and the prediction of an example."""

    @abstractmethod
    def drawn(self, pixels: Pixels) -> Pixels:
        """Draw both: uint8 [h, w, 1 or 3] of the whole image -> uint8 [h', w', 3]."""


@dataclass(frozen=True, slots=True)
class AnnotatedBoxes(Annotation):
    """Boxes.

    Attributes:
        boxes, found: of the objects, and those that were surely found: four edges each, relative to the
            image.
    """

    boxes: Boxes
    found: Boxes

    def drawn(self, pixels: Pixels) -> Pixels:
        """Draw the boxes of the objects in white, and those that were found in red."""
        return with_boxes(with_boxes(pixels, self.boxes, _WHITE), self.found, _RED)


@dataclass(frozen=True, slots=True)
class AnnotatedMask(Annotation):
    """Masks.

    Attributes:
        label: [S, S], the class of each pixel of the model's input.
        predicted: likewise; None: there is no prediction.
        num_classes: the number of classes.
        is_whole: the model sees the whole image, squeezed into a square; else the central square.
    """

    label: npt.NDArray[Any]
    predicted: npt.NDArray[Any] | None
    num_classes: int
    is_whole: bool = True

    def drawn(self, pixels: Pixels) -> Pixels:
        """Lay the label over the image, and beside it the prediction."""
        if not self.is_whole:
            pixels = _central_square(pixels)
        masks = [self.label] if self.predicted is None else [self.label, self.predicted]
        shown = [lay_over(pixels, mask, self.num_classes) for mask in masks]
        gap = np.full((pixels.shape[0], _GAP, 3), 255, np.uint8)
        return np.concatenate([shown[0], *(part for one in shown[1:] for part in (gap, one))], axis=1)


def _central_square(pixels: Pixels) -> Pixels:
    side = min(pixels.shape[:2])
    top, left = ((length - side) // 2 for length in pixels.shape[:2])
    return pixels[top : top + side, left : left + side]

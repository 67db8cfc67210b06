"""Augment the images of ``tf.data`` pipelines that TensorFlow decodes.

If each augmentation that is on can work in a graph, the graph applies them to each image, with the drawn
parameters as columns of the batch. Otherwise numpy applies all of them to whole batches, which costs copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.training.augment.parameters import AugmentParameters, augment_image
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.tensorflow.data.decoding.columns import Column


@dataclass(frozen=True, slots=True)
class ImageAugment:
    """The augmentations of single images of a pipeline.

    Attributes:
        settings: how examples are augmented; None: not at all.
        image_size: height and width of the images (pixels).
    """

    settings: AugmentSettings | None
    image_size: int

    @classmethod
    def of(cls, spec: ExampleSpec) -> Self:
        """Return the augmentations of single images of ``spec``; whole images have none."""
        return cls(spec.augment, spec.image_size or 1)

    @property
    def is_in_numpy(self) -> bool:
        """Whether numpy applies them to whole batches."""
        return self.settings is not None and not all(one.is_in_graph for one in self.settings.of_images)

    @property
    def columns(self) -> dict[str, Column]:
        """The drawn parameters that a graph needs for each image; empty if numpy augments."""
        if self.settings is None or self.is_in_numpy:
            return {}
        key = np.zeros(1, np.uint64)
        drawn = ((one, one.draw(key, self.image_size)) for one in self.settings.of_images)
        return {
            _column(one, name): Column(tf.as_dtype(array.dtype), array.shape[1:])
            for one, arrays in drawn
            for name, array in arrays.items()
        }

    def arrays(self, parameters: AugmentParameters) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a batch."""
        if self.settings is None or self.is_in_numpy:
            return {}
        return {
            _column(one, name): array for one, drawn in parameters.images for name, array in drawn.items()
        }

    def in_graph(self, image: Any, row: dict[str, Any]) -> Any:
        """Return an image, uint8 [S, S, 3], augmented by the columns of its row, unless numpy augments."""
        if self.settings is None or self.is_in_numpy:
            return image
        for one in self.settings.of_images:
            prefix = _column(one, "")
            drawn = {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}
            image = one.apply_in_graph(image, drawn)
        return image


def augment_rows(images: npt.NDArray[np.uint8], parameters: AugmentParameters) -> npt.NDArray[np.uint8]:
    """Return a batch, uint8 [b, S, S, 3], augmented by numpy."""
    images = images.copy()  # TensorFlow owns the array that it passes in
    for row, image in enumerate(images):
        augment_image(image, parameters, row)
    return images


def _column(augmentation: Any, name: str) -> str:
    return f"{type(augmentation).__name__}.{name}"

"""Decode the images of steps by TensorFlow: fetch their records, then decode one example at a time.

steps ─► fetch (parallel: plan the step, pread, inflate, check, parse; draw windows and flips)
      ─► one example at a time ─► decode a window, resize, flip (parallel) ─► batch ─► augment

If each augmentation that is on can work in a graph, the graph applies them to each image, with the drawn
parameters as columns of the batch. Otherwise numpy applies all of them to whole batches, which costs copies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.training.augment.parameters import AugmentParameters, augment_image
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.order import StepPlan
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.tensorflow.data.columns import Column, LabelColumns, call
from shardmill.training.tensorflow.data.preprocess import decode_window


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
    return f"{augmentation.key}.{name}"


_FETCHED = {
    "images": Column(tf.string, ()),
    "shapes": Column(tf.int32, (3,)),
    "windows": Column(tf.int32, (4,)),
    "weights": Column(tf.float32, ()),
    "ordinals": Column(tf.int64, ()),
}
# Batches augmented at the same time.
_BATCHES_AT_A_TIME = 2


@dataclass(frozen=True, slots=True)
class TensorFlowDecoding:
    """Makes the batches of one split from encoded images.

    Attributes:
        maker: draws the parameters of augmentation; its ``spec`` says what batches hold.
        labels: the columns of the labels.
        plan: returns the plan of the rows of a step that this process reads, given the number of the step,
            over all epochs.
        failures: remembers an error of this project while the block runs.
    """

    maker: BatchMaker
    labels: LabelColumns
    plan: Callable[[int], StepPlan]
    failures: Callable[[], AbstractContextManager[None]]

    @property
    def _augment(self) -> ImageAugment:
        return ImageAugment.of(self.maker.spec)

    def dataset(self, start: Any, stop: Any, rows: int, slices: int) -> Any:
        """Return the batches of the steps ``start`` to ``stop``, each step in so many slices of ``rows``."""
        dataset = tf.data.Dataset.range(start, stop)
        dataset = dataset.map(
            lambda run_step: self._fetch(run_step, rows * slices), num_parallel_calls=tf.data.AUTOTUNE
        ).unbatch()
        dataset = dataset.map(self._example, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(rows, drop_remainder=True)
        if not self._augment.is_in_numpy:
            return dataset
        numbers = tf.data.Dataset.range(start * slices, stop * slices)

        def augmented(batch: dict[str, Any], run_slice: Any) -> dict[str, Any]:
            images = tf.numpy_function(
                lambda made, number: self._augment_rows(made, int(number), slices),
                [batch["images"], run_slice],
                tf.uint8,
                stateful=False,
            )
            return batch | {"images": tf.ensure_shape(images, batch["images"].shape)}

        pairs = tf.data.Dataset.zip((dataset, numbers))
        return pairs.map(augmented, num_parallel_calls=_BATCHES_AT_A_TIME)

    def _fetch(self, run_step: Any, rows: int) -> dict[str, Any]:
        """Fetch the encoded images of one step and the parameters of their augmentation."""
        columns = {**_FETCHED, **self._augment.columns, **self.labels.columns}
        return self.labels.gathered(call(self._read_step, run_step, columns, rows))

    def _read_step(self, run_step: int) -> dict[str, Any]:
        reader = self.maker.records
        with self.failures():
            plan = self.plan(run_step)
            reader.advance(plan.epoch, plan.step)
            records, plan = reader.read_plan(plan)
        parameters = self.maker.parameters(plan)
        labels = self.labels.arrays(
            reader.table.labels_of(plan.ordinals), *self.maker.objects_of(plan, parameters)
        )
        return {
            "images": np.array([record.image for record in records], dtype=object),
            "shapes": np.array([record.shape for record in records], dtype=np.int32),
            "windows": parameters.windows,
            "weights": plan.weights,
            "ordinals": plan.ordinals,
            **self._augment.arrays(parameters),
            **labels,
        }

    def _example(self, fetched: dict[str, Any]) -> dict[str, Any]:
        image = decode_window(
            fetched["images"],
            fetched["shapes"],
            fetched["windows"],
            self.maker.spec.image_size or 1,
            self.maker.records.image_encoding,
        )
        names = ("labels", "weights", "ordinals", "features")
        kept: dict[str, Any] = {name: fetched[name] for name in names if name in fetched}
        return {"images": self._augment.in_graph(image, fetched), **kept}

    def _augment_rows(
        self, images: npt.NDArray[np.uint8], run_slice: int, slices: int
    ) -> npt.NDArray[np.uint8]:
        """Augment a batch, whose windows TensorFlow has cut."""
        run_step, number = divmod(run_slice, slices)
        return augment_rows(images, self.maker.parameters(self.plan(run_step).of_rank(number, slices)))

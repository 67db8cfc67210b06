"""A model of key points on any backbone: a heat map for each point, and the place where it is expected.

The maps are those of the detector's pyramid; the finest gives a heat map for each point. Its softmax over all
cells weighs their centres (Sun et al.: Integral human pose regression, 2018), so a place lies between cells
and the loss reaches every one.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models.detector import pyramid_of


class ExpectedPlaces(keras.layers.Layer):  # type: ignore[misc]
    """Turns heat maps [B, H, W, K] into places [B, 2 K]: y, x of each point, 0 to 1."""

    def build(self, shape: Any) -> None:
        """Lay out the centres of the cells."""
        _, height, width, _ = shape
        y, x = np.meshgrid(*((np.arange(side) + 0.5) / side for side in (height, width)), indexing="ij")
        self._centres = np.stack([y, x], axis=-1).reshape(-1, 2).astype(np.float32)

    def call(self, maps: Any) -> Any:
        """Weigh the centres of the cells by a softmax over all of them."""
        cells = keras.ops.reshape(maps, (-1, len(self._centres), maps.shape[-1]))
        shares = keras.ops.transpose(keras.ops.softmax(cells, axis=1), (0, 2, 1))
        places = keras.ops.matmul(shares, keras.ops.convert_to_tensor(self._centres))
        return keras.ops.reshape(places, (-1, 2 * maps.shape[-1]))


def build(spec: ModelSpec, classifier: Any) -> Any:
    """Build a model from images [B, S, S, C] of 0 to 255 to places of points float32 [B, 2 K].

    Args:
        spec: the parameters of the model; ``num_classes`` is 2 K.
        classifier: a model of that name for classes, whose layers become the backbone.

    Raises:
        ConfigError: as of the detector.
    """
    inputs, (finest, *_) = pyramid_of(spec, classifier)
    # float32 whatever the precision of the rest: a softmax in half precision loses its small values.
    maps = keras.layers.Conv2D(
        spec.num_classes // 2,
        3,
        padding="same",
        dtype="float32",
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=spec.seed),
        name="heat_maps",
    )(finest)
    return keras.Model(inputs, ExpectedPlaces(dtype="float32", name="places")(maps), name="point_finder")

"""A small detector in one stage, without anchors, on any backbone.

A feature pyramid (Lin et al.: Feature pyramid networks for object detection, 2017) with maps of one cell for
8, 16 and 32 pixels. At each cell a head that all maps share predicts whether an object of each class is
there, and the distances to its four edges (Tian et al.: FCOS, 2019).
``shardmill.training.tensorflow.detection`` turns these into boxes.

The pyramid and the head have 0.3 million parameters with three classes. Any model serves as a backbone, also
a module of the user whose layers are in one functional model: it is cut before its pooling. The map of a
stride is the output of the last layer at that size, just before the network halves its maps again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras

from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import log
from shardmill.training.models.changes import BACKBONE
from shardmill.training.models.names import APPLICATIONS
from shardmill.training.models.spec import STRIDES, ModelSpec
from shardmill.training.tensorflow.models.applications import preprocessed
from shardmill.training.tensorflow.models.normalization import BatchNormalization
from shardmill.training.tensorflow.models.weights import is_of_classifier, load_fitting


def build_backbone(classifier: Any, spec: ModelSpec, strides: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """Build the backbone of a model, with its normalisation of the input.

    Args:
        classifier: a model of that name for classes, whose layers become the backbone.
        spec: the parameters of the model; ``spec.weights`` may be of a classifier.
        strides: pixels of the image per cell of a map, finer ones first.

    Returns:
        A model named "backbone" from images [B, S, S, C] to a list of maps [B, S / stride, S / stride, W],
        and the strides of its maps: those of ``strides`` that the model has.

    Raises:
        ConfigError: the model has no map of the first stride, or its weights cannot be loaded.
    """
    if spec.weights is not None and is_of_classifier(spec.weights):
        log(f"backbone: {load_fitting(classifier, spec.weights, partial=spec.partial_weights)}")
    if spec.name in APPLICATIONS:
        (network,) = (layer for layer in classifier.layers if isinstance(layer, keras.Model))
    else:
        network = classifier
    maps = _last_maps(network, spec.image_size, strides)
    if strides[0] not in maps:
        raise ConfigError(
            f"{spec.name} has no layer whose output has 1/{strides[0]} of the height and width of images of "
            f"{spec.image_size} pixels, which finding places needs",
            "choose another model, such as compact_resnet or MobileNetV2, or another data.image_size",
        )
    found = tuple(stride for stride in strides if stride in maps)
    features = keras.Model(network.inputs, [maps[stride] for stride in found], name=BACKBONE)
    if network is classifier:
        return features, found
    inputs = keras.Input(spec.image_shape, name="image")
    outputs = features(preprocessed(inputs, spec))
    return keras.Model(inputs, outputs, name=BACKBONE), found


def _last_maps(network: Any, image_size: int, strides: Sequence[int]) -> dict[int, Any]:
    """Return the last output of a network at each stride: stride -> Keras tensor."""
    sides = {-(-image_size // stride): stride for stride in strides}
    maps = {}
    for layer in network.layers:
        output = layer.output
        shape: Sequence[int | None] = getattr(output, "shape", ())
        if len(shape) == 4 and shape[1] == shape[2] and shape[1] in sides:
            maps[sides[shape[1]]] = output
    return maps


_BOX_NUMBERS = {"objects": 4, "oriented": 7}
_WIDTH = 64
_TOWER_LAYERS = 2
# At the start every cell predicts each class at this probability, since nearly all cells are background (Lin
# et al.: Focal loss for dense object detection, 2017).
_PRIOR = 0.01


def build(spec: ModelSpec, classifier: Any) -> Any:
    """Build a model from images [B, S, S, C] of 0 to 255 to float32 [B, L, K + 4], or oriented K + 7.

    L are the cells of all maps, row by row, the finest map first; K the classes, as logits. Then come the
    distances of the top, left, bottom and right edge from the centre of the cell, as logarithms, in strides;
    or the numbers of an oriented box (``shardmill.training.tensorflow.oriented``).

    Args:
        spec: the parameters of the model.
        classifier: a model of that name for classes, whose layers become the backbone.

    Raises:
        ConfigError: the backbone cannot be used, or the image size is no multiple of the largest stride.
    """
    inputs, pyramid = pyramid_of(spec, classifier)
    return keras.Model(inputs, _Head(spec).of(pyramid), name="detector")


def pyramid_of(spec: ModelSpec, classifier: Any) -> tuple[Any, list[Any]]:
    """Return the input of a model and the maps of its feature pyramid, the finest first; see ``build``."""
    spec.check_cells()
    backbone, found = build_backbone(classifier, spec, STRIDES)
    inputs = keras.Input(spec.image_shape, name="image")
    outputs = backbone(inputs)
    maps = dict(zip(found, outputs if isinstance(outputs, list) else [outputs], strict=True))
    return inputs, _pyramid(maps, spec)


def _pyramid(maps: dict[int, Any], spec: ModelSpec) -> list[Any]:
    """Bring all maps to one width, and add the coarser ones to the finer ones."""
    levels: list[Any] = []
    for stride in STRIDES:
        if stride in maps:
            levels.append(_normalized(_convolution(_WIDTH, 1, f"lateral_{stride}")(maps[stride]), spec))
        else:  # the backbone ends before: go on from the map before it
            before = keras.layers.ReLU()(levels[-1])
            coarser = _convolution(_WIDTH, 3, f"coarser_{stride}", strides=2)(before)
            levels.append(_normalized(coarser, spec))
    for place in range(len(levels) - 2, -1, -1):
        above = keras.layers.UpSampling2D(2)(levels[place + 1])
        levels[place] = keras.layers.Add()([levels[place], above])
    smooth = [
        _normalized(_convolution(_WIDTH, 3, f"smooth_{stride}")(level), spec)
        for stride, level in zip(STRIDES, levels, strict=True)
    ]
    return [keras.layers.ReLU()(level) for level in smooth]


class _Head:
    """The layers that all maps share. Each map has batch normalisation of its own: their values differ."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        layers = range(_TOWER_LAYERS)
        self._class_tower = [_convolution(_WIDTH, 3, f"class_tower_{number}") for number in layers]
        self._box_tower = [_convolution(_WIDTH, 3, f"box_tower_{number}") for number in layers]
        # float32 whatever the precision of the rest: a softmax in half precision loses its small values.
        self._classes = keras.layers.Conv2D(
            spec.num_classes,
            3,
            padding="same",
            dtype="float32",
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=spec.seed),
            bias_initializer=keras.initializers.Constant(-math.log((1 - _PRIOR) / _PRIOR)),
            name="classes",
        )
        self._boxes = keras.layers.Conv2D(
            _BOX_NUMBERS[spec.output],
            3,
            padding="same",
            dtype="float32",
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=spec.seed + 1),
            # Boxes of four strides.
            bias_initializer=keras.initializers.Constant(math.log(2.0) if spec.output == "objects" else 0.0),
            name="boxes" if spec.output == "objects" else "oriented_boxes",
        )

    def of(self, pyramid: list[Any]) -> Any:
        """Return the predictions at the cells of all maps: [B, L, K + 4]."""
        rows = []
        for level in pyramid:
            classes = self._classes(self._through(self._class_tower, level))
            boxes = self._boxes(self._through(self._box_tower, level))
            both = keras.layers.Concatenate(dtype="float32")([classes, boxes])
            rows.append(keras.layers.Reshape((-1, both.shape[-1]), dtype="float32")(both))
        return keras.layers.Concatenate(axis=1, dtype="float32", name="cells")(rows)

    def _through(self, tower: list[Any], x: Any) -> Any:
        for layer in tower:
            x = keras.layers.ReLU()(_normalized(layer(x), self._spec))
        return x


def _convolution(width: int, size: int, name: str, strides: int = 1) -> Any:
    return keras.layers.Conv2D(
        width,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )


def _normalized(x: Any, spec: ModelSpec) -> Any:
    return BatchNormalization(momentum=0.9, synchronized=spec.synchronized)(x)

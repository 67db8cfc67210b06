"""Cut a classifier before its pooling: feature maps of several sizes, for heads that look at places.

Any model of ``shardmill.training.models`` serves as a backbone: a family, a model of ``keras.applications``,
or a module of the user whose layers are in one functional model. The map of a stride is the output of the
last layer at that size, just before the network halves its maps again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import log
from shardmill.training.models.changes import BACKBONE
from shardmill.training.models.names import APPLICATIONS
from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models.applications import preprocessed
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

"""The layers of a Keras model, in the order of the network: which of them learn, and how."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import keras
import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.readable import counted
from shardmill.training.models.changes import BACKBONE, Freeze, Frozen, LimitedMomentum

_NORMALIZATIONS = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.SpectralNormalization,
)


def layers_of(model: Any) -> list[Any]:
    """Return the layers of a model, and of the models and layers inside it, each once.

    They come in the order of the network, and a layer before those inside it.
    """
    found: dict[int, Any] = {}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in found:
            found[id(layer)] = layer
            waiting += reversed(_inner_layers(layer))
    return [layer for layer in found.values() if layer is not model]


def weighted_layers(model: Any) -> list[Any]:
    """Return the layers that hold weights themselves, in the order of the network."""
    return [
        layer
        for layer in layers_of(model)
        if layer.weights and not any(inner.weights for inner in _inner_layers(layer))
    ]


def _inner_layers(layer: Any) -> list[Any]:
    """Return the layers directly inside a layer or model.

    ``Model.layers`` leaves out layers inside other layers, and Keras has no public way to list those.
    """
    return list(layer._layers)


def freeze_layers(model: Any, freeze: Freeze) -> Frozen | None:
    """Freeze layers of a model: training leaves them as they are. Call it before the optimizer is built.

    A frozen batch normalisation works as in evaluation: with its moving statistics, which do not move.

    Args:
        model: a Keras model.
        freeze: "none"; "backbone", the layer of that name, or else all but the last layer with weights; the
            number of layers with weights to freeze, counted from the input; or shell patterns of the names of
            layers, each with all inside it.

    Returns:
        What was frozen; None if nothing was to be.

    Raises:
        ConfigError: no layer has such a name, or no layer would be left to train.
    """
    if freeze == "none":
        return None
    layers = weighted_layers(model)
    if freeze == "backbone":
        chosen = [layer for layer in model.layers if layer.name == BACKBONE] or layers[:-1]
    elif isinstance(freeze, int):
        chosen = layers[:freeze]
    else:
        chosen = _named(model, freeze)
    for layer in chosen:
        layer.trainable = False
    if not model.trainable_variables:
        raise ConfigError(
            f"model.freeze = {freeze!r} leaves no layer of {model.name} to train; it has "
            f"{counted(len(layers), 'layer')} with weights",
            "freeze fewer layers",
        )
    frozen = [layer for layer in layers if not layer.trainable]
    return Frozen(len(frozen), sum(layer.count_params() for layer in frozen), model.count_params())


class HeadAlone:
    """Lets the last layer with weights, the classifier, learn alone for a while."""

    def __init__(self, model: Any) -> None:
        """Remember which layers learn now, which ``end`` brings back."""
        self._model = model
        self._before = [(layer, layer.trainable) for layer in layers_of(model)]

    def begin(self) -> None:
        """Freeze all layers but the last one with weights.

        Raises:
            ConfigError: that one is frozen already.
        """
        freeze_layers(self._model, "backbone")

    def end(self) -> None:
        """Let those layers learn that did before."""
        for layer, trainable in self._before:  # a layer comes before those inside it, which it sets too
            layer.trainable = trainable


def _named(model: Any, patterns: Sequence[str]) -> list[Any]:
    layers = layers_of(model)
    chosen = []
    for pattern in patterns:
        matching = [layer for layer in layers if fnmatchcase(layer.name, pattern)]
        if not matching:
            names = [layer.name for layer in layers if layer.weights]
            near = ", ".join(near_names(pattern, names, count=3, least=0.3) or names[:3])
            raise ConfigError(
                f"model.freeze: {model.name} has no layer {pattern!r}", f"its layers are named like {near}"
            )
        chosen += matching
    return chosen


def limit_momentum(model: Any, limit: float) -> LimitedMomentum | None:
    """Lower the momentum of every batch normalisation above ``limit``. Call it before the model is traced.

    Returns:
        What was changed; None if no layer was above the limit.
    """
    above = [
        layer
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.momentum > limit
    ]
    if not above:
        return None
    highest = max(layer.momentum for layer in above)
    for layer in above:
        layer.momentum = limit
    return LimitedMomentum(limit, highest, len(above))


def without_weight_decay(model: Any) -> list[Any]:
    """Return the trainable variables that weight decay must leave alone.

    These are all variables of normalisation layers, the biases of all layers, and any other variable of less
    than two dimensions, such as the scale of a layer's output.
    """
    found: dict[int, Any] = {}
    for layer in layers_of(model):
        bias = getattr(layer, "bias", None)
        for variable in _own_variables(layer):
            if isinstance(layer, _NORMALIZATIONS) or variable is bias or len(variable.shape) < 2:
                found[id(variable)] = variable
    return list(found.values())


def rate_factors(model: Any, first_layer_factor: float) -> list[float]:
    """Return the factor of the learning rate of each of ``model.trainable_variables``.

    The layers with trainable variables are numbered from input to output. The first has
    ``first_layer_factor``, the last has 1, and each of the others the same multiple of the one before it.
    """
    owners = {id(own): id(layer) for layer in layers_of(model) for own in _own_variables(layer)}
    numbers: dict[int, int] = {}  # a layer -> its number
    of_variables = []
    for variable in model.trainable_variables:
        owner = owners.get(id(variable), id(model))
        of_variables.append(numbers.setdefault(owner, len(numbers)))
    last = max(len(numbers) - 1, 1)
    return [first_layer_factor ** (1 - number / last) for number in of_variables]


def _own_variables(layer: Any) -> list[Any]:
    """Return the trainable variables of a layer that belong to none of the layers inside it."""
    inner = {id(variable) for child in _inner_layers(layer) for variable in child.trainable_variables}
    return [variable for variable in layer.trainable_variables if id(variable) not in inner]


def in_float32(outputs: Any) -> Any:
    """Return the output of a model in float32, whatever the type in which it computes."""
    return tf.nest.map_structure(lambda part: tf.cast(part, tf.float32), outputs)

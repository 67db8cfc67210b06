"""Sort the variables of a model by the layers that own them."""

from __future__ import annotations

from typing import Any

import keras

from shardmill.training.models.layers import inner_layers, layers_of

_NORMALIZATIONS = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.SpectralNormalization,
)


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
    inner = {id(variable) for child in inner_layers(layer) for variable in child.trainable_variables}
    return [variable for variable in layer.trainable_variables if id(variable) not in inner]

"""The layers of a Keras model, in the order of the network."""

from __future__ import annotations

from typing import Any


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
            waiting += reversed(inner_layers(layer))
    return [layer for layer in found.values() if layer is not model]


def weighted_layers(model: Any) -> list[Any]:
    """Return the layers that hold weights themselves, in the order of the network."""
    return [
        layer
        for layer in layers_of(model)
        if layer.weights and not any(inner.weights for inner in inner_layers(layer))
    ]


def inner_layers(layer: Any) -> list[Any]:
    """Return the layers directly inside a layer or model.

    ``Model.layers`` leaves out layers inside other layers, and Keras has no public way to list those.
    """
    return list(layer._layers)

"""Freeze layers of a model, so that training leaves them as they are.

A frozen batch normalisation works as in evaluation: with its moving statistics, which do not move.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted
from shardmill.training.models.layers import layers_of, weighted_layers

BACKBONE = "backbone"  # the layer of a model of shardmill.training.tensorflow.models.dense: its backbone
Freeze = Literal["none", "backbone"] | int | Sequence[str]


@dataclass(frozen=True, slots=True)
class Frozen:
    """The frozen part of a model.

    Attributes:
        num_layers: the number of its layers that have weights.
        num_parameters: their weights.
        of_parameters: the weights of the whole model.
    """

    num_layers: int
    num_parameters: int
    of_parameters: int

    def __str__(self) -> str:
        return (
            f"frozen: {counted(self.num_layers, 'layer')} with {self.num_parameters:,} of "
            f"{self.of_parameters:,} parameters"
        )


def freeze_layers(model: Any, freeze: Freeze) -> Frozen | None:
    """Freeze layers of a model. Call it before the optimizer is built.

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
            near = ", ".join(difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3])
            raise ConfigError(
                f"model.freeze: {model.name} has no layer {pattern!r}", f"its layers are named like {near}"
            )
        chosen += matching
    return chosen

"""Forget the outputs of a model's blocks during the forward pass, and compute them again for the gradient.

A network of blocks with short-cuts is cut before each block. There a single tensor, which several operations
take, holds all that the rest of the network needs::

                  cut          cut              cut
      stem ──────► x ──► convolutions ──► add ──► y ──► convolutions ──► add ──► z ── ...
                   └────── short-cut ──────┘      └────── short-cut ──────┘

Inside a block two tensors are needed at once, that of the convolutions and that of the short-cut, so no cut
falls there. ``tf.recompute_grad`` keeps x, y, z, ... and computes everything between them again. Each block
that learns is computed twice. Batch normalisation then moves its averages twice by the same moments, with the
root of its momentum each time, which is the same as once with its momentum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from shardmill.infra.errors import ConfigError

# In fewer blocks, one that is computed again takes about the memory of the whole model.
_LEAST_BLOCKS = 3

Forward = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Rematerialized:
    """The forward pass of a model in training, with blocks that are computed twice.

    Attributes:
        forward: images [B, S, S, C] -> the outputs of the model.
        num_blocks: the number of blocks that are computed again.
    """

    forward: Forward
    num_blocks: int

    def __str__(self) -> str:
        return f"rematerialised: the outputs of {self.num_blocks} blocks are computed again for the gradient"


def rematerialize(model: Any) -> Rematerialized:
    """Cut a model into blocks that share its layers. Call it once, before the model is traced.

    Blocks with random layers, such as dropout, are computed once: the second time they would draw anew.

    Raises:
        ConfigError: the model has too few blocks.
    """
    blocks = _blocks(model)
    again = [bool(block.weights) and block is not blocks[-1] and not _draws(block) for block in blocks]
    if sum(again) < _LEAST_BLOCKS:
        raise ConfigError(
            f"run.rematerialize: {model.name} has too few blocks with short-cuts to compute them again",
            "turn it off; run.accumulate_steps saves memory with any model",
        )
    steps: list[Forward] = []
    for block, twice in zip(blocks, again, strict=True):
        if twice:
            _root_momentum(block)
        steps.append(tf.recompute_grad(_training(block)) if twice else _training(block))

    def forward(images: Any) -> Any:
        outputs = tf.cast(images, tf.float32)  # integers have no gradient that could be asked for
        for step in steps:
            outputs = step(outputs)
        return outputs

    return Rematerialized(forward, sum(again))


def _training(block: Any) -> Forward:
    return lambda inputs: block(inputs, training=True)


def _blocks(model: Any) -> list[Any]:
    """Cut a model into smaller ones that share its layers, and one after the other give the same.

    A model with another model inside, a backbone, is a chain: layers before it, the backbone, layers after
    it. Only the backbone is cut.
    """
    operations = list(getattr(model, "operations", ()))
    inner = [place for place, one in enumerate(operations) if isinstance(one, keras.Model)]
    if not inner:
        return _cut_at(_cut_points(operations), model.input, model.output)
    place = inner[0]
    before, after = operations[place - 1].output, operations[place + 1].input
    blocks = [] if before is model.input else [keras.Model(model.input, before)]
    backbone = operations[place]
    blocks += _cut_at(_cut_points(list(backbone.operations)), backbone.input, backbone.output)
    return [*blocks, keras.Model(after, model.output)]


def _cut_at(points: list[Any], first: Any, last: Any) -> list[Any]:
    """Return the models from ``first`` to the first point, from there to the next, and so on to ``last``."""
    ends = [first, *(point for point in points if point is not first and point is not last), last]
    return [keras.Model(start, end) for start, end in itertools.pairwise(ends)]


def _cut_points(operations: list[Any]) -> list[Any]:
    """Return the tensors that hold all that the rest of a model needs, and that several operations take.

    Walks through the operations, and remembers which tensors later ones have yet to take. Where only one such
    tensor is left, the model can be cut.

    Args:
        operations: those of a model; each comes after those whose outputs it takes.
    """
    takers: dict[int, int] = {}
    for operation in operations[1:]:
        for tensor in keras.tree.flatten(operation.input):
            takers[id(tensor)] = takers.get(id(tensor), 0) + 1
    waiting: dict[int, int] = {}  # tensor -> how many operations have yet to take it
    points = []
    for number, operation in enumerate(operations):
        for tensor in keras.tree.flatten(operation.input) if number else []:
            waiting[id(tensor)] -= 1
            if not waiting[id(tensor)]:
                del waiting[id(tensor)]
        made = keras.tree.flatten(operation.output)
        waiting |= {id(tensor): takers[id(tensor)] for tensor in made if id(tensor) in takers}
        if len(waiting) == 1 and takers.get(id(made[0]), 0) > 1:
            points.append(made[0])
    return points


def _draws(block: Any) -> bool:
    """Return whether a block has random layers: the states of their seeds are integers."""
    return any(not tf.as_dtype(variable.dtype).is_floating for variable in block.variables)


def _root_momentum(block: Any) -> None:
    """Let two updates of moving averages by the same moments be as one was."""
    for layer in block.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = math.sqrt(layer.momentum)

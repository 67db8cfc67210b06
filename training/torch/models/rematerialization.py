"""Forget the outputs inside a model's blocks in the forward pass, and compute them again for the gradient.

    forward pass   x0 -> [block 1] -> x1 -> [block 2] -> x2 -> ... -> loss      only x0, x1, x2, ... are kept
    gradient              [block 2 again, from x1] <- gradient of x2            then block 1 again, from x0

PyTorch does this (``torch.utils.checkpoint``); this module says what a block is. Random layers draw the same
again. Batch normalisation follows its moments in the first pass only.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import is_grad_enabled, nn
from torch.utils.checkpoint import checkpoint

from shardmill.infra.errors import ConfigError
from shardmill.training.torch.models.layers import BATCH_NORMALIZATIONS

# In fewer blocks, one that is computed again takes about the memory of the whole model.
_LEAST_BLOCKS = 3
_LEAST_LAYERS = 2
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class Rematerialized:
    """A model whose blocks are computed again for the gradient.

    Attributes:
        num_blocks: the number of these blocks.
    """

    num_blocks: int

    def __str__(self) -> str:
        return f"rematerialised: the outputs of {self.num_blocks} blocks are computed again for the gradient"


def rematerialize(model: Any) -> Rematerialized:
    """Let the blocks of a model keep only their inputs in training. The weights keep their names.

    Raises:
        ConfigError: the model has too few blocks.
    """
    blocks = blocks_of(model)
    if len(blocks) < _LEAST_BLOCKS:
        raise ConfigError(
            "run.rematerialize: the model has too few blocks to compute them again",
            "turn it off; run.accumulate_steps saves memory with any model",
        )
    for block in blocks:
        block.forward = partial(_computed_again, block)
    return Rematerialized(len(blocks))


def blocks_of(model: Any) -> list[Any]:
    """Return the blocks of a model: bottlenecks of a ResNet, encoder layers of a transformer, and the like.

    A block is a module whose class is not PyTorch's own, occurs at least twice in the model, and has at least
    two layers with weights. Blocks inside a block are not returned; a container (``nn.Sequential`` and
    others) is replaced by the blocks inside it, if it has any.
    """
    counts = Counter(type(module) for module in model.modules() if _may_be_block(module))

    def found(module: Any) -> list[Any]:
        is_block = counts[type(module)] > 1
        if is_block and not isinstance(module, _CONTAINERS):
            return [module]
        inside = [block for child in module.children() for block in found(child)]
        return inside or [module] * is_block

    return found(model)


def _may_be_block(module: Any) -> bool:
    if type(module).__module__.startswith("torch.nn."):
        return False
    layers = [one for one in module.modules() if any(own.ndim > 1 for own in one.parameters(recurse=False))]
    return len(layers) >= _LEAST_LAYERS


def _computed_again(block: Any, *inputs: Any) -> Any:
    """Return the outputs of a block; if it trains, they are computed again for the gradient."""
    forward = partial(type(block).forward, block)
    if not (block.training and is_grad_enabled()):
        return forward(*inputs)
    return checkpoint(
        forward, *inputs, use_reentrant=False, context_fn=lambda: (contextlib.nullcontext(), _followed(block))
    )


@contextlib.contextmanager
def _followed(block: Any) -> Iterator[None]:
    """Let the moving statistics of a block stay as they are: the first pass has moved them."""
    following = [
        (module, module.momentum, module.num_batches_tracked.clone())
        for module in block.modules()
        if isinstance(module, BATCH_NORMALIZATIONS) and module.training and module.track_running_stats
    ]
    for module, _, _ in following:
        module.momentum = 0.0
    try:
        yield
    finally:
        for module, momentum, count in following:
            module.momentum = momentum
            module.num_batches_tracked.copy_(count)

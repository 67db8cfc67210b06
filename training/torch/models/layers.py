"""The modules of a network that hold weights, and which of them normalise or are frozen."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.readable import counted
from shardmill.training.models.changes import BACKBONE, Freeze, Frozen

BATCH_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
NORMALIZATIONS = (*BATCH_NORMALIZATIONS, nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm, nn.RMSNorm)


class OnBackbone(nn.Module):  # type: ignore[misc]
    """A model that finds places on the maps of its module ``backbone``."""


def weighted_modules(model: Any) -> list[tuple[str, Any]]:
    """Return name and module of those that hold weights themselves, in the order of their registration."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]


def freeze_modules(model: Any, freeze: Freeze) -> Frozen | None:
    """Freeze modules of a model: their weights get no gradients. See ``shardmill.training.models.freezing``.

    Names are those of ``named_modules``, each with all inside it.

    Raises:
        ConfigError: no module has such a name, or none would be left to train.
    """
    if freeze == "none":
        return None
    weighted = weighted_modules(model)
    if freeze == "backbone":
        own = f"{BACKBONE}." if isinstance(model, OnBackbone) else ""
        chosen = [one for one in weighted[:-1] if one[0].startswith(own)]
    elif isinstance(freeze, int):
        chosen = weighted[:freeze]
    else:
        chosen = _named(model, freeze)
    for _, module in chosen:
        module.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            f"model.freeze = {freeze!r} leaves nothing of the model to train; it has "
            f"{counted(len(weighted), 'module')} with weights",
            "freeze fewer of them",
        )
    frozen = [module for _, module in weighted if is_frozen(module)]
    own = sum(parameter.numel() for module in frozen for parameter in module.parameters(recurse=False))
    return Frozen(len(frozen), own, num_parameters(model))


class HeadAlone:
    """Lets the last module with weights, the classifier, learn alone for a while."""

    def __init__(self, model: Any) -> None:
        """Remember which weights learn now, which ``end`` brings back."""
        self._model = model
        self._before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def begin(self) -> None:
        """Freeze all modules but the last one with weights.

        Raises:
            ConfigError: that one is frozen already.
        """
        freeze_modules(self._model, "backbone")

    def end(self) -> None:
        """Let those weights learn that did before."""
        for parameter, learns in self._before:
            parameter.requires_grad_(learns)


def is_frozen(module: Any) -> bool:
    """Return whether all weights that a module holds itself are frozen."""
    own = list(module.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def set_training(model: Any) -> None:
    """Put a model into training mode. A frozen batch normalisation stays in that of evaluation."""
    model.train()
    for module in model.modules():
        if isinstance(module, BATCH_NORMALIZATIONS) and is_frozen(module):
            module.eval()


def num_parameters(model: Any) -> int:
    """Return the number of weights of a model."""
    return sum(int(parameter.numel()) for parameter in model.parameters())


def _named(model: Any, patterns: Sequence[str]) -> list[tuple[str, Any]]:
    named = [(name, module) for name, module in model.named_modules() if name]
    chosen = []
    for pattern in patterns:
        matching = [(name, module) for name, module in named if fnmatchcase(name, pattern)]
        if not matching:
            names = [name for name, _ in weighted_modules(model)]
            near = ", ".join(near_names(pattern, names, count=3, least=0.3) or names[:3])
            raise ConfigError(
                f"model.freeze: the model has no module {pattern!r}", f"its modules are named like {near}"
            )
        chosen += matching
    return chosen

"""Find a model of PyTorch by its name, build it, and load weights into it."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from shardmill.infra.errors import ConfigError
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import TakenWeights
from shardmill.training.models.names import FAMILIES, find_torchvision, own_model
from shardmill.training.torch.models import torchvision_models
from shardmill.training.torch.models.layers import weighted_modules


def build_model(spec: ModelSpec) -> Any:
    """Build a ``torch.nn.Module`` with random weights, on the CPU.

    Raises:
        ConfigError: it does not accept such images, or its output has another shape than the classes.
    """
    known = find_torchvision(spec.name)
    if known is not None:
        model = torchvision_models.build(spec)
    else:
        family = f"shardmill.training.torch.models.families.{spec.name}"
        is_ours = spec.name in FAMILIES["torch"]
        build = importlib.import_module(family).build if is_ours else own_model(spec.name).load_function()
        model = build(spec)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(
            f"build of {spec.name} returned a {type(model).__name__}, not a torch.nn.Module",
            "with run.framework = 'torch' a model of your own is one of PyTorch; see docs/pytorch.md",
        )
    _check_output(model, spec)
    return model


def _check_output(model: Any, spec: ModelSpec) -> None:
    height, width, channels = spec.image_shape
    images = torch.zeros(1, channels, height, width)
    try:
        with torch.no_grad():
            found = tuple(model.eval()(images).shape)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise ConfigError(
            f"{spec.name} does not accept images [B, {spec.image_channels}, {spec.image_size}, "
            f"{spec.image_size}]: {error}",
            "set data.image_size, or data.image_channels",
        ) from error
    if found != (1, spec.num_classes):
        raise ConfigError(
            f"the output of {spec.name} for one image has the shape {found}, not (1, {spec.num_classes})",
            "return the logits of spec.num_classes classes",
        )


def load_weights(model: Any, path: str, *, partial: bool = False) -> TakenWeights:
    """Load the weights of a state dictionary from a file into the modules whose names and shapes fit.

    A classifier of other classes keeps its random weights.

    Args:
        model: the model, in its initial state.
        path: the file.
        partial: further modules may keep their random weights.

    Raises:
        ConfigError: there is no such file, it is damaged, does not fit, or has numbers that are not finite.
    """
    if not Path(path).is_file():
        raise ConfigError(f"model.weights = {path!r}: no such file", "give the path of a .pt file")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(f"model.weights = {path!r} cannot be loaded: {error}") from error
    found = found if isinstance(found, Mapping) else {}
    # A file of torchvision names the weights of the model inside ours.
    target = model if set(found) & set(model.state_dict()) else getattr(model, "backbone", model)
    own = target.state_dict()
    fits = {
        name: getattr(found.get(name), "shape", None) == value.shape
        # Files of early PyTorch lack the count, which matters only without a momentum.
        or (name not in found and name.endswith("num_batches_tracked"))
        for name, value in own.items()
    }
    if not any(fits[name] and name in found for name in own):
        raise ConfigError(
            f"model.weights = {path!r}: no weight in it has the name and shape of one of the model",
            "give a file that torch.save(model.state_dict(), path) wrote",
        )
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name in own))
    missing = {name.rpartition(".")[0] for name, fit in fits.items() if not fit}
    taken = TakenWeights(
        path,
        [module for module in modules if module not in missing],
        [module for module in modules if module in missing],
        len(set(found) - set(own)),
    )
    # A file may have arrays more, since they go by their names: classifiers that are used in training only.
    taken.check([weighted_modules(target)[-1][0]], partial=partial, unused=False)
    fitting = {name: found[name] for name in own if name in found and name.rpartition(".")[0] not in missing}
    for name, value in fitting.items():
        if not torch.isfinite(value).all():
            raise ConfigError(
                f"model.weights = {path!r}: {name} has numbers that are not finite",
                "give the weights of a model that has not diverged",
            )
    target.load_state_dict(fitting, strict=False)
    return taken

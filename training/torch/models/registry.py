"""Find a model of PyTorch by its name, build it, and load weights into it."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.extras import install
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import BACKBONE, TakenWeights
from shardmill.training.models.names import FAMILIES, TORCHVISION, find_torchvision, own_model
from shardmill.training.torch.models import point_finder
from shardmill.training.torch.models.layers import weighted_modules
from shardmill.training.torch.models.normalization import Normalization

# Of ImageNet, as all weights of torchvision expect them.
_MEAN = [255 * share for share in (0.485, 0.456, 0.406)]
_STD = [255 * share for share in (0.229, 0.224, 0.225)]


class _TorchvisionClassifier(nn.Module):  # type: ignore[misc]
    """A model of torchvision behind the normalisation that it expects; grey images get three channels."""

    def __init__(self, backbone: Any, *, is_grey: bool) -> None:
        super().__init__()
        self._is_grey = is_grey
        self.normalization = Normalization(_MEAN, _STD)
        self.backbone = backbone

    def forward(self, images: Any) -> Any:
        """Return the logits of images float32 [B, C, S, S], 0 to 255: [B, num_classes]."""
        if self._is_grey:
            images = images.expand(-1, 3, -1, -1)
        return self.backbone(self.normalization(images))


def _torchvision(spec: ModelSpec) -> Any:
    """Build the model ``spec.name`` with random weights.

    Raises:
        ConfigError: it takes no images of this size, or no such channels.
        EnvironmentFault: torchvision is not installed.
    """
    spec.check_common()
    if importlib.util.find_spec("torchvision") is None:
        raise EnvironmentFault("torchvision is not installed", install("torch"))
    from torchvision.models import get_model

    try:
        backbone = get_model(spec.name, weights=None, num_classes=spec.num_classes, **_options(spec))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{spec.name} cannot be built for images of {spec.image_size} pixels: {error}",
            f"set data.image_size to another size, such as {TORCHVISION[spec.name]}",
        ) from error
    if spec.dropout:
        _drop_before_classifier(backbone, spec.dropout)
    return _TorchvisionClassifier(backbone, is_grey=spec.image_channels == 1)


def _options(spec: ModelSpec) -> dict[str, Any]:
    """Return what some families need: the size of the images, or no further classifiers."""
    if spec.name.startswith("vit_"):
        return {"image_size": spec.image_size}
    if spec.name.startswith("maxvit_"):
        return {"input_size": (spec.image_size, spec.image_size)}
    if spec.name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    return {}


def _drop_before_classifier(backbone: Any, dropout: float) -> None:
    """Drop features before the last layer with weights; where the model has a dropout there, set its rate."""
    path, classifier = weighted_modules(backbone)[-1]
    siblings = list(backbone.get_submodule(path.rpartition(".")[0]).children())
    before = siblings[: siblings.index(classifier)]
    own = [module for module in before if isinstance(module, nn.Dropout)]
    if own:
        own[-1].p = dropout
        return

    # A hook, so that the names of the weights stay those of torchvision.
    def drop(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (functional.dropout(inputs[0], dropout, module.training), *inputs[1:])

    classifier.register_forward_pre_hook(drop)


def build_model(spec: ModelSpec) -> Any:
    """Build a ``torch.nn.Module`` with random weights, on the CPU.

    For "points" the named model is the backbone.

    Raises:
        ConfigError: it does not accept such images, or its output has another shape than the classes.
    """
    if spec.output == "points":
        return point_finder.build(spec, build_model(replace(spec, output="classes")))
    known = find_torchvision(spec.name)
    if known is not None:
        model = _torchvision(spec)
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
    # A file of torchvision, or of a classifier, names the weights of the model inside ours.
    target = model
    while not set(found) & set(target.state_dict()) and hasattr(target, BACKBONE):
        target = getattr(target, BACKBONE)
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

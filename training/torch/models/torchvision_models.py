"""Build any classification model of torchvision, with a classifier of the classes of the dataset."""

from __future__ import annotations

import importlib.util
from typing import Any

from torch import nn
from torch.nn import functional

from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.training.models import ModelSpec
from shardmill.training.models.names import TORCHVISION
from shardmill.training.torch.models.layers import weighted_modules
from shardmill.training.torch.models.normalization import Normalization

# Of ImageNet, as all weights of torchvision expect them.
_MEAN = [255 * share for share in (0.485, 0.456, 0.406)]
_STD = [255 * share for share in (0.229, 0.224, 0.225)]


class TorchvisionClassifier(nn.Module):  # type: ignore[misc]
    """A model of torchvision behind the normalisation that it expects; grey images get three channels."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.normalization = Normalization(_MEAN, _STD)
        self.backbone = backbone

    def forward(self, images: Any) -> Any:
        """Return the logits of images float32 [B, C, S, S], 0 to 255: [B, num_classes]."""
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        return self.backbone(self.normalization(images))


def build(spec: ModelSpec) -> Any:
    """Build the model ``spec.name`` with random weights.

    Raises:
        ConfigError: it takes no images of this size.
        EnvironmentFault: torchvision is not installed.
    """
    if importlib.util.find_spec("torchvision") is None:
        raise EnvironmentFault("torchvision is not installed", "pip install 'shardmill[torch]'")
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
    return TorchvisionClassifier(backbone)


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

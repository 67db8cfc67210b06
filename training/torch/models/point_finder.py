"""A model of key points on any backbone, as ``shardmill.training.tensorflow.models.point_finder`` has it.

The backbone is a classifier cut off behind its maps of one cell for 8, 16 and 32 pixels, of which a feature
pyramid makes the finest one. torchvision cuts it, by following its ``forward`` with symbolic values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.fx.proxy import TraceError
from torch.nn import functional

from shardmill.infra.errors import ConfigError
from shardmill.training.models.spec import STRIDES, ModelSpec
from shardmill.training.torch.models.layers import OnBackbone
from shardmill.training.torch.models.normalization import Normalization

_WIDTH = 64
_LEAVES = {"leaf_modules": [Normalization]}  # kept whole, as its numbers are no weights
_CANNOT_FOLLOW = (TraceError, TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError)


class PointFinder(OnBackbone):
    """Turns images float32 [B, C, S, S] of 0 to 255 into places of points [B, 2 K]: y, x of each, 0 to 1."""

    def __init__(self, spec: ModelSpec, backbone: Any, widths: Mapping[int, int]) -> None:
        """Build the pyramid; ``widths``: the channels of the backbone's maps by stride, the finest first."""
        super().__init__()
        self.backbone = backbone
        self.lateral = nn.ModuleList(_convolution(width, 1) for width in widths.values())
        # Where the backbone ends before: go on from the map before.
        self.coarser = nn.ModuleList(_convolution(_WIDTH, 3, 2) for _ in range(len(STRIDES) - len(widths)))
        self.smooth = _convolution(_WIDTH, 3)
        self.heat_maps = nn.Conv2d(_WIDTH, spec.num_classes // 2, 3, padding=1)
        nn.init.normal_(self.heat_maps.weight, std=0.01)
        nn.init.zeros_(self.heat_maps.bias)
        middles = (torch.arange(spec.image_size // STRIDES[0]) + 0.5) * STRIDES[0] / spec.image_size
        self.register_buffer("centres", torch.cartesian_prod(middles, middles), persistent=False)

    def forward(self, images: Any) -> Any:
        """Weigh the centres of the cells by a softmax of each heat map over all of them."""
        maps = self.backbone(images).values()
        levels = [lateral(level) for lateral, level in zip(self.lateral, maps, strict=True)]
        for coarser in self.coarser:
            levels.append(coarser(functional.relu(levels[-1])))
        summed = levels.pop()
        while levels:
            summed = levels.pop() + functional.interpolate(summed, scale_factor=2.0, mode="nearest")
        heat = self.heat_maps(functional.relu(self.smooth(summed)))
        # float32 whatever the precision of the rest, in which places would be rounded: so no matrix product.
        shares = heat.float().flatten(2).softmax(dim=-1)
        return (shares[..., None] * self.centres).sum(dim=-2).flatten(1)


def _convolution(width: int, size: int, stride: int = 1) -> Any:
    layer = nn.Conv2d(width, _WIDTH, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight)
    return nn.Sequential(layer, nn.BatchNorm2d(_WIDTH))


def build(spec: ModelSpec, classifier: Any) -> Any:
    """Build a model of key points.

    Args:
        spec: the parameters of the model; ``num_classes`` is 2 K.
        classifier: a model of that name for classes, whose layers become the backbone.

    Raises:
        ConfigError: the backbone cannot be cut or has no map of the finest stride, or the image size is no
            multiple of the largest stride.
    """
    spec.check_cells()
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    try:
        in_training, alone = get_graph_node_names(classifier, tracer_kwargs=_LEAVES)
        names = [name for name in in_training if name in set(alone)]
        probe = create_feature_extractor(classifier, names, tracer_kwargs=_LEAVES).eval()
    except _CANNOT_FOLLOW as error:
        raise ConfigError(
            f"{spec.name} cannot be cut into a backbone: {error}",
            "choose another model, such as resnet18, or one whose forward has no conditions on its values",
        ) from error
    height, width, channels = spec.image_shape
    with torch.no_grad():
        outputs = probe(torch.zeros(1, channels, height, width))
    maps = _last_maps(outputs, spec.image_size)
    if STRIDES[0] not in maps:
        raise ConfigError(
            f"{spec.name} has no layer whose output has 1/{STRIDES[0]} of the height and width of images of "
            f"{spec.image_size} pixels, which finding places needs",
            "choose another model, such as resnet18 or small_cnn, or another data.image_size",
        )
    chosen = {name: str(stride) for stride, name in maps.items()}
    backbone = create_feature_extractor(classifier, chosen, tracer_kwargs=_LEAVES)
    return PointFinder(spec, backbone, {stride: outputs[name].shape[1] for stride, name in maps.items()})


def _last_maps(outputs: Mapping[str, Any], image_size: int) -> dict[int, str]:
    """Return the name of the last output at each stride that a model has, the finest first."""
    sides = {-(-image_size // stride): stride for stride in STRIDES}
    found: dict[int, str] = {}
    for name, value in outputs.items():
        shape: Sequence[int] = getattr(value, "shape", ())
        if len(shape) == 4 and shape[2] == shape[3] and shape[2] in sides:
            found[sides[shape[2]]] = name
    strides = [stride for stride in STRIDES if stride in found]
    ends = next((at for at, pair in enumerate(pairwise(strides), 1) if pair[1] != 2 * pair[0]), len(strides))
    return {stride: found[stride] for stride in strides[:ends]}

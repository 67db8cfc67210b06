"""The names of models, which settings check without importing a framework.

A name is, in this order:

* one of ``FAMILIES``: a module in the folder ``models/families`` of a framework, found there;
* a model of ``keras.applications``, in any spelling (``ResNet50``, ``efficientnet_b0``);
* with PyTorch a model of ``torchvision`` (``resnet50``);
* a plugin of the group ``shardmill.models``, or code of the user (``my.models.vit``, ``my_models:make_vit``):
  a module with ``DEFAULT_IMAGE_SIZE`` and ``build(spec: ModelSpec)``, or the function that is named.

Tests compare the tables with the frameworks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_miss
from shardmill.infra.own_code import OwnCode, is_own
from shardmill.infra.plugins import Plugins
from shardmill.infra.settings import WrongValue


def _families(framework: str) -> dict[str, int]:
    """Return name -> ``DEFAULT_IMAGE_SIZE`` of the families of a framework, which is not imported.

    Raises:
        ValueError: a family does not say its size.
    """
    sizes = {}
    for path in sorted((Path(__file__).parents[1] / framework / "models" / "families").glob("[!_]*.py")):
        found = re.search(r"^DEFAULT_IMAGE_SIZE = (\d+)$", path.read_text("utf-8"), re.MULTILINE)
        if found is None:
            raise ValueError(f"{path} has no line such as DEFAULT_IMAGE_SIZE = 64")
        sizes[path.stem] = int(found[1])
    return sizes


# Framework -> name -> height and width of the images (pixels) that a model was made for.
FAMILIES: Final = {framework: _families(framework) for framework in ("tensorflow", "torch")}

_SIZES_OF_KERAS: Final = {
    "EfficientNetB1": 240,
    "EfficientNetB2": 260,
    "EfficientNetB3": 300,
    "EfficientNetB4": 380,
    "EfficientNetB5": 456,
    "EfficientNetB6": 528,
    "EfficientNetB7": 600,
    "EfficientNetV2B1": 240,
    "EfficientNetV2B2": 260,
    "EfficientNetV2B3": 300,
    "EfficientNetV2L": 480,
    "EfficientNetV2M": 480,
    "EfficientNetV2S": 384,
    "InceptionResNetV2": 299,
    "InceptionV3": 299,
    "NASNetLarge": 331,
    "Xception": 299,
}

_OF_KERAS: Final = """
    ConvNeXtBase ConvNeXtLarge ConvNeXtSmall ConvNeXtTiny ConvNeXtXLarge
    DenseNet121 DenseNet169 DenseNet201
    EfficientNetB0 EfficientNetB1 EfficientNetB2 EfficientNetB3 EfficientNetB4 EfficientNetB5 EfficientNetB6
    EfficientNetB7 EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2 EfficientNetV2B3 EfficientNetV2L
    EfficientNetV2M EfficientNetV2S
    InceptionResNetV2 InceptionV3
    MobileNet MobileNetV2 MobileNetV3Large MobileNetV3Small
    NASNetLarge NASNetMobile
    ResNet101 ResNet101V2 ResNet152 ResNet152V2 ResNet50 ResNet50V2
    VGG16 VGG19 Xception
"""

APPLICATIONS: Final[dict[str, int]] = {name: _SIZES_OF_KERAS.get(name, 224) for name in _OF_KERAS.split()}

_SIZES_OF_TORCHVISION = {
    "efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300, "efficientnet_b4": 380,
    "efficientnet_b5": 456, "efficientnet_b6": 528, "efficientnet_b7": 600, "efficientnet_v2_s": 384,
    "efficientnet_v2_m": 480, "efficientnet_v2_l": 480, "inception_v3": 299, "regnet_y_128gf": 384,
    "swin_v2_t": 256, "swin_v2_s": 256, "swin_v2_b": 256, "vit_h_14": 518,
}  # fmt: skip
_OF_TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169
densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5
efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s googlenet inception_v3
maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf
regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf
regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d
resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn
vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2
"""
TORCHVISION: Final = {name: _SIZES_OF_TORCHVISION.get(name, 224) for name in _OF_TORCHVISION.split()}


_PAGE = "docs/bring-your-own-model.md"


def is_built_in(name: str) -> bool:
    """Tell whether a model, given in any spelling, comes with Shardmill or with a framework."""
    return _spelling(name) in {_spelling(known) for known in (*known_models(), *TORCHVISION)}


PLUGINS: Final = Plugins(
    group="shardmill.models",
    setting="model.name = {!r}",
    page=_PAGE,
    default="build",
    is_built_in=is_built_in,
    problem=lambda found: None if callable(found) else f"{found!r} builds no model",
)


def known_models() -> list[str]:
    """Return the names of this project's families and of all ``keras.applications`` models."""
    return [*dict.fromkeys(name for families in FAMILIES.values() for name in families), *APPLICATIONS]


def find_torchvision(name: str) -> str | None:
    """Return the name of a model of torchvision that is given in any spelling; None: there is none."""
    return {_spelling(known): known for known in TORCHVISION}.get(_spelling(name))


def resolve_name(name: str) -> str:
    """Return the listed name of a model in any spelling; the name of a user's own model as it is.

    Whether the user's module is there is a matter of the machine that trains (``own_model(name).check()``).

    Raises:
        ValueError: there is no such model; suggests the near miss.
        ConfigError: it is no name of code.
    """
    by_spelling = {_spelling(known): known for known in known_models()}
    found = by_spelling.get(_spelling(name))
    if found is not None:
        return found
    if is_own(name):
        own_model(name)
        return name
    if not is_built_in(name) and PLUGINS.find(name) is not None:
        return name
    known = [*known_models(), *PLUGINS.names()]
    own = "a model of your own is named as in my_models:build"
    raise WrongValue("unknown model", f"{near_miss(name, known)}; {own}")


def own_model(name: str) -> OwnCode:
    """Return the code of a plugin, or of a user's own model.

    Raises:
        ConfigError: it is not named as package.module or module:function, or the plugin is refused.
    """
    plugin = None if is_own(name) else PLUGINS.find(name)
    return plugin or OwnCode.named("model.name", name, _PAGE, "build")


def default_image_size(name: str) -> int:
    """Return the height and width (pixels) that a model is made for.

    Raises:
        ConfigError: it is a module that does not say so.
    """
    tables = (*FAMILIES.values(), APPLICATIONS, TORCHVISION)
    known = next((sizes[name] for sizes in tables if name in sizes), None)
    size = known or getattr(own_model(name).load(), "DEFAULT_IMAGE_SIZE", None)
    if size is None:
        raise ConfigError(
            f"the model {name} has no DEFAULT_IMAGE_SIZE",
            "define DEFAULT_IMAGE_SIZE in its module, or set data.image_size",
        )
    return int(size)


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")

"""The models of ``keras.applications`` by name, and the image size (pixels) that each was designed for.

A plain table, so that names are checked without importing Keras; a test compares it with Keras itself.
"""

from __future__ import annotations

from typing import Final

_OTHER_SIZES: Final = {
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

_NAMES: Final = """
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

APPLICATIONS: Final[dict[str, int]] = {name: _OTHER_SIZES.get(name, 224) for name in _NAMES.split()}

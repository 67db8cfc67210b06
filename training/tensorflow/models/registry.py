"""Build a model of Keras by its name."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted
from shardmill.training.models.names import APPLICATIONS, FAMILIES, own_model
from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models import applications, detector, point_finder

_FOLDER = "shardmill.training.tensorflow.models.families"
_HEADS = {
    "objects": detector,
    "oriented": detector,
    "points": point_finder,
}  # what finds places on a backbone
_OF_PIXELS = "set model.name to small_unet, or to a model of yours that gives the logits of each pixel"


def build_model(spec: ModelSpec) -> Any:
    """Build a ``keras.Model`` from images [B, S, S, C] of 0 to 255 to logits float32 [B, num_classes].

    Normalisation of the input is part of the model. For outputs that find places the named model is the
    backbone; with "pixels" it gives the logits of each pixel, [B, S, S, num_classes].

    Raises:
        ConfigError: the model does not accept such images, or its number of classes differs.
    """
    if spec.output in _HEADS:
        return _HEADS[spec.output].build(spec, build_model(replace(spec, output="classes")))
    if spec.name in APPLICATIONS and spec.output == "pixels":
        raise ConfigError(
            f"the model {spec.name} gives a class to each image, and masks have one for each pixel",
            _OF_PIXELS,
        )
    if spec.name in APPLICATIONS:
        return applications.build(spec)
    own = None if spec.name in FAMILIES["tensorflow"] else own_model(spec.name)
    module = importlib.import_module(f"{_FOLDER}.{spec.name}") if own is None else own.load()
    if spec.output != "pixels" and getattr(module, "OUTPUT", None) == "pixels":
        raise ConfigError(
            f"{spec.name} is for masks: it gives a class to each pixel",
            "leave model.name out, or choose another model, such as compact_resnet",
        )
    model = (module.build if own is None else own.load_function())(spec)
    found = tuple(getattr(model, "output_shape", ()))
    if found != spec.output_shape:
        raise ConfigError(
            f"build of {spec.name} returned a model of output shape {found}, not {spec.output_shape}",
            _OF_PIXELS
            if spec.output == "pixels"
            else "return a keras.Model whose output is the logits of spec.num_classes classes",
        )
    shape = getattr(model, "input_shape", None)
    if isinstance(shape, tuple) and shape[-1] not in (None, spec.image_channels):
        raise ConfigError(
            f"build of {spec.name} returned a model for images of {counted(shape[-1], 'channel')}; "
            f"data.image_channels is {spec.image_channels}",
            "begin the model with keras.Input(spec.image_shape), or set data.image_channels",
        )
    return model

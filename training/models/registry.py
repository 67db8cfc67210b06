"""Find a model by its name and build it.

A name is, in this order:

* a module of ``shardmill.training.tensorflow.models.families`` (``small_cnn``), or any importable module by
its dotted name
  (``my.models.vit``), with ``build(spec: ModelSpec) -> keras.Model`` and ``DEFAULT_IMAGE_SIZE``;
* a model of ``keras.applications``, in any spelling (``ResNet50``, ``efficientnet_b0``).

This module does not import TensorFlow, so checking a configuration is fast.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from importlib.machinery import ModuleSpec
from typing import Any

from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted
from shardmill.training.models.applications_table import APPLICATIONS
from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models import families

_OF_PIXELS = "set model.name to small_unet, or to a model of yours that gives the logits of each pixel"


def known_models() -> list[str]:
    """Return the names of this project's families and of all ``keras.applications`` models."""
    return [info.name for info in pkgutil.iter_modules(families.__path__)] + list(APPLICATIONS)


def resolve_name(name: str) -> str:
    """Return the listed name of a model in any spelling.

    Raises:
        ValueError: there is no such model; suggests the near miss.
    """
    by_spelling = {_spelling(known): known for known in known_models()}
    found = by_spelling.get(_spelling(name))
    if found is not None:
        return found
    if "." in name and (module := _module(name)) is not None:
        if not _may_build(module):
            raise ValueError(f"the module {name} has no function build (see shardmill.training.models)")
        return name
    near = difflib.get_close_matches(_spelling(name), by_spelling, n=1)
    hint = f"did you mean {by_spelling[near[0]]!r}?" if near else f"there are: {', '.join(known_models())}"
    raise ValueError(f"unknown model; {hint}")


def default_image_size(name: str) -> int:
    """Return the height and width (pixels) that a model is made for."""
    if name in APPLICATIONS:
        return APPLICATIONS[name]
    size = getattr(_family(name), "DEFAULT_IMAGE_SIZE", None)
    if size is None:
        raise ConfigError(
            f"the model {name} has no DEFAULT_IMAGE_SIZE",
            "define DEFAULT_IMAGE_SIZE in its module, or set data.image_size",
        )
    return int(size)


def build_model(spec: ModelSpec) -> Any:
    """Build a ``keras.Model`` from images [B, S, S, C] of 0 to 255 to logits float32 [B, num_classes].

    Normalisation of the input is part of the model. If ``spec.output`` is not "classes", the named model is
    the backbone of another one (``shardmill.training.tensorflow.models.dense``); with "pixels" it gives the
    logits of each pixel, [B, S, S, num_classes].

    Raises:
        ConfigError: the model does not accept such images, or its number of classes differs.
    """
    if spec.output == "objects":
        return importlib.import_module("shardmill.training.tensorflow.models.dense.detector").build(spec)
    if spec.name in APPLICATIONS and spec.output == "pixels":
        raise ConfigError(
            f"the model {spec.name} gives a class to each image, and masks have one for each pixel",
            _OF_PIXELS,
        )
    if spec.name in APPLICATIONS:
        return importlib.import_module("shardmill.training.tensorflow.models.applications").build(spec)
    family = _family(spec.name)
    if spec.output != "pixels" and getattr(family, "OUTPUT", None) == "pixels":
        raise ConfigError(
            f"{spec.name} is for masks: it gives a class to each pixel",
            "leave model.name out, or choose another model, such as compact_resnet",
        )
    model = family.build(spec)
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


def _family(name: str) -> Any:
    module = importlib.import_module(name if "." in name else f"{families.__name__}.{name}")
    if not callable(getattr(module, "build", None)):
        raise ConfigError(f"the module {name} has no function build", "see docs/bring-your-own-model.md")
    return module


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _module(name: str) -> ModuleSpec | None:
    """Find an importable module; None if there is none."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # the parent is missing or not a package, or the dots are misplaced
        return None


def _may_build(module: ModuleSpec) -> bool:
    """Return whether a module's source binds ``build``. It is not run, since that may load TensorFlow.

    Returns True if the source cannot be read: then ``_family`` reports what is wrong.
    """
    try:
        source = getattr(module.loader, "get_source", lambda _: None)(module.name)
        return source is None or any(map(_binds_build, ast.walk(ast.parse(source))))
    except (ImportError, SyntaxError):
        return True


def _binds_build(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == "build"
    if isinstance(node, ast.alias):
        return (node.asname or node.name) in ("build", "*")
    return isinstance(node, ast.Name) and node.id == "build" and isinstance(node.ctx, ast.Store)

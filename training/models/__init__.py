"""The models, one file a family, found by name.

A name is, in this order:

* a module of this package (``small_cnn``), or any importable module by its dotted name (``my.models.vit``),
  with ``build(spec: ModelSpec) -> keras.Model`` and ``DEFAULT_IMAGE_SIZE``;
* a model of ``keras.applications``, in any spelling (``ResNet50``, ``efficientnet_b0``).

This file imports no TensorFlow, so that a configuration is checked in no time.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any

from infra.errors import ConfigError
from training.models.applications_table import APPLICATIONS


@dataclass(frozen=True, slots=True)
class PixelStatistics:
    """Mean and standard deviation of the pixels of images, 0 to 255, each for red, green and blue."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a family needs to know to build a model.

    Attributes:
        name: as in the configuration.
        num_classes: width of the output.
        image_size: height and width of the input (pixels).
        dropout: share of features dropped before the classifier.
        synchronized: batch normalisation takes its moments over all replicas.
        weights: None for random weights, "imagenet", or the path of a Keras weights file.
        seed: of the random weights and of dropout.
        pixels: what the images that it learns from are like, for ``training.normalization.normalized``; None
            where that is not known or not to count.
    """

    name: str
    num_classes: int
    image_size: int
    dropout: float = 0.0
    synchronized: bool = False
    weights: str | None = None
    seed: int = 0
    pixels: PixelStatistics | None = None


def known_models() -> list[str]:
    """Names of this package's families and of all ``keras.applications`` models."""
    own = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("applications")]
    return own + list(APPLICATIONS)


def resolve_name(name: str) -> str:
    """The name as it is listed, whatever its spelling.

    Raises:
        ValueError: there is no such model; suggests the near miss.
    """
    by_spelling = {_spelling(known): known for known in known_models()}
    found = by_spelling.get(_spelling(name))
    if found is not None:
        return found
    if "." in name and (module := _module(name)) is not None:
        if not _may_build(module):
            raise ValueError(f"the module {name} has no function build (see training.models)")
        return name
    near = difflib.get_close_matches(_spelling(name), by_spelling, n=1)
    hint = f"did you mean {by_spelling[near[0]]!r}?" if near else f"there are: {', '.join(known_models())}"
    raise ValueError(f"unknown model; {hint}")


def default_image_size(name: str) -> int:
    """Height and width (pixels) that a model is made for."""
    if name in APPLICATIONS:
        return APPLICATIONS[name]
    size = getattr(_family(name), "DEFAULT_IMAGE_SIZE", None)
    if size is None:
        raise ConfigError(
            f"the model {name} has no DEFAULT_IMAGE_SIZE", "give it one, or set data.image_size"
        )
    return int(size)


def build_model(spec: ModelSpec) -> Any:
    """A ``keras.Model`` from images, [B, S, S, 3] of 0 to 255, to logits, float32 [B, num_classes].

    Normalisation of the input is part of the model.

    Raises:
        ConfigError: the model is not made for such images, or is no classifier of so many classes.
    """
    if spec.name in APPLICATIONS:
        return importlib.import_module("training.models.applications").build(spec)
    model = _family(spec.name).build(spec)
    found = tuple(getattr(model, "output_shape", ()))
    if found != (None, spec.num_classes):
        raise ConfigError(
            f"build of {spec.name} gave a model of output {found}, not (None, {spec.num_classes})",
            "return a keras.Model whose output are the logits of spec.num_classes classes",
        )
    return model


def _family(name: str) -> Any:
    module = importlib.import_module(name if "." in name else f"{__name__}.{name}")
    if not callable(getattr(module, "build", None)):
        raise ConfigError(f"the module {name} has no function build", "see training.models for what it takes")
    return module


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _module(name: str) -> ModuleSpec | None:
    """Where an importable module of that name is."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a parent that is not there or is no package; dots out of place
        return None


def _may_build(module: ModuleSpec) -> bool:
    """Whether a module's source binds ``build``; it is only looked at, as running it may load TensorFlow.

    What cannot be looked at gets the benefit of the doubt: ``_family`` says what is wrong with it.
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

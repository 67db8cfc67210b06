"""Load the initial weights of a Keras model from a file (``model.weights``), as ``TakenWeights`` asks.

Keras finds the arrays of a layer by its kind and place, not by its name, so layers of another model may fit
by chance: fewer than all, or further arrays in the file, are signs of that.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from shardmill.infra.errors import ConfigError
from shardmill.training.models.changes import TakenWeights
from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models.layers import layers_of

_SUFFIX = ".weights.h5"
_MARK = 6e4  # fits into every type of weights


def is_of_classifier(weights: str | None) -> bool:
    """Return whether a file has the weights of a classifier, whose layers a backbone shares.

    A classifier ends in a dense layer; a model with a backbone holds it as a model inside, and has none.

    Raises:
        ConfigError: there is no such file, or it is of another format.
    """
    if weights is None or weights == "imagenet":
        return False
    import h5py

    if not weights.endswith(_SUFFIX) or not Path(weights).is_file():
        raise ConfigError(
            f"model.weights = {weights!r}: there is no such file of weights",
            f"give the path of a {_SUFFIX} file: of a classifier with the same model.name, for the backbone, "
            "or of a run for the same kind of labels",
        )
    try:
        with h5py.File(weights) as file:
            layers = set(file["layers"])
    except (OSError, KeyError) as error:
        raise ConfigError(f"model.weights = {weights!r} cannot be loaded: {error}") from error
    return "dense" in layers or "functional" not in layers


def load_initial(model: Any, spec: ModelSpec) -> TakenWeights | None:
    """Load the weights of a file into a Keras model, as ``spec.weights`` and ``spec.partial_weights`` say.

    Returns:
        The layers that took them; None: the model has its weights already, or begins with random ones.

    Raises:
        ConfigError: the file cannot be loaded, or does not fit.
    """
    weights = spec.weights
    if weights is None or weights == "imagenet":
        return None
    if spec.output not in _HEADS:
        return load_fitting(model, weights, partial=spec.partial_weights)
    if is_of_classifier(weights):
        return None  # the backbone took them when it was built
    return load_fitting(model, weights, partial=spec.partial_weights, head=_HEADS[spec.output])


# The layers that depend on what is found, by the output of the model.
_HEADS = {"objects": ("classes",), "oriented": ("classes", "oriented_boxes"), "points": ("heat_maps",)}


def load_fitting(
    model: Any, weights: str, *, partial: bool, head: Collection[str] | None = None
) -> TakenWeights:
    """Load the weights of a file into the layers of a Keras model whose shapes fit.

    Args:
        model: the model, in its initial state.
        weights: a .weights.h5 or .keras file.
        partial: further layers than the head may keep their random weights.
        head: names of the layers that depend on the classes; None: the last one with weights.

    Raises:
        ConfigError: the file cannot be loaded, does not fit, or has numbers that are not finite.
    """
    if not Path(weights).is_file():
        raise ConfigError(
            f"model.weights = {weights!r}: no such file", "give the path of a .weights.h5 or .keras file"
        )
    owners = _owners(model)
    initial = [variable.numpy() for _, variable in owners]
    for (_, variable), value in zip(owners, initial, strict=True):
        variable.assign(np.full(value.shape, _MARK, value.dtype))
    marks = [variable.numpy() for _, variable in owners]
    _load(model, weights)
    found = [variable.numpy() for _, variable in owners]
    missing = {
        id(layer)
        for (layer, _), mark, now in zip(owners, marks, found, strict=True)
        if now.size and np.array_equal(mark, now)
    }
    for (layer, variable), value, now in zip(owners, initial, found, strict=True):
        if id(layer) in missing:
            variable.assign(value)
        elif not np.isfinite(now).all():
            raise ConfigError(
                f"model.weights = {weights!r}: {variable.path} has numbers that are not finite",
                "give the weights of a model that has not diverged",
            )
    layers = list({id(layer): layer for layer, _ in owners}.values())
    taken = TakenWeights(
        weights,
        [layer.name for layer in layers if id(layer) not in missing],
        [layer.name for layer in layers if id(layer) in missing],
        max(_num_arrays(weights) - len(owners), 0),
    )
    return taken.check([layers[-1].name] if head is None else head, partial=partial)


def _owners(model: Any) -> list[tuple[Any, Any]]:
    """Return each weight of a model with the innermost layer that holds it, in the order of the network."""
    owner = {id(variable): layer for layer in layers_of(model) for variable in layer.weights}
    places = {id(layer): place for place, layer in enumerate(layers_of(model))}
    pairs = [(owner.get(id(variable), model), variable) for variable in model.weights]
    return sorted(pairs, key=lambda pair: places.get(id(pair[0]), -1))


def _load(model: Any, weights: str) -> None:
    try:
        with warnings.catch_warnings():
            # Which layers do not fit is said in words of our own. Keras looks for layers a second time where
            # it keeps them by depth, and files have them once.
            warnings.filterwarnings("ignore", "(?s).*could not be loaded")
            warnings.filterwarnings("ignore", "Skipping nested container")
            model.load_weights(weights, skip_mismatch=True)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"model.weights = {weights!r} cannot be loaded: {error}") from error


def _num_arrays(weights: str) -> int:
    """Return the number of weights in a file: without the state of optimizers, metrics and random numbers."""
    import h5py

    if weights.endswith(".keras"):
        with zipfile.ZipFile(weights) as archive:
            file: Any = io.BytesIO(archive.read("model.weights.h5"))
    elif weights.endswith(_SUFFIX):
        file = weights
    else:
        return 0  # an earlier Keras counts them itself
    counts = 0

    def count(name: str, item: Any) -> None:
        nonlocal counts
        parts = name.split("/")
        is_state = {"optimizer", "metrics", "seed_generator"}.intersection(parts)
        counts += isinstance(item, h5py.Dataset) and "vars" in parts and not is_state

    with h5py.File(file) as opened:
        opened.visititems(count)
    return counts

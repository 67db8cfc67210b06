"""Initial weights of models with a backbone: of a whole such model, or of a classifier for its backbone."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from infra.errors import ConfigError

_SUFFIX = ".weights.h5"


def is_of_classifier(weights: str | None) -> bool:
    """Return whether a file has the weights of a classifier, whose layers a backbone shares.

    A classifier ends in a dense layer; a model with a backbone holds it as a model inside, and has none.

    Raises:
        ConfigError: there is no such file, or it is of another format.
    """
    if weights is None or weights == "imagenet":
        return False
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


def load_whole(model: Any, weights: str | None) -> None:
    """Load the weights of a model of the same kind; layers of another number of classes keep theirs.

    The weights of a classifier are those of the backbone, which has loaded them when it was built.

    Raises:
        ConfigError: the file cannot be loaded.
    """
    if weights is None or weights == "imagenet" or is_of_classifier(weights):
        return
    load_fitting(model, weights)


def load_backbone(classifier: Any, weights: str) -> None:
    """Load the weights of a classifier for its layers before the pooling. Warn if some do not fit.

    Args:
        classifier: the model, in its initial state.
        weights: the file, of a classifier with any classes.

    Raises:
        ConfigError: the file cannot be loaded, or no convolution of it fits.
    """
    kernels = [variable for variable in classifier.weights if len(variable.shape) == 4]
    initial = [variable.numpy() for variable in kernels]
    for variable in kernels:
        variable.assign(np.full(variable.shape, np.nan))  # a mark: what is not loaded stays
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*could not be loaded")  # the classes are cut off anyway
        load_fitting(classifier, weights)
    num_missing = 0
    for variable, value in zip(kernels, initial, strict=True):
        if np.isnan(variable.numpy()).all():
            variable.assign(value)
            num_missing += 1
    if kernels and num_missing == len(kernels):
        raise ConfigError(
            f"model.weights = {weights!r}: none of its convolutions fits the model {classifier.name}",
            "give the weights of a classifier with the same model.name and data.image_channels",
        )
    if num_missing:
        warnings.warn(
            f"model.weights = {weights!r}: {num_missing} of {len(kernels)} convolutions of the model "
            f"{classifier.name} are not in it or do not fit, and keep their random weights",
            stacklevel=2,
        )


def load_fitting(model: Any, weights: str) -> None:
    """Load the weights of a file whose shapes fit. Keras warns of layers whose shapes do not.

    Raises:
        ConfigError: the file cannot be loaded.
    """
    try:
        with warnings.catch_warnings():
            # Keras looks for the layers a second time where it keeps them by depth, and files have them once.
            warnings.filterwarnings("ignore", "Skipping nested container")
            model.load_weights(weights, skip_mismatch=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.weights = {weights!r} cannot be loaded: {error}") from error

"""Build any model of ``keras.applications``, with its input normalisation and a new classifier."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models.normalization import BatchNormalization

_DOWNLOAD_SECONDS = 60.0


def build(spec: ModelSpec) -> Any:
    """Build the backbone with pooling, dropout and a classifier of ``spec.num_classes``.

    Raises:
        ConfigError: the images are too small for it, or are not of 8 bits.
        EnvironmentFault: "imagenet" weights are asked for and cannot be downloaded.
    """
    spec.check_common()
    shape = (spec.image_size, spec.image_size, 3)
    make = getattr(keras.applications, spec.name)
    with _explained_failure(spec):
        weights = "imagenet" if spec.weights == "imagenet" else None
        backbone = make(include_top=False, weights=weights, input_shape=shape, pooling="avg")
    if spec.synchronized:
        backbone = _with_synchronized_normalisation(backbone)
    inputs = keras.Input(spec.image_shape, name="image")
    x = backbone(preprocessed(inputs, spec))
    x = keras.layers.Dropout(spec.dropout, seed=spec.seed)(x)
    logits = keras.layers.Dense(spec.num_classes, dtype="float32", name="logits")(x)
    return keras.Model(inputs, logits, name=spec.name.lower())


def preprocessed(inputs: Any, spec: ModelSpec) -> Any:
    """Bring images of 0 to 255 into the form that a model of ``keras.applications`` was made for."""
    # They take colour, and so do weights from elsewhere: grey images get three equal channels.
    x = inputs if spec.image_shape[-1] == 3 else keras.layers.Concatenate(name="grey")([inputs] * 3)
    # Does nothing for models whose first layers normalise; the others expect it from their caller.
    make = getattr(keras.applications, spec.name)
    return sys.modules[make.__module__].preprocess_input(x)


def _with_synchronized_normalisation(backbone: Any) -> Any:
    """Copy a model so that its batch normalisation takes moments over all replicas."""

    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if isinstance(layer, keras.layers.BatchNormalization):
            return BatchNormalization.from_config({**config, "synchronized": True})
        return type(layer).from_config(config)

    synchronized = keras.models.clone_model(backbone, clone_function=clone)
    synchronized.set_weights(backbone.get_weights())
    return synchronized


@contextmanager
def _explained_failure(spec: ModelSpec) -> Iterator[None]:
    """Turn failures into errors with a remedy, and limit how long a download may be silent."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_SECONDS)
    try:
        yield
    except ValueError as error:
        if "corrupted file" in str(error):  # a download whose checksum is wrong
            raise _download_failed(spec, error) from error
        raise ConfigError(
            f"{spec.name} cannot be built for images of {spec.image_size} pixels: {error}",
            "set data.image_size to a larger size",
        ) from error
    except Exception as error:
        # Keras wraps network errors in a bare Exception.
        if not isinstance(error, OSError) and "URL fetch failure" not in str(error):
            raise
        raise _download_failed(spec, error) from error
    finally:
        socket.setdefaulttimeout(before)


def _download_failed(spec: ModelSpec, error: Exception) -> EnvironmentFault:
    return EnvironmentFault(
        f"the imagenet weights of {spec.name} cannot be downloaded: {error}",
        "leave model.weights out to start from random weights, give the path of a weights file, or let this "
        "machine reach the download host of keras.applications once",
    )

"""Export the trained model as a ``SavedModel`` that takes encoded images, or pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.codecs import Pixels
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.known_features import BOX_NUMBERS
from shardmill.training.export.model_input import ModelInput
from shardmill.training.tensorflow import starting
from shardmill.training.tensorflow.export.forms import Exported
from shardmill.training.tensorflow.export.graph.preparing import see_in_graph
from shardmill.training.tensorflow.models.layers import in_float32


def export(exported: Exported, folder: Path) -> None:
    """Write a SavedModel with the signatures ``serving_default`` and ``pixels`` to ``folder``.

    ``serving_default`` takes ``image_bytes``: string [B], each a JPEG, PNG, WebP, BMP or GIF. They become
    what preparation and then evaluation make of them (``shardmill.training.tensorflow.export.graph``); a file
    for which the graph cannot do so is an error. ``pixels`` takes ``images``: [B, S, S, C], as
    ``ModelInput.see`` returns them; it is ``serving_default`` too where images are not of 8 bits, grey or
    RGB, since TensorFlow decodes no others. B may be 0. Outputs by task; the attribute ``class_names`` of
    the loaded module has the names of the classes or targets::

        single-label   ``probabilities`` float32 [B, C], ``label`` int64 [B], ``class_name`` string [B]
        multi-label    ``probabilities`` float32 [B, C], ``predicted`` bool [B, C]
        regression     ``values`` float32 [B, T], in the unit of the labels
        detection      ``boxes`` float32 [B, 100, 4], ``scores`` float32 [B, 100] and ``classes`` int32
                       [B, 100], the surest first; -1 behind the last box. Boxes are relative to the upright
                       image, or with ``pixels`` to the model's input; oriented ones are [B, 100, 8], y and x
                       of four corners, which may lie outside
        keypoints      ``points`` float32 [B, 2 K]: y, x of each key point, relative as boxes are
        segmentation   ``mask`` uint8 [B, S, S], the class of each pixel of the model's input, or int32 with
                       more than 255 classes; ``probabilities`` float32 [B, S, S, C]; ``mask_edges`` float32
                       [B, 4], the top, left, bottom and right edge of the mask relative to the upright image,
                       outside of 0 to 1 where records are padded (not with ``pixels``)

    Args:
        exported: the model, from images of one or three channels. Names that are not UTF-8 keep their bytes.
        folder: the folder of the SavedModel.
    """
    # Keras exports only the objects that it tracks itself, so a tf.Module wraps the model.
    module = tf.Module(name="classifier")
    model = module.model = exported.model
    module.class_names = tf.constant([name.encode("utf-8", "surrogateescape") for name in exported.names])
    given = exported.given
    shape, dtype = given.image_shape, given.dtype

    def of_pixels(images: Any) -> dict[str, Any]:
        size = tf.shape(images)[0]
        # Some kernels refuse an empty batch: use a black image in its place, and cut off its result.
        images = tf.cond(size > 0, lambda: images, lambda: tf.zeros([1, *shape], dtype))
        outputs = in_float32(model(images, training=False))
        served = exported.task.served(tf.nest.map_structure(lambda part: part[:size], outputs))
        if "label" in served:
            served["class_name"] = tf.gather(module.class_names, served["label"])
        return served

    def of_files(image_bytes: Any) -> dict[str, Any]:
        images, edges = tf.map_fn(
            lambda image: see_in_graph(image, given),
            image_bytes,
            fn_output_signature=(tf.TensorSpec(shape, tf.uint8), tf.TensorSpec([4], tf.float32)),
        )
        served = of_pixels(images)
        if "boxes" in served:
            served |= in_pictures(served["boxes"], served["scores"], served["classes"], edges)
        if "points" in served:
            start, end = tf.split(tf.reshape(edges, [-1, 2, 2]), 2, axis=1)
            points = tf.reshape(served["points"], [tf.shape(edges)[0], -1, 2])
            served["points"] = tf.reshape(
                tf.clip_by_value(start + points * (end - start), 0.0, 1.0), tf.shape(served["points"])
            )
        if "mask" in served:
            served["mask_edges"] = edges
        return served

    files = tf.TensorSpec([None], tf.string, name="image_bytes")
    pixels = tf.TensorSpec([None, *shape], dtype, name="images")
    module.classify_pixels = tf.function(of_pixels, input_signature=[pixels], autograph=False)
    module.classify = module.classify_pixels
    if given.samples.is_common:
        module.classify = tf.function(of_files, input_signature=[files], autograph=False)
    signatures = {"serving_default": module.classify, "pixels": module.classify_pixels}
    tf.saved_model.save(module, str(folder), signatures=signatures)


def open_served(folder: Path, given: ModelInput, output_name: str) -> Callable[[bytes], npt.NDArray[Any]]:
    """Load a SavedModel, and return a function from an image file to an output."""
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]

    def of_file(data: bytes) -> npt.NDArray[Any]:
        if given.samples.is_common:
            found = served(image_bytes=tf.constant([data]))
        else:
            found = served(images=tf.constant(given.see(data).pixels[np.newaxis]))
        return np.asarray(found[output_name][0])

    return of_file


def open_predictor(folder: Path, outputs: Sequence[str]) -> Callable[[Pixels], dict[str, npt.NDArray[Any]]]:
    """Start TensorFlow, and return a function from images [n, S, S, C] to outputs of a SavedModel.

    Args:
        folder: the folder of the exported model.
        outputs: the names of the outputs that are wanted, each [n, ...].

    Raises:
        CorruptDataError: it is missing or damaged.
    """
    starting.start()
    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        served = signatures["pixels" if "pixels" in signatures else "serving_default"]
    except (OSError, KeyError, tf.errors.OpError) as error:
        raise CorruptDataError(
            f"the exported model {folder} cannot be loaded: {error}", "train again with run.fresh=true"
        ) from error

    def predict(images: Pixels) -> dict[str, npt.NDArray[Any]]:
        if "pixels" in signatures:
            found = served(images=tf.constant(images))
        else:  # models of earlier releases take files only; files of the model's own size are not resized
            found = served(image_bytes=tf.stack([tf.io.encode_png(image) for image in images]))
        return {name: found[name].numpy() for name in outputs}

    return predict


def in_pictures(boxes: Any, scores: Any, classes: Any, edges: Any) -> dict[str, Any]:
    """Place boxes in the upright pictures, and leave out those around padding alone.

    Args:
        boxes: float32 [B, N, 4 or 8], relative to the model's input.
        scores: float32 [B, N].
        classes: int32 [B, N], -1 for none.
        edges: float32 [B, 4], those of the model's input, relative to the picture.
    """
    width = boxes.shape[-1]
    start, end = (tf.tile(edges[:, tf.newaxis, at : at + 2], [1, 1, width // 2]) for at in (0, 2))
    placed = start + boxes * (end - start)
    cut = tf.clip_by_value(placed, 0.0, 1.0)
    placed = cut if width == BOX_NUMBERS else placed
    places = [cut[..., axis::2] for axis in (0, 1)]
    sides = [tf.reduce_max(place, axis=-1) - tf.reduce_min(place, axis=-1) for place in places]
    is_found = (classes >= 0) & (tf.minimum(*sides) > 0)
    order = tf.argsort(tf.cast(is_found, tf.int32), direction="DESCENDING", stable=True)
    left_out = {
        "boxes": tf.where(is_found[..., tf.newaxis], placed, 0.0),
        "scores": tf.where(is_found, scores, 0.0),
        "classes": tf.where(is_found, classes, -1),
    }
    return {name: tf.gather(values, order, batch_dims=1) for name, values in left_out.items()}

"""Export the trained model as a ``SavedModel`` that takes encoded images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from training.export.forms import Exported
from training.export.inference import decode_for_inference
from training.models.outputs import in_float32
from training.tf_data.preprocess import to_grey


def export(exported: Exported, image_size: int, folder: Path, *, grey: bool = False) -> None:
    """Write a SavedModel with the signature ``serving_default`` to ``folder``.

    Input ``image_bytes``: string [B], each a JPEG, PNG, WebP, BMP or GIF. They are treated as the preparation
    of records and then evaluation treat them: turned upright by their EXIF orientation, alpha on white.
    B may be 0. Outputs by task; the attribute ``class_names`` of the loaded module has the names of the
    classes or targets::

        single-label   ``probabilities`` float32 [B, C], ``label`` int64 [B], ``class_name`` string [B]
        multi-label    ``probabilities`` float32 [B, C], ``predicted`` bool [B, C]
        regression     ``values`` float32 [B, T], in the unit of the labels
        detection      ``boxes`` float32 [B, 100, 4], relative to the image, ``scores`` float32 [B, 100] and
                       ``classes`` int32 [B, 100], the surest first; -1 behind the last box
        segmentation   ``mask`` uint8 [B, S, S], the class of each pixel of the model's input, or int32 with
                       more than 255 classes; ``probabilities`` float32 [B, S, S, C]

    Args:
        exported: the model, from images of one or three channels. Names that are not UTF-8 keep their bytes.
        image_size: height and width of the model's input (pixels).
        folder: the folder of the SavedModel.
        grey: the model was trained on grey records.
    """
    # Keras exports only the objects that it tracks itself, so a tf.Module wraps the model.
    module = tf.Module(name="classifier")
    model = module.model = exported.model
    module.class_names = tf.constant([name.encode("utf-8", "surrogateescape") for name in exported.names])

    channels = model.input_shape[-1]

    def in_model_channels(pixels: Any) -> Any:
        return to_grey(pixels) if channels == 1 else pixels

    def classify(image_bytes: Any) -> dict[str, Any]:
        images = tf.map_fn(
            lambda image: in_model_channels(
                decode_for_inference(image, image_size, grey=grey, fit=exported.fit)
            ),
            image_bytes,
            fn_output_signature=tf.TensorSpec([image_size, image_size, channels], tf.uint8),
        )
        size = tf.shape(images)[0]
        # Some kernels refuse an empty batch: use a black image in its place, and cut off its result.
        images = tf.cond(
            size > 0, lambda: images, lambda: tf.zeros([1, image_size, image_size, channels], tf.uint8)
        )
        outputs = in_float32(model(images, training=False))
        served = exported.task.served(tf.nest.map_structure(lambda part: part[:size], outputs))
        if "label" in served:
            served["class_name"] = tf.gather(module.class_names, served["label"])
        return served

    signature = tf.TensorSpec([None], tf.string, name="image_bytes")
    module.classify = tf.function(classify, input_signature=[signature], autograph=False)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.classify})

"""Convert a trained model to LiteRT (TensorFlow Lite), in float32 or quantised to 8 bits. Imports TensorFlow.

Quantisation after training (Jacob et al. 2018): the ranges of the layers' outputs are measured on training
images, then weights and most operations become int8. Input and output keep their types.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from shardmill.infra.preparation import SampleType
from shardmill.training.frameworks import quiet
from shardmill.training.reading.decode import Pixels


def convert(
    output: Callable[[Any], Any],
    input_shape: Sequence[int | None],
    calibration: Pixels | None = None,
    dtype: SampleType = "uint8",
) -> bytes:
    """Convert a model to a LiteRT file.

    Input ``images``: [1, S, S, C], decoded. Output: what ``output`` returns, float32 [1, K].

    Args:
        output: images [b, S, S, C] -> probabilities or numbers float32 [b, K], on one device.
        input_shape: shape of the images.
        calibration: [N, S, S, C], training images: quantise to 8 bits; None: keep float32.
        dtype: the type of images.
    """
    shape = (1, *input_shape[1:])
    traced = tf.function(
        output, input_signature=[tf.TensorSpec(shape, dtype, name="images")], autograph=False
    )
    # Calibration cannot run a graph with variables.
    frozen = convert_variables_to_constants_v2(traced.get_concrete_function())
    # The converter warns of its own defaults, in Python and from C++.
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
        if calibration is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([image[None]] for image in calibration)
        converted: bytes = converter.convert()
    return converted


class LiteRTModel:
    """Runs a LiteRT file of ``convert`` on this machine's CPU."""

    def __init__(self, content: bytes) -> None:
        # TensorFlow's interpreter warns that it moves to a package of its own; it reads the same files.
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._interpreter = tf.lite.Interpreter(model_content=content)
            self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]["index"]
        self._output = self._interpreter.get_output_details()[0]["index"]

    def values(self, images: Pixels) -> npt.NDArray[np.float32]:
        """Return the output for each image: float32 [b, K].

        Args:
            images: [b, S, S, C].
        """
        rows = []
        for image in images:
            self._interpreter.set_tensor(self._input, image[None])
            self._interpreter.invoke()
            rows.append(self._interpreter.get_tensor(self._output)[0])
        return np.stack(rows)

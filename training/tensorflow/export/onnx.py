"""Convert a trained model to ONNX, and run the file with ONNX Runtime. Imports TensorFlow.

Needs the packages of the extra ``onnx``.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from shardmill.infra.preparation import SampleType
from shardmill.training.frameworks import quiet
from shardmill.training.reading.decode import Pixels

_OPSET = 17  # published in 2022; today's runtimes read it
_INPUT = "images"


def convert(
    output: Callable[[Any], Any],
    input_shape: Sequence[int | None],
    output_name: str,
    dtype: SampleType = "uint8",
) -> bytes:
    """Convert a model to an ONNX file.

    Input ``images``: [N, S, S, C], decoded; N is any number. Output: float32 [N, K].

    Args:
        output: images [N, S, S, C] -> probabilities or numbers float32 [N, K], on one device.
        input_shape: shape of the images.
        output_name: the name of the output.
        dtype: the type of images.
    """
    from tf2onnx import convert as converter

    shape = [None, *input_shape[1:]]
    traced = tf.function(output, input_signature=[tf.TensorSpec(shape, dtype, name=_INPUT)], autograph=False)
    # With from_function constants that a model captured would become inputs of the file.
    frozen = convert_variables_to_constants_v2(traced.get_concrete_function())
    (given,), (found,) = frozen.inputs, frozen.outputs
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, _ = converter.from_graph_def(
            frozen.graph.as_graph_def(),
            input_names=[given.name],
            output_names=[found.name],
            opset=_OPSET,
        )
    _rename(made.graph, {given.name: _INPUT, found.name: output_name})
    content: bytes = made.SerializeToString()
    return content


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values of an ONNX graph, everywhere."""
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]


class OnnxModel:
    """Runs an ONNX file of ``convert`` on this machine's CPU."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def values(self, images: Pixels) -> npt.NDArray[np.float32]:
        """Return the output for each image: float32 [b, K].

        Args:
            images: [b, S, S, C].
        """
        (found,) = self._session.run(None, {_INPUT: images})
        return np.asarray(found, np.float32)

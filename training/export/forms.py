"""Write the forms of a trained model that the settings ask for, and compare each with the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from infra import progress as events
from infra.errors import EnvironmentFault, ShardmillError
from infra.storage.filesystem import Storage
from training.config.export import ExportFormat, ExportSettings
from training.order import SequentialOrder
from training.reading import BatchMaker, RecordReader
from training.reading.batches.iterate import NumpyBatches

_CALIBRATION_IMAGES = 128
_BATCH = 64
# Other kernels round differently; a wrong conversion differs by far more.
_MOST_DIFFERENCE = 1e-3

_FILES: dict[ExportFormat, str] = {
    "litert": "model.tflite",
    "litert-int8": "model-int8.tflite",
    "onnx": "model.onnx",
}
# images uint8 [b, S, S, C] -> float32 [b, K]
Probabilities = Callable[[Any], np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A form of the model beside the model itself, on all examples of a split.

    Attributes:
        split: the split.
        num_examples: its examples.
        accuracy, model_accuracy: of the form, and of the model.
        agreement: the share of examples for which both predict the same class.
        max_difference: the largest difference of a probability.
    """

    split: str
    num_examples: int
    accuracy: float
    model_accuracy: float
    agreement: float
    max_difference: float


@dataclass(frozen=True, slots=True)
class FormsRequest:
    """The forms to write.

    Attributes:
        settings: the formats, and what an 8-bit one may lose.
        calibration: the records of the train split.
        checked_on: the records on which forms are compared with the model.
    """

    settings: ExportSettings
    calibration: RecordReader
    checked_on: RecordReader


def check_packages(formats: Sequence[ExportFormat]) -> None:
    """Check that what converts to these formats is installed.

    Raises:
        EnvironmentFault: a package is missing.
    """
    for package in ("tf2onnx", "onnxruntime") if "onnx" in formats else ():
        if find_spec(package) is None:
            raise EnvironmentFault(
                f"export.formats has 'onnx', which needs the package {package}",
                "pip install 'shardmill[onnx]', or take 'onnx' out of export.formats",
            )


def write_forms(model: Any, request: FormsRequest, folder: Path) -> dict[str, dict[str, Any]]:
    """Write each form to ``folder``, and remove it again if it does not do what the model does.

    Returns:
        Format -> path, size (bytes) and comparison; or the ``problem`` for which there is no file.
    """
    written: dict[str, dict[str, Any]] = {}
    for kind in request.settings.formats:
        events.log(f"export {kind}, and compare it on {request.checked_on.table.split}")
        try:
            written[kind] = _write(model, kind, request, folder)
        except ShardmillError:
            raise
        except Exception as error:  # noqa: BLE001  converters raise errors of every kind; the run is sound
            written[kind] = {"problem": f"{type(error).__name__}: {error}"}
        if "problem" in written[kind]:
            events.log(f"no {kind} was exported: {written[kind]['problem']}", level="warning")
    return written


def _write(model: Any, kind: ExportFormat, request: FormsRequest, folder: Path) -> dict[str, Any]:
    content, probabilities = _converted(model, kind, request.calibration)
    compared = compare(model, probabilities, request.checked_on)
    figures = asdict(compared)
    loss = compared.model_accuracy - compared.accuracy
    if kind != "litert-int8" and compared.max_difference > _MOST_DIFFERENCE:
        return {**figures, "problem": f"probabilities differ by up to {compared.max_difference:.3g}"}
    if loss > request.settings.max_accuracy_loss:
        return {**figures, "problem": f"it loses {loss:.1%} of accuracy (export.max_accuracy_loss)"}
    Storage.at(folder).write_atomic(_FILES[kind], content)
    return {"path": str(folder / _FILES[kind]), "size_bytes": len(content), **figures}


def _converted(model: Any, kind: ExportFormat, calibration: RecordReader) -> tuple[bytes, Probabilities]:
    """Return the file of a form, and what computes its probabilities."""
    if kind == "onnx":
        from training.export import onnx

        content = onnx.convert(model)
        return content, onnx.OnnxModel(content).probabilities
    from training.export import litert

    images = None
    if kind == "litert-int8":
        images = next(iter(_batches(model, calibration, _CALIBRATION_IMAGES))).images
    content = litert.convert(model, images)
    return content, litert.LiteRTModel(content).probabilities


def compare(model: Any, probabilities: Probabilities, reader: RecordReader) -> Comparison:
    """Compare another form of a model with the model, on all records of a split.

    Args:
        model: the Keras model, from images to logits.
        probabilities: of the other form: images uint8 [b, S, S, C] -> float32 [b, K].
        reader: the records.
    """
    right = model_right = same = count = 0
    largest = 0.0
    for batch in _batches(model, reader, _BATCH):
        logits = np.asarray(model(batch.images, training=False), np.float64)
        scaled = np.exp(logits - logits.max(axis=1, keepdims=True))
        wanted, found = scaled / scaled.sum(axis=1, keepdims=True), probabilities(batch.images)
        right += int((found.argmax(axis=1) == batch.labels).sum())
        model_right += int((wanted.argmax(axis=1) == batch.labels).sum())
        same += int((found.argmax(axis=1) == wanted.argmax(axis=1)).sum())
        largest = max(largest, float(np.abs(found - wanted).max()))
        count += len(batch.labels)
    split = reader.table.split
    return Comparison(split, count, right / count, model_right / count, same / count, largest)


def _batches(model: Any, reader: RecordReader, batch_size: int) -> NumpyBatches:
    """Return the examples of a split in stored order, as the model takes them."""
    _, size, _, channels = model.input_shape
    order = SequentialOrder(len(reader.table), min(batch_size, len(reader.table)))
    maker = BatchMaker(reader, image_size=size, image_channels=channels)
    return NumpyBatches(maker, order, 0, order.steps_per_epoch, cut_padding=True)

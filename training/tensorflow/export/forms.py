"""Write the forms of a trained model that the settings ask for, and compare each with the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.errors import ShardmillError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config.export import ExportFormat, ExportSettings
from shardmill.training.export.model_input import ModelInput
from shardmill.training.order import Passes, SequentialOrder
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.tasks.task import FormMeasure, Task
from shardmill.training.tensorflow.models.layers import in_float32

_CALIBRATION_IMAGES = 128
_BATCH, _BATCH_OF_MASKS = 64, 4
# Other kernels round differently; a wrong conversion differs by far more.
_MOST_DIFFERENCE = 1e-3

_FILES: dict[ExportFormat, str] = {
    "litert": "model.tflite",
    "litert-int8": "model-int8.tflite",
    "onnx": "model.onnx",
}
# images [b, S, S, C] -> float32 [b, K], or of masks [b, S, S, K]
Values = Callable[[Any], np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Exported:
    """A model to export.

    Attributes:
        model: the Keras model, on one device.
        task: the task that it learned.
        names: the names of the classes or targets.
        given: what it sees of images.
    """

    model: Any
    task: Task
    names: Sequence[str]
    given: ModelInput

    def output(self, images: Any) -> Any:
        """Return the output that the graphs of all forms compute, to compare the forms: float32 [b, ...]."""
        served = self.task.served(in_float32(self.model(images, training=False)))
        measure = self.task.form_measure()
        assert measure is not None, "forms are offered for the task"
        return served[measure.output_name]

    @property
    def num_together(self) -> int:
        """The number of images that are compared at a time: few if each pixel has values."""
        return _BATCH if len(self.model.output_shape) == 2 else _BATCH_OF_MASKS


@dataclass(frozen=True, slots=True)
class Comparison:
    """A form of the model beside the model itself, on all examples of a split.

    Attributes:
        split: the split.
        num_examples: its examples.
        score_name: of ``FormMeasure``, such as accuracy.
        score, model_score: of the form, and of the model.
        agreement: the share of examples for which both decide alike.
        max_difference: the largest difference of a probability; of numbers, in deviations of the target.
    """

    split: str
    num_examples: int
    score_name: str
    score: float
    model_score: float
    agreement: float
    max_difference: float

    def to_result(self) -> dict[str, Any]:
        """Return the comparison with the score by its name, JSON-able."""
        return {
            "split": self.split,
            "num_examples": self.num_examples,
            self.score_name: self.score,
            f"model_{self.score_name}": self.model_score,
            "agreement": self.agreement,
            "max_difference": self.max_difference,
        }


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


def write_forms(exported: Exported, request: FormsRequest, folder: Path) -> dict[str, dict[str, Any]]:
    """Write each form to ``folder``, and remove it again if it does not do what the model does.

    Returns:
        Format -> path, size (bytes) and comparison; or the ``problem`` for which there is no file.
    """
    written: dict[str, dict[str, Any]] = {}
    for kind in request.settings.formats:
        events.log(f"export {kind}, and compare it on {request.checked_on.table.split}")
        try:
            written[kind] = _write(exported, kind, request, folder)
        except ShardmillError:
            raise
        except Exception as error:  # noqa: BLE001  converters raise errors of every kind; the run is sound
            written[kind] = {"problem": f"{type(error).__name__}: {error}"}
        if "problem" in written[kind]:
            events.log(f"no {kind} was exported: {written[kind]['problem']}", level="warning")
    return written


def _write(exported: Exported, kind: ExportFormat, request: FormsRequest, folder: Path) -> dict[str, Any]:
    measure = exported.task.form_measure()
    if measure is None:
        return {"problem": "this form is not offered for the task"}
    content, values = _converted(exported, kind, request.calibration, measure.output_name)
    compared = compare(exported, values, request.checked_on, measure)
    figures, name = compared.to_result(), measure.output_name
    loss = compared.model_score - compared.score
    if kind != "litert-int8" and not compared.max_difference <= _MOST_DIFFERENCE:
        return {**figures, "problem": f"{name} differ by up to {compared.max_difference:.3g}"}
    if not loss <= request.settings.max_accuracy_loss:
        return {
            **figures,
            "problem": f"it loses {loss:.1%} of {measure.score_name} (export.max_accuracy_loss)",
        }
    Storage.at(folder).write_atomic(_FILES[kind], content)
    return {"path": str(folder / _FILES[kind]), "size_bytes": len(content), **figures}


def _converted(
    exported: Exported, kind: ExportFormat, calibration: RecordReader, output_name: str
) -> tuple[bytes, Values]:
    """Convert the model to a form. Return its file, and the function that runs it."""
    shape = exported.model.input_shape
    if kind == "onnx":
        from shardmill.training.tensorflow.export import onnx

        content = onnx.convert(exported.output, shape, output_name, exported.given.dtype)
        return content, onnx.OnnxModel(content).values
    from shardmill.training.tensorflow.export import litert

    images = None
    if kind == "litert-int8":
        images = next(iter(_batches(exported, calibration, _CALIBRATION_IMAGES))).images
    content = litert.convert(exported.output, shape, images, exported.given.dtype)
    return content, litert.LiteRTModel(content).values


def compare(exported: Exported, values: Values, reader: RecordReader, measure: FormMeasure) -> Comparison:
    """Compare another form of a model with the model, on all records of a split.

    Args:
        exported: the model.
        values: function of the other form: images [b, S, S, C] -> float32 [b, K].
        reader: the records.
        measure: how they are compared.
    """
    score = model_score = largest = 0.0
    same = count = 0
    stage, total = "compare", len(reader.table)
    events.stage(stage, total)
    for batch in _batches(exported, reader, exported.num_together):
        wanted, found = np.asarray(exported.output(batch.images), np.float64), values(batch.images)
        score += float(measure.scores(found, batch.labels).sum())
        model_score += float(measure.scores(wanted, batch.labels).sum())
        same += int(measure.agree(found, wanted).sum())
        largest = float(np.maximum(largest, measure.differences(found, wanted).max()))  # keeps NaN
        count += len(batch.labels)
        events.progress(stage, count, total)
    split, name = reader.table.split, measure.score_name
    return Comparison(split, count, name, score / count, model_score / count, same / count, largest)


def _batches(exported: Exported, reader: RecordReader, batch_size: int) -> NumpyBatches:
    """Return the examples of a split in stored order, as the model takes them."""
    order = SequentialOrder(len(reader.table), min(batch_size, len(reader.table)))
    maker = BatchMaker(reader, exported.given.examples)
    return NumpyBatches(maker, order, Passes(range(order.steps_per_epoch)), cut_padding=True)

"""Export the best model of a run in all its forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from shardmill.training.config import ExportSettings
from shardmill.training.export.model_input import ModelInput
from shardmill.training.reading import RecordReader
from shardmill.training.run.ending.source_check import Written, checked_on
from shardmill.training.tensorflow.evaluating.trained_model import WEIGHTS_FILE
from shardmill.training.tensorflow.export.forms import Exported, FormsRequest, write_forms
from shardmill.training.tensorflow.export.saved_model import export, open_served
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.parts import TrainingParts


def export_model(
    settings: ExportSettings, parts: TrainingParts, readers: Mapping[str, RecordReader], run_dir: Path
) -> Written:
    """Write the SavedModel, the weights and the other forms of a model to the folder of its run.

    Args:
        settings: the forms besides the SavedModel.
        parts: the model.
        readers: the records of each split; the forms are compared with the model on the test split.
        run_dir: the folder of the run.

    """
    train, spec = readers["train"], parts.spec
    given = ModelInput.of(train, spec.image_size, spec.fit, spec.image_channels)
    plain = _export(parts, train.split.version.manifest.label_names, given, run_dir)
    forms = write_forms(plain, FormsRequest(settings, train, checked_on(readers)), run_dir)
    measure = parts.task.form_measure()
    name = "" if measure is None else measure.output_name
    return Written(forms, given, plain.output, partial(open_served, run_dir / "export", name), measure)


def _export(parts: TrainingParts, names: list[str], given: ModelInput, run_dir: Path) -> Exported:
    """Export a copy of the model that belongs to no strategy, and its weights. Return the copy."""
    weights = parts.model.get_weights()
    # The same model without synchronisation between replicas. Its initial weights are overwritten anyway.
    plain = build_model(replace(parts.spec, synchronized=False, weights=None))
    plain.set_weights(weights)
    plain.save_weights(run_dir / WEIGHTS_FILE)
    exported = Exported(plain, parts.task, names, given)
    export(exported, run_dir / "export")
    given.write(run_dir)
    return exported

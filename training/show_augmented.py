"""``python -m shardmill.training.show_augmented NAME[@V] --out FILE``: draw augmented training examples.

The examples are the first ones of the run's first step. They go through the code of training: the draws of
(seed, epoch, position), the window and ``vary``; and if they are set, RandAugment, MixUp and CutMix.
TensorFlow is loaded for these, and for a model that defines the size of its images.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.arrays import for_people
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import KEYPOINTS, VISIBILITY, key_points
from shardmill.infra.processes.job_command import JobParser, deliver, settings_of
from shardmill.infra.processes.process import run_main
from shardmill.infra.readable import counted
from shardmill.infra.storage.local import writes
from shardmill.infra.strict_json import dump_json
from shardmill.training.augment.kind import Arrays
from shardmill.training.augment.parameters import draw_batch_parameters, own_share
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.frameworks import load, quiet
from shardmill.training.models.spec import Fit
from shardmill.training.order import StepPlan
from shardmill.training.order.from_settings import order_from_settings
from shardmill.training.reading import Batch, BatchMaker, RecordReader
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import FOLLOWING, load_objects
from shardmill.training.reading.records.split_table import load_features
from shardmill.training.results.pictures.batch import Labels
from shardmill.training.results.pictures.batch_parts import parts_of
from shardmill.training.results.pictures.grid import SUFFIXES, Cell, check_suffix, grid_picture
from shardmill.training.tasks.registry import LABEL_WORDS, is_learned, kind_of, learned
from shardmill.training.tasks.settings import settings_for

_EXAMPLES, _EPOCHS = 6, 6  # an even number of examples, for they may be mixed in pairs

Images = npt.NDArray[np.uint8]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.show_augmented",
        "A picture of a few training examples, as they are stored and as training sees them.",
        "example: python -m shardmill.training.show_augmented clothing --out out.png --set augment.mixup=0.2",
    )
    parser.add_argument(
        "dataset", metavar="NAME[@VERSION][?QUERY]", help="dataset; the newest version by default"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help=f"{', '.join(SUFFIXES)}")
    parser.add_job_arguments("train")
    return parser


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    config = settings_of(args, TrainConfig, "train")
    result = show_augmented(args.dataset, config, root=args.root, out=args.out)
    deliver(args, result)
    return 0


def show_augmented(ref: str, config: TrainConfig, *, root: str | Path, out: Path) -> dict[str, Any]:
    """Write the picture.

    Args:
        ref: ``name`` or ``name@version``.
        config: settings of a training run.
        root: the folder of the datasets.
        out: the file of the picture; its suffix determines the format.

    Raises:
        UsageError: the suffix is unknown, or a setting does not fit the data. NotFoundError: there is no such
            dataset, or no train split. CorruptDataError: a record is damaged. StorageError: the file cannot
            be written.
    """
    check_suffix(out)
    dataset = Dataset(Catalog(root).open_view(ref))
    reader = dataset.reader("train")
    if is_learned(dataset.version):
        config = settings_for(config, dataset.version)
    plan = _first_examples(config, dataset, reader)
    with quiet():  # the model's file may import its framework
        spec = ExampleSpec.of_settings(config)
    if learned(dataset.version) == "objects":
        names = _followed(dataset.features)
        features = load_features(dataset.version, "train", names)
        spec = replace(spec, objects=load_objects(dataset.version, "train", names), features=features)
    rows = _stored(dataset, reader, spec, plan)
    trained = _AsTrained(config, dataset, reader, spec)
    for epoch in range(_EPOCHS):
        for row, cell in zip(rows, trained.cells(replace(plan, epoch=epoch)), strict=True):
            row.append(cell)
    columns = ["stored", *(f"epoch {epoch + 1}" for epoch in range(_EPOCHS))]
    title = f"{dataset.version.ref}: {counted(len(rows), 'training example')} of {spec.image_size} pixels"
    picture = grid_picture(title, described(config.augment, spec.fit), columns, rows)
    with writes(out):
        picture.save(out)
    version = dataset.version
    found = {"dataset": version.name, "version": version.version, **version.describe_view()}
    return {**found, "augmented": str(out), "num_examples": len(rows), "num_epochs": _EPOCHS}


def described(settings: AugmentSettings, fit: Fit = "crop") -> str:
    """Return the settings that are switched on, as in a configuration; ``fit``: what is seen without any."""
    changed = settings.model_dump(exclude_defaults=True)
    shown = {name: changed[name] for name in changed if changed[name] or name in (settings.model_extra or ())}
    default = AugmentSettings()
    for name in ("random_resized_crop", "horizontal_flip"):
        if getattr(settings, name) == getattr(default, name):
            shown[name] = getattr(settings, name)
    parts = [f"{name} = {_value(value)}" for name, value in sorted(shown.items())]
    seen = "the central square" if fit == "crop" else f"the whole image (fit = {fit})"
    return "augment: " + (", ".join(parts) or f"nothing; {seen}")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return dump_json(value)


def _first_examples(config: TrainConfig, dataset: Dataset, reader: RecordReader) -> StepPlan:
    config.augment.check_pairs(config.data.batch_size)
    plan = order_from_settings(config.data, reader.table, dataset.classes).step(0, 0)
    num = min(_EXAMPLES, plan.num_real + plan.num_real % 2, plan.ordinals.size)
    return replace(
        plan, positions=plan.positions[:num], ordinals=plan.ordinals[:num], weights=plan.weights[:num]
    )


def _followed(features: Sequence[Feature]) -> list[str]:
    """Return the features of objects to draw; without key points that a mirror cannot swap."""
    points = key_points(features)
    left_out = {KEYPOINTS, VISIBILITY} if points is not None and points.partners is None else set()
    return [one.name for one in features if one.name in FOLLOWING and one.name not in left_out]


def _stored(dataset: Dataset, reader: RecordReader, spec: ExampleSpec, plan: StepPlan) -> list[list[Cell]]:
    """Return a row for each example, with the whole stored image."""
    whole = ExampleSpec(image_size=None, objects=spec.objects, features=spec.features)
    maker = BatchMaker(reader, whole, threads=1)
    rows = []
    for row in range(plan.ordinals.size):  # one at a time: images may be large
        batch = maker.make(plan.of_rows(slice(row, row + 1)))
        height, width = batch.images.shape[1:3]
        (pixels,) = _annotated(dataset, batch, [for_people(batch.images[0])])
        rows.append([Cell(pixels, (*_words(reader, batch), f"{width} by {height} pixels"))])
    return rows


def _annotated(dataset: Dataset, batch: Batch, images: list[Images]) -> list[Images]:
    """Return pictures of a batch with its objects or masks drawn into them."""
    if batch.objects is None and dataset.label_kind != "mask":
        return images
    labels = Labels(parts_of(batch), len(batch), dataset, None)
    return [labels.drawn(row, image) for row, image in enumerate(images)]


def _words(reader: RecordReader, batch: Batch) -> list[str]:
    """Return the label of each example for people."""
    version = reader.split.version
    if not is_learned(version):
        return [LABEL_WORDS["none"]] * len(batch)
    kind, names = kind_of(version), version.manifest.label_names
    labels = batch.labels if batch.objects is None else batch.objects._asdict()
    return [kind.label_words(names, labels, row) for row in range(len(batch))]


class _AsTrained:
    """Makes the examples of training, epoch by epoch."""

    def __init__(
        self, config: TrainConfig, dataset: Dataset, reader: RecordReader, spec: ExampleSpec
    ) -> None:
        self._settings = config.augment
        self._dataset = dataset
        self._reader = reader
        self._maker = BatchMaker(reader, spec, threads=1)
        self._augment = _batch_augment(config) if config.augment.of_batches else None

    def cells(self, plan: StepPlan) -> list[Cell]:
        """Return a cell for each example."""
        batch = self._maker.make(plan)
        names = _words(self._reader, batch)
        if self._augment is None:
            shown = _annotated(self._dataset, batch, _in_colour(batch.images))
            return [Cell(image, (name,)) for image, name in zip(shown, names, strict=True)]
        side = batch.images.shape[1]
        draws = draw_batch_parameters(self._settings, plan.seed, plan.epoch, plan.positions, side)
        images = _in_colour(self._augment(batch.images, draws))
        captions = [caption(self._settings, names, draws, row) for row in range(len(names))]
        return [Cell(image, caption) for image, caption in zip(images, captions, strict=True)]


def _in_colour(images: Images) -> list[Images]:
    """Return images [b, S, S, C] as pictures of 8 bits: uint8 [S, S, 3] each."""
    return [np.array(np.broadcast_to(for_people(one), (*one.shape[:2], 3))) for one in images]


def _batch_augment(config: TrainConfig) -> Any:
    """Return a function: (images, parameters) -> images, all numpy."""
    load("tensorflow", "starting").start()
    tf = importlib.import_module("tensorflow")
    augment = load("tensorflow", "augment_batches").BatchAugment(config.augment)

    def augmented(images: Images, drawn: dict[str, Arrays]) -> Images:
        done: Images = augment(tf.constant(images), tf.nest.map_structure(tf.constant, drawn)).numpy()
        return done

    return augmented


def caption(
    settings: AugmentSettings, names: list[str], drawn: dict[str, Arrays], row: int
) -> tuple[str, ...]:
    """Return the labels of an example with their shares, and what else was done to it."""
    shares, own, partner = own_share(drawn), names[row], names[min(row ^ 1, len(names) - 1)]
    caption = [own]
    if shares is not None and shares[row] < 0.995 and partner != own:
        share = float(shares[row])
        own, partner = (f"({name})" if "," in name else name for name in (own, partner))
        caption = [f"{own} {share:.0%}, {partner} {1 - share:.0%}"]
    done = [one.described(drawn[one.key], row) for one in settings.of_batches]
    return (*caption, *filter(None, done))


if __name__ == "__main__":
    sys.exit(main())

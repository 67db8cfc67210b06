"""What batches hold: one specification, made from arguments in Python or from the settings of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Self

from shardmill.infra.arguments import at_least
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import StorageError, UsageError
from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import nested, validate
from shardmill.training.config import AugmentSettings, TrainConfig, image_size_of
from shardmill.training.config.data import DataSettings, ImageOptions, OrderOptions
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.models.spec import Fit, samples_read
from shardmill.training.order import Order, Passes, SequentialOrder
from shardmill.training.order.from_settings import SplitLabels, order_from_settings
from shardmill.training.order.passes import passes_of
from shardmill.training.reading.records.annotations import FOLLOWING, SplitObjects, load_objects
from shardmill.training.reading.records.columns import NO_FEATURES, FeatureColumns
from shardmill.training.reading.records.split_table import load_features

BATCH_SIZE = 32
IMAGE_SIZE = 224  # pixels
# A setting of [data] as errors name it, the one whose argument has another name, and one of [reading].
_SETTING = re.compile(
    rf"(?<![\w./-])(?:data\.(?P<name>{'|'.join(DataSettings.model_fields)})"
    rf"|(?P<same>global_batch_size)(?= = )|reading\.(?P<reading>{'|'.join(ReadingSettings.model_fields)}))\b"
)

# The arguments that are settings of [data] of the same name.
SETTINGS = ("seed", *OrderOptions.__annotations__, *ImageOptions.__annotations__)

LastBatchOption = Literal["pad", "drop", "partial"]


class ExampleOptions(OrderOptions, ImageOptions, total=False):
    """Arguments of ``Dataset.tf``, ``.batches`` and the others, with ``OrderOptions`` and ``ImageOptions``.

    Attributes:
        batch_size: examples a step, over all ranks together (default 32).
        image_size: height and width of the images (pixels, default 224), as one number or as two equal ones;
            None: whole images, which are not augmented, padded with zeros to the largest of each batch.
        training: shuffle and augment, instead of reading in stored order without augmentation; default:
            whether the split is "train".
        seed: the seed of order and augmentation (default 0).
        epoch: the epoch of every iteration (default: each iteration is the next epoch).
        first_epoch: the epoch of the first iteration (default 0), for a script that goes on after another.
        last_batch: how to treat a last batch that is not full: "drop" it (the default for training), "pad" it
            (with examples of weight 0) or "partial", a smaller batch (the default otherwise; not for
            ``.torch``, whose default is then "pad", as that of ``.jax``).
        augment: how training examples are augmented: settings, or a dict of those that differ from their
            defaults, nested or with dotted names (``erasing.probability``); True: as by default; False: not
            at all.
        features: names of further features of the records, which stand beside the images (default: none).
        ragged: for ``.tf``: lists of any length become ``tf.RaggedTensor`` (the default), or are padded.
    """

    batch_size: int
    image_size: int | Sequence[int] | None
    training: bool | None
    seed: int
    epoch: int | None
    first_epoch: int
    last_batch: LastBatchOption | None
    augment: bool | Mapping[str, Any] | AugmentSettings
    features: str | Sequence[str]
    ragged: bool


class BatchOptions(ImageOptions, total=False):
    """Arguments of ``BatchMaker`` and ``Examples``, with ``ImageOptions``.

    Attributes:
        image_size: height and width of the images (pixels); None: whole images, padded to the largest of each
            batch. It has no default.
        augment: how examples are augmented; None (the default): only as ``fit`` says. Whole images are not.
        features: the features that examples have (default: none). Those of objects follow the images if
            ``objects`` are given.
        objects: the objects in the images (default: none).
    """

    image_size: int | None
    augment: AugmentSettings | None
    features: FeatureColumns
    objects: SplitObjects | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSpec:
    """What the batches of a split hold, in which order, and how they are read, with every default filled in.

    Attributes:
        image_size: height and width of the images, S (pixels); None: whole images.
        data: the settings of the order, and of what is seen of images (``ImageOptions``).
        augment: how examples are augmented; None: only as ``data.fit`` says.
        reading: how records are read.
        samples: the samples of the images, which those of the records replace (``of_version``).
        features: further features of the records.
        objects: the objects in the images, which follow them; None: they are not read.
        training: in the order of training, instead of stored order.
        last_batch: how a last batch that is not full is treated; for "partial" ``data.last_batch`` is "pad".
        epoch: the epoch of every iteration; None: the next one each time.
        first_epoch: the epoch of the first iteration.
        ragged: lists of any length become ragged tensors of TensorFlow, or are padded.
    """

    image_size: int | None
    data: DataSettings = field(default_factory=DataSettings)
    augment: AugmentSettings | None = None
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    samples: SampleKind = SampleKind("uint8", 3)  # noqa: RUF009
    features: FeatureColumns = NO_FEATURES
    objects: SplitObjects | None = None
    training: bool = False
    last_batch: LastBatchOption = "pad"
    epoch: int | None = None
    first_epoch: int = 0
    ragged: bool = True

    def __post_init__(self) -> None:
        at_least(1, image_size=self.image_size)
        if self.image_size is None and self.augment is not None:
            raise UsageError(
                "images of different sizes cannot be augmented", "give an image_size, or augment=None"
            )

    @classmethod
    def of_settings(cls, config: TrainConfig, objects: SplitObjects | None = None) -> Self:
        """Return the training examples of a run.

        Args:
            config: the configuration of the run.
            objects: the objects in the images, where they are the labels.

        Raises:
            ConfigError: neither the settings nor the model say the size of the images.
        """
        return cls(
            image_size=image_size_of(config),
            data=config.data,
            augment=config.augment,
            reading=config.reading,
            objects=objects,
            training=True,
            last_batch=config.data.last_batch,
        )

    @classmethod
    def of_options(cls, spec: Self | None = None, **options: Any) -> Self:
        """Return ``spec``, or what ``BatchOptions`` in its place ask for.

        Raises:
            UsageError: both are given, ``image_size`` is missing, or whole images are to be augmented.
        """
        if spec is not None:
            if options:
                raise UsageError(f"spec and {', '.join(options)} are given", "give one or the other")
            return spec
        if "image_size" not in options:
            raise UsageError("image_size is missing", "give a number of pixels, or None for whole images")
        images = {name: options.pop(name) for name in ImageOptions.__annotations__ if name in options}
        return cls(data=validate(DataSettings, images, where="the arguments"), **options)

    def of_version(self, version: DatasetVersion) -> Self:
        """Return the same of the images of a version.

        Raises:
            ConfigError: they have other channels than ``data.image_channels``, or an augmentation has no
                meaning for them. UsageError: whole images are wanted with one channel.
        """
        samples = samples_read(version.manifest, self.data.image_channels)
        if self.image_size is None and samples.is_common and samples.channels != 3:
            raise UsageError(
                "whole images have three channels", "give an image_size, or leave out image_channels"
            )
        if self.augment is not None:
            self.augment.check_samples(samples)
        return replace(self, samples=samples)

    @classmethod
    def of_arguments(
        cls,
        version: DatasetVersion,
        split: str,
        given: ExampleOptions,
        reading: ReadingSettings,
        evaluation_last_batch: LastBatchOption = "partial",
        mixture: Mapping[str, Any] | None = None,
    ) -> Self:
        """Check the values of a caller's arguments, whose types were checked, and fill in the defaults.

        Args:
            version: the dataset version.
            split: the name of the split.
            given: the arguments.
            reading: how records are read.
            evaluation_last_batch: the default of ``last_batch`` without training.
            mixture: the settings of [data] about the shares of several data sets.

        Raises:
            UsageError: an argument is out of range, or there is no such feature.
            ConfigError: an option of the order or of augmentation is wrong.
        """
        size, batch_size = _side(given.get("image_size", IMAGE_SIZE)), given.get("batch_size", BATCH_SIZE)
        at_least(1, batch_size=batch_size)
        training = given.get("training")
        training = split == "train" if training is None else training
        last_batch = given.get("last_batch") or ("drop" if training else evaluation_last_batch)
        augment = _augment(given.get("augment", True))
        features = given.get("features", ())
        named = (features,) if isinstance(features, str) else tuple(features)
        settings = {name: value for name, value in given.items() if name in SETTINGS}
        settings |= (mixture or {}) if training else {}
        settings |= {"global_batch_size": batch_size, "last_batch": "drop" if last_batch == "drop" else "pad"}
        data = validate(DataSettings, settings, where="the arguments")
        if size is None:
            _check_whole(named, augment if training else None)
        spec = cls(
            image_size=size,
            data=data,
            augment=augment if training and size is not None else None,
            reading=reading,
            features=load_features(version, split, named) if named else NO_FEATURES,
            objects=load_objects(version, split, named) if FOLLOWING.intersection(named) else None,
            training=training,
            last_batch=last_batch,
            epoch=given.get("epoch"),
            first_epoch=given.get("first_epoch", 0),
            ragged=given.get("ragged", True),
        )
        return spec.of_version(version)

    @property
    def image_shape(self) -> tuple[int | None, int | None, int]:
        """Height, width (pixels) and channels of the images."""
        return self.image_size, self.image_size, self.samples.channels

    @property
    def pixel_bytes(self) -> int:
        """The size of a pixel while a batch is made (bytes): the luma comes from three channels."""
        return self.samples.decoded.pixel_bytes

    @property
    def fit(self) -> Fit:
        """How an image fills the square where no random window is cut: ``data.fit``, or "crop"."""
        return self.data.fit or "crop"

    @property
    def evaluated(self) -> ExampleSpec:
        """The same examples as evaluation sees them: without augmentation, read from their shards."""
        return replace(self, augment=None, reading=ReadingSettings(), training=False)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the order, besides the version and the split; JSON-able."""
        asked = self.data.model_fields_set.intersection(OrderOptions.__annotations__)
        order = {name: getattr(self.data, name) for name in sorted(asked)} | self.data.mixture
        return {"training": self.training, "seed": self.data.seed, **order}

    def order(self, table: SplitLabels, classes: Sequence[str]) -> Order:
        """Return the training order, or for evaluation the stored order.

        Args:
            table: the labels and shards of the split.
            classes: the name of each label.

        Raises:
            DataError: there are no records.
            ConfigError: a class is unknown.
        """
        if self.training:
            return order_from_settings(self.data, table, classes)
        return SequentialOrder(len(table), self.data.batch_size, self.data.last_batch)

    def passes(self, steps_per_epoch: int, epochs: int = 1, step: int = 0) -> Passes:
        """Return the steps of each iteration: ``epochs`` epochs, the first one from ``step`` on.

        Raises:
            UsageError: a number is out of range, or a partial last batch comes before another epoch.
        """
        if self.last_batch == "partial" and epochs != 1:
            raise UsageError(
                "last_batch='partial' works only when reading a single epoch",
                "use last_batch='drop' or 'pad'",
            )
        return passes_of(
            steps_per_epoch, epoch=self.epoch, first_epoch=self.first_epoch, epochs=epochs, step=step
        )


@contextmanager
def told_as_arguments() -> Iterator[None]:
    """Have errors in the block name the arguments of a caller in Python, in place of settings of a run.

    Raises:
        UsageError, StorageError: as the block does.
    """
    try:
        yield
    except (UsageError, StorageError) as error:
        message = _SETTING.sub(_argument_of, error.message)
        remedy = _SETTING.sub(partial(_argument_of, whose=" of open_dataset"), error.remedy or "")
        raise type(error)(message, remedy or None) from error


def _argument_of(setting: re.Match[str], whose: str = "") -> str:
    if setting["reading"]:
        return setting["reading"] + whose
    name = setting["name"] or setting["same"]
    return "batch_size" if name == "global_batch_size" else name.removeprefix("mixture_")


def _side(size: int | Sequence[int] | None) -> int | None:
    """Return height and width of the images from one number, or from two that are equal."""
    if size is None:
        return None
    sides = [size] if isinstance(size, int) else [*size]
    if len(sides) > 2 or len({*sides}) != 1:
        raise UsageError(
            f"image_size = {size!r}: images are square", "give one number of pixels, such as 224"
        )
    at_least(1, image_size=sides[0])
    return sides[0]


def _augment(augment: bool | Mapping[str, Any] | AugmentSettings) -> AugmentSettings | None:
    if isinstance(augment, bool):
        return AugmentSettings() if augment else None
    if isinstance(augment, AugmentSettings):
        return augment
    return validate(AugmentSettings, nested(augment, AugmentSettings), where="augment")


def _check_whole(features: Sequence[str], augment: AugmentSettings | None) -> None:
    """Check that nothing is asked of whole images that needs a size."""
    if augment is not None:
        augment.refuse_batched(
            "whole batches of images of many sizes cannot be augmented", "give an image_size, or turn it off"
        )
    if "image_size" in features:
        raise UsageError(
            "whole images have their size under the name image_size, which a feature has too",
            "give an image_size, or prepare the feature with another name",
        )

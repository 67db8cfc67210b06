"""Define and check the arguments for reading examples from Python that all frameworks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from infra.errors import UsageError
from training.augment.batch_parameters import refuse_batched
from training.config import AugmentSettings
from training.config.data import DataSettings
from training.models.spec import Fit
from training.order import Order, Passes
from training.order.from_settings import SplitLabels
from training.order.options import OrderOptions, data_settings_from, make_order
from training.order.passes import passes_of

BATCH_SIZE = 32
IMAGE_SIZE = 224  # pixels

LastBatchOption = Literal["pad", "drop", "partial"]


class ExampleOptions(OrderOptions, total=False):
    """Arguments of ``Dataset.tf``, ``.batches`` and ``.torch``, besides those of the order.

    Attributes:
        batch_size: examples a step, over all ranks together (default 32).
        image_size: height and width of the images (pixels, default 224); None: whole images, which are not
            augmented, padded with zeros to the largest of each batch.
        training: shuffle and augment, instead of reading in stored order without augmentation; default:
            whether the split is "train".
        seed: the seed of order and augmentation (default 0).
        epoch: the epoch of every iteration (default: each iteration is the next epoch).
        first_epoch: the epoch of the first iteration (default 0), for a script that goes on after another.
        last_batch: how to treat a last batch that is not full: "drop" it (the default for training), "pad" it
            (with examples of weight 0) or "partial", a smaller batch (the default otherwise; not for
            ``.torch``, whose default is then "pad").
        fit: what is seen of images without a random window: "crop" (the default), the central square; or
            "stretch", all of it, squeezed into a square.
        image_channels: 3 (the default), or 1 for grey images: the luma of coloured ones.
        augment: how training examples are augmented; the default is that of ``AugmentSettings``.
        features: names of further features of the records, which stand beside the images (default: none).
        ragged: for ``.tf``: lists of any length become ``tf.RaggedTensor`` (the default), or are padded.
    """

    batch_size: int
    image_size: int | None
    fit: Fit
    image_channels: Literal[1, 3]
    training: bool | None
    seed: int
    epoch: int | None
    first_epoch: int
    last_batch: LastBatchOption | None
    augment: AugmentSettings | None
    features: Sequence[str]
    ragged: bool


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """The examples to read, with every default filled in.

    Attributes:
        data: the settings of the order.
        order: the order of the split.
        training: the examples are for training.
        image_size: height and width of the images (pixels); None: whole images.
        augment: how examples are augmented; None: not at all, as whole images.
        last_batch: how a last batch that is not full is treated.
        epoch: the epoch of every iteration; None: the next one each time.
        first_epoch: the epoch of the first iteration.
        features: names of further features.
        ragged: lists of any length become ragged tensors, or are padded.
    """

    data: DataSettings
    order: Order
    training: bool
    image_size: int | None
    augment: AugmentSettings | None
    last_batch: LastBatchOption
    epoch: int | None = None
    first_epoch: int = 0
    features: tuple[str, ...] = ()
    ragged: bool = True

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

    def check_without_batched(self) -> None:
        """Check that the examples need no augmentation of whole batches.

        Raises:
            UsageError: RandAugment, MixUp or CutMix is on.
        """
        refuse_batched(self.augment)


def example_request_from(
    split: str,
    labels: SplitLabels,
    classes: list[str],
    options: ExampleOptions,
    evaluation_last_batch: LastBatchOption = "partial",
) -> ExampleRequest:
    """Check the arguments of a caller and fill in the defaults.

    Args:
        split: the name of the split.
        labels: the labels and shards of the split.
        classes: the name of each label.
        options: the arguments.
        evaluation_last_batch: the default of ``last_batch`` without training.

    Raises:
        UsageError: a size is below 1.
        ConfigError: an option is unknown or wrong.
        DataError: there are no records.
    """
    given = dict(options)
    batch_size = cast(int, given.pop("batch_size", BATCH_SIZE))
    image_size = cast("int | None", given.pop("image_size", IMAGE_SIZE))
    if batch_size < 1 or (image_size is not None and image_size < 1):
        raise UsageError(f"batch_size = {batch_size} and image_size = {image_size} must be at least 1")
    training = cast("bool | None", given.pop("training", None))
    training = split == "train" if training is None else training
    asked_last = cast("LastBatchOption | None", given.pop("last_batch", None))
    last_batch = asked_last or ("drop" if training else evaluation_last_batch)
    seed = cast(int, given.pop("seed", 0))
    augment = cast("AugmentSettings | None", given.pop("augment", None)) or AugmentSettings()
    if image_size is None and given.get("image_channels", 3) != 3:
        raise UsageError(
            "whole images have three channels", "give an image_size, or leave out image_channels"
        )
    epoch, first_epoch = given.pop("epoch", None), given.pop("first_epoch", 0)
    features = cast("Sequence[str]", given.pop("features", ()))
    named = (features,) if isinstance(features, str) else tuple(features)
    ragged = cast(bool, given.pop("ragged", True))
    data = data_settings_from(batch_size, last_batch, seed, cast(OrderOptions, given))
    order = make_order(data, labels, classes, training=training)
    own = augment if training else None
    if image_size is None:
        _refuse_batched_of_whole(own)
        own = None
        if "image_size" in named:
            raise UsageError(
                "whole images have their size under the name image_size, which a feature has too",
                "give an image_size, or prepare the feature with another name",
            )
    return ExampleRequest(
        data,
        order,
        training,
        image_size,
        own,
        last_batch,
        cast("int | None", epoch),
        cast(int, first_epoch),
        named,
        ragged,
    )


def _refuse_batched_of_whole(augment: AugmentSettings | None) -> None:
    """Check that whole images need no augmentation of whole batches.

    Raises:
        UsageError: RandAugment, MixUp or CutMix is on.
    """
    if augment is not None and augment.is_batched:
        raise UsageError(
            "augment.randaugment, augment.mixup and augment.cutmix need images of one size",
            "give an image_size, or turn them off",
        )

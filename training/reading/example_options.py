"""Define the arguments for reading examples from Python, and make one specification of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

from shardmill.infra.arguments import at_least
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.settings import validate
from shardmill.training.config import AugmentSettings
from shardmill.training.config.data import DataSettings
from shardmill.training.models.spec import Fit
from shardmill.training.order import Order, Passes
from shardmill.training.order.from_settings import SplitLabels
from shardmill.training.order.options import OrderOptions, data_settings_from, make_order, order_options
from shardmill.training.order.passes import passes_of

BATCH_SIZE = 32
IMAGE_SIZE = 224  # pixels
# A setting of [data] as errors name it, and the one whose argument has another name.
_SETTING = re.compile(r"\bdata\.(?P<name>[a-z_]+)|(?<![\w.])(?P<same>global_batch_size)(?= = )")

LastBatchOption = Literal["pad", "drop", "partial"]


class ExampleOptions(OrderOptions, total=False):
    """Arguments of ``Dataset.tf``, ``.batches`` and ``.torch``, besides those of the order.

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
            ``.torch``, whose default is then "pad").
        fit: what is seen of images without a random window: "crop" (the default), the central square; or
            "stretch", all of it, squeezed into a square.
        image_channels: 3 (the default), or 1 for grey images: the luma of coloured ones.
        augment: how training examples are augmented: settings, or a dict of those that differ from their
            defaults; True: as by default; False: not at all.
        features: names of further features of the records, which stand beside the images (default: none).
        ragged: for ``.tf``: lists of any length become ``tf.RaggedTensor`` (the default), or are padded.
    """

    batch_size: int
    image_size: int | Sequence[int] | None
    fit: Fit
    image_channels: Literal[1, 3]
    training: bool | None
    seed: int
    epoch: int | None
    first_epoch: int
    last_batch: LastBatchOption | None
    augment: bool | Mapping[str, Any] | AugmentSettings
    features: str | Sequence[str]
    ragged: bool


@dataclass(frozen=True, slots=True)
class ExampleSpec:
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
        identity: what determines the order, besides the version and the split; JSON-able.
    """

    data: DataSettings
    order: Order
    training: bool
    image_size: int | None
    augment: AugmentSettings | None
    last_batch: LastBatchOption
    epoch: int | None
    first_epoch: int
    features: tuple[str, ...]
    ragged: bool
    identity: Mapping[str, Any]

    @property
    def fit(self) -> Fit:
        """What is seen of images without a random window."""
        return self.data.fit or "crop"

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
        if self.augment is not None:
            self.augment.refuse_batched(
                "whole batches are augmented with .tf and .torch only",
                "read with one of these, or turn it off and apply it in your own training code",
            )


@contextmanager
def told_as_arguments() -> Iterator[None]:
    """Have errors in the block name the arguments of a caller in Python, in place of settings of a run.

    Raises:
        ConfigError, UsageError: as the block does.
    """
    try:
        yield
    except (ConfigError, UsageError) as error:
        message, remedy = (_SETTING.sub(_argument_of, text) for text in (error.message, error.remedy or ""))
        raise type(error)(message, remedy or None) from error


def _argument_of(setting: re.Match[str]) -> str:
    name = setting["name"] or setting["same"]
    return "batch_size" if name == "global_batch_size" else name


def example_spec(
    split: str,
    labels: SplitLabels,
    classes: list[str],
    options: ExampleOptions,
    evaluation_last_batch: LastBatchOption = "partial",
) -> ExampleSpec:
    """Check the values of a caller's arguments, whose types were checked, and fill in the defaults.

    Args:
        split: the name of the split.
        labels: the labels and shards of the split.
        classes: the name of each label.
        options: the arguments.
        evaluation_last_batch: the default of ``last_batch`` without training.

    Raises:
        UsageError: an argument is out of range.
        ConfigError: an option of the order or of augmentation is wrong.
        DataError: there are no records.
    """
    given = options
    batch_size, image_size = given.get("batch_size", BATCH_SIZE), _side(given.get("image_size", IMAGE_SIZE))
    at_least(1, batch_size=batch_size)
    training = given.get("training")
    training = split == "train" if training is None else training
    last_batch = given.get("last_batch")
    if last_batch is None:
        last_batch = "drop" if training else evaluation_last_batch
    augment = _augment(given.get("augment", True))
    features = given.get("features", ())
    named = (features,) if isinstance(features, str) else tuple(features)
    if image_size is None:
        _check_whole(given, named, augment if training else None)
    seed, of_order = given.get("seed", 0), order_options(given)
    others = {name: given[name] for name in ("fit", "image_channels") if name in given}
    data = data_settings_from(batch_size, last_batch, seed, cast(OrderOptions, {**of_order, **others}))
    return ExampleSpec(
        data=data,
        order=make_order(data, labels, classes, training=training),
        training=training,
        image_size=image_size,
        augment=augment if training and image_size is not None else None,
        last_batch=last_batch,
        epoch=given.get("epoch"),
        first_epoch=given.get("first_epoch", 0),
        features=named,
        ragged=given.get("ragged", True),
        identity={"training": training, "seed": seed, **of_order},
    )


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
    return validate(AugmentSettings, augment, where="augment")


def _check_whole(given: ExampleOptions, features: Sequence[str], augment: AugmentSettings | None) -> None:
    """Check that nothing is asked of whole images that needs a size."""
    if given.get("image_channels", 3) != 3:
        raise UsageError(
            "whole images have three channels", "give an image_size, or leave out image_channels"
        )
    if augment is not None:
        augment.refuse_batched(
            "whole batches of images of many sizes cannot be augmented", "give an image_size, or turn it off"
        )
    if "image_size" in features:
        raise UsageError(
            "whole images have their size under the name image_size, which a feature has too",
            "give an image_size, or prepare the feature with another name",
        )

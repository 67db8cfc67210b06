"""The images, labels and boxes of a batch of any framework, as numpy arrays. No framework is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.dataset.outlines import DRAWN, Outlines
from shardmill.infra.errors import UsageError
from shardmill.infra.format.features import MISSING, KeyPoints
from shardmill.infra.format.known_features import BOXES, OBJECT_LABELS
from shardmill.infra.readable import first_of
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.records.annotations import NO_OBJECT

Array = npt.NDArray[Any]

_NAMES = {
    "images": ("images", "image"),
    "labels": ("labels", "label"),
    "weights": ("weights", "weight"),
    "sizes": ("sizes", "size", "image_size"),
}
_CHANNELS = (1, 3)
_OUTSIDE = 0.1  # share of the range by which values may lie outside of it: resizing overshoots a little


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a batch, as its framework has them.

    Attributes:
        images: [b, H, W, C], [b, C, H, W], or a list of [H, W, C] or [C, H, W].
        labels, weights: of each example; None: there are none.
        sizes: height and width of each image within ``images``.
        beside: the features, by name.
        objects: with ``boxes`` and ``classes``.
        title: names the batch.
    """

    images: Any
    labels: Any = None
    weights: Any = None
    sizes: Any = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    objects: Any = None
    title: str = ""

    def outlines(self, row: int, known: KeyPoints | None) -> Outlines:
        """Find the objects of an example; ``known`` describes the key points of the dataset.

        Raises:
            UsageError: boxes are not relative to their image.
        """
        found = {name: _list_of(self.beside, row, name) for name in DRAWN if name in self.beside}
        if self.objects is not None:
            objects = self.objects if isinstance(self.objects, Mapping) else self.objects._asdict()
            labels = array_of(objects["classes"][row], "classes")
            found[BOXES] = array_of(objects["boxes"][row], "boxes")[labels != NO_OBJECT]
            found[OBJECT_LABELS] = labels[labels != NO_OBJECT]
        boxes = found.get(BOXES, np.zeros(0))
        if boxes.size and not (boxes.min() >= -_OUTSIDE and boxes.max() <= 1 + _OUTSIDE):
            raise UsageError(
                f"boxes reach from {boxes.min():.4g} to {boxes.max():.4g}",
                "give the top, left, bottom and right edge, relative to the image, 0 to 1",
            )
        return Outlines.of(found, known)


def parts_of(batch: Any) -> Parts:
    """Find the parts of a batch.

    Raises:
        UsageError: it is no batch of images.
    """
    if isinstance(batch, Mapping):
        return _of_dict(batch)
    if hasattr(batch, "images") and hasattr(batch, "labels"):
        names = ("weights", "sizes", "objects")
        step = f"batch of epoch {batch.epoch}, step {batch.step}" if hasattr(batch, "step") else ""
        found = {name: getattr(batch, name, None) for name in names}
        return Parts(batch.images, batch.labels, beside=getattr(batch, "features", {}), title=step, **found)
    if isinstance(batch, tuple | list) and 2 <= len(batch) <= 3 and _is_images(batch[0]):
        labels, *weights = batch[1:]
        is_objects = isinstance(labels, Mapping)
        return replace(
            parts_of(batch[0]),
            labels=None if is_objects else labels,
            objects=labels if is_objects else None,
            weights=weights[0] if weights else None,
        )
    if _is_images(batch):
        return Parts(batch)
    shape = f" of the shape {[*batch.shape]}" if hasattr(batch, "shape") else ""
    raise UsageError(
        f"a {type(batch).__name__}{shape} is no batch of images",
        "give one batch, such as next(iter(dataset.batches('train'))): images [b, H, W, C] or [b, C, H, W]",
    )


def _of_dict(batch: Mapping[str, Any]) -> Parts:
    found: dict[str, Any] = {}
    for part, names in _NAMES.items():
        there = [name for name in names if name in batch]
        if len(there) > 1 or (not there and part == "images"):
            keys = first_of([repr(name) for name in batch], 8) or "no key"
            raise UsageError(
                f"a dict with {keys} is no batch of images",
                f"give its {part} as one of {' or '.join(repr(name) for name in names)}",
            )
        found[part] = batch[there[0]] if there else None
    if isinstance(found["labels"], Mapping):
        found["objects"] = found.pop("labels")
    features = batch.get("features")
    beside = {**batch, **features} if isinstance(features, Mapping) else batch
    return Parts(beside=beside, **found)


def _is_images(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    if isinstance(value, tuple | list):
        return bool(value) and all(len(getattr(one, "shape", ())) == 3 for one in value)
    return len(getattr(value, "shape", ())) == 4


def array_of(value: Any, name: str) -> Array:
    """Return an array or tensor of any framework and device as numpy; bfloat16 as float32.

    Raises:
        UsageError: it has no values, or not as a dense array.
    """
    try:
        if hasattr(
            value, "detach"
        ):  # PyTorch: numpy takes neither gradients, nor other devices, nor bfloat16
            value = value.detach().cpu()
            value = value.float() if value.is_floating_point() else value
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype.kind == "V" else array
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UsageError(
            f"{name} is a {type(value).__name__} that numpy cannot read: {error}",
            "give a batch of arrays or tensors that have been computed",
        ) from error


def _list_of(beside: Mapping[str, Any], row: int, name: str) -> Array:
    """Return the list of an example: of padded, ragged or plain lists."""
    values = beside[name]
    if hasattr(values, "lengths"):
        return array_of(values.values[row], name)[: int(values.lengths[row])]
    found = array_of(values[row], name)
    missing = np.isnan(found) if found.dtype.kind == "f" else found == MISSING["int64"]
    return found[~missing]


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values of black and of white: float64 [1], or one a channel [C]."""

    black: Array
    white: Array

    @classmethod
    def asked(
        cls,
        value_range: Sequence[float] | None,
        mean: float | Sequence[float] | None,
        std: float | Sequence[float] | None,
    ) -> ValueRange | None:
        """Return the range that a caller gives; None: none.

        Raises:
            UsageError: arguments contradict each other, or are no range.
        """
        if (mean is None) != (std is None) or (value_range is not None and mean is not None):
            raise UsageError(
                f"value_range = {value_range}, mean = {mean}, std = {std} are no range",
                "give value_range alone, or mean and std",
            )
        if value_range is None and mean is None:
            return None
        if value_range is None:
            shift, scale = (np.atleast_1d(np.asarray(value, np.float64)) for value in (mean, std))
            with np.errstate(all="ignore"):
                found = cls(-shift / scale, (1 - shift) / scale)
        else:
            if len(value_range) != 2:
                raise UsageError(f"value_range = {value_range} has not two values", "give (black, white)")
            found = cls(*(np.array([value], np.float64) for value in value_range))
        if not (np.isfinite(found.black).all() and np.isfinite(found.white).all() and found._has_width()):
            raise UsageError(
                f"value_range = {value_range}, mean = {mean}, std = {std} are no range",
                "give finite numbers, white other than black, and std other than 0",
            )
        return found

    def _has_width(self) -> bool:
        return bool((self.black != self.white).all())

    @classmethod
    def told(cls, images: Sequence[Array]) -> ValueRange:
        """Return the range that the type and the values of images tell.

        Raises:
            UsageError: nothing tells it.
        """
        kind = images[0].dtype if images else np.dtype(np.uint8)
        numbers = [image[np.isfinite(image)] for image in images]
        low = min((float(some.min()) for some in numbers if some.size), default=0.0)
        high = max((float(some.max()) for some in numbers if some.size), default=0.0)
        white = 255 if kind.kind in "iu" else 1
        if low < 0 or high > white:
            raise UsageError(
                f"images are {kind} from {low:.4g} to {high:.4g}, and nothing tells which is black or white",
                "give value_range, such as (0, 255) or (-1, 1), or mean and std as they were normalised",
            )
        return cls(np.zeros(1), np.full(1, float(white)))

    def pixels(self, image: Array) -> Pixels:
        """Return an image of this range, [H, W, C], as uint8.

        Raises:
            UsageError: values lie outside, or there is not one a channel.
        """
        if len(self.black) not in (1, image.shape[2]):
            raise UsageError(
                f"mean and std have {len(self.black)} values, and images have {image.shape[2]} channels",
                "give one number, or one a channel",
            )
        if image.dtype == np.uint8 and (self.black == 0).all() and (self.white == 255).all():
            return np.ascontiguousarray(image)
        shares = (image.astype(np.float64) - self.black) / (self.white - self.black)
        if shares.size and not (shares.min() >= -_OUTSIDE and shares.max() <= 1 + _OUTSIDE):
            raise UsageError(
                f"values of images, {image.min():.4g} to {image.max():.4g}, lie outside of the range",
                "mend value_range, or mean and std: they say which values are black and white",
            )
        pixels: Pixels = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
        return pixels


def images_of(parts: Parts, count: int, channels: int | None = None) -> list[Array]:
    """Return the first images of a batch: [h, w, C] each, without padding around whole images.

    Args:
        parts: the batch.
        count: the number of images.
        channels: their channels; None: one or three.

    Raises:
        UsageError: nothing tells which axis has the channels.
    """
    taken = parts.images[:count]
    is_torch = any(hasattr(one, "detach") for one in (taken, *taken[:1]))
    images = [array_of(image, "images") for image in taken]
    for image in images:
        if image.ndim != 3 or not image.size:
            raise UsageError(
                f"an image of the shape {[*image.shape]} has no pixels, or not three axes",
                "give a batch of images: [b, H, W, C] or [b, C, H, W]",
            )
    if images and _are_channels_first(images, is_torch, _CHANNELS if channels is None else (channels,)):
        images = [image.transpose(1, 2, 0) for image in images]
    if parts.sizes is not None:
        sizes = array_of(parts.sizes[:count], "sizes").astype(np.int64).tolist()
        images = [image[:height, :width] for image, (height, width) in zip(images, sizes, strict=True)]
    return images


def _are_channels_first(images: Sequence[Array], is_torch: bool, channels: tuple[int, ...]) -> bool:
    first = all(image.shape[0] in channels for image in images)
    last = all(image.shape[2] in channels for image in images)
    if first == last:
        shapes = first_of([str([*image.shape]) for image in images[:1]], 1)
        if not first:
            raise UsageError(
                f"images have the shape {shapes}, without an axis of one or three channels",
                "give them grey or in RGB: [b, H, W, C] or [b, C, H, W]; or name the dataset that has others",
            )
        return is_torch
    return first

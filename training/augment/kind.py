"""What an augmentation is: its settings, what it draws for each example, and how it is applied.

An augmentation is one file of ``shardmill.training.augment.kinds``. Its class says of itself at which stage
it works, whether boxes and masks can follow it, and which random streams it takes; everything else derives
from that. A new file is found by itself: its fields appear in the settings [train.augment], and every
pipeline applies it, or refuses it by name. A plugin is such a class in another distribution
(``shardmill.training.augment.settings``).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from shardmill.infra.digests import sha256_hex
from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64
from shardmill.training.discovery import classes_in
from shardmill.training.draws import Purpose, key_of

F = TypeVar("F", bound=Settings)
Sizes = npt.NDArray[np.integer]
Windows = npt.NDArray[np.int32]  # [B, 4]: y, x, height, width of the visible part of a stored image (pixels)
Boxes = npt.NDArray[np.floating]  # [..., 4]: top, left, bottom, right edge, relative to the image, 0 to 1
Points = npt.NDArray[np.floating]  # [..., 2]: y, x, relative to the image: 0 to 1 within it
Array = npt.NDArray[Any]
Arrays = dict[str, Array]  # the parameters of a batch by name: [B, ...] each


class Library:
    """A library that is imported when it is first used, so that settings load without it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


cv2, tf, torch = Library("cv2"), Library("tensorflow"), Library("torch")


class Augmentation(ABC, Generic[F]):
    """One way in which a training example may differ from its stored image.

    Attributes:
        Fields: its fields of [train.augment]; of a plugin those of the table of its name there.
        turn: augmentations of a stage are applied, and their fields listed, in rising order of this number.
        streams: the random streams that it draws from, under the key of an example. Windows and images share
            it, so their streams must not meet; a test pins them, and tests use 800 and 900. A plugin has keys
            of its own, and need not name them.
        objects_follow: whether boxes and masks can follow what it does to an image.
        settings: the values of its fields.
        plugin: the name of the plugin that it is; empty: it comes with Shardmill.
    """

    Fields: ClassVar[type[Settings]]
    turn: ClassVar[int]
    streams: ClassVar[range]
    objects_follow: ClassVar[bool] = False
    plugin: str = ""

    def __init__(self, settings: F) -> None:
        self.settings = settings

    @property
    def key(self) -> str:
        """Its name among the parameters of a batch, which no other augmentation has."""
        return f"plugin {self.plugin}" if self.plugin else type(self).__name__

    def own_keys(self, keys: U64) -> U64:
        """Return the keys that it draws from, of the keys of the examples; a plugin has others."""
        if not self.plugin:
            return keys
        return key_of(Purpose.PLUGIN, int(sha256_hex(self.plugin.encode())[:16], 16), keys)

    def unfit(self, samples: SampleKind) -> str:
        """Return the settings that have no meaning for images of such samples; empty: all have one.

        Args:
            samples: those of images that are not common.
        """
        return self.name

    @property
    @abstractmethod
    def name(self) -> str:
        """The setting that turned it on, for errors: ``augment.mixup``."""

    @property
    @abstractmethod
    def is_on(self) -> bool:
        """Whether the settings turn it on."""


class WindowAugmentation(Augmentation[F]):
    """Chooses the window of each stored image that is decoded. The first one that is on counts."""

    objects_follow: ClassVar[bool] = True

    def unfit(self, samples: SampleKind) -> str:
        """Say that windows have a meaning for all images."""
        return ""

    @abstractmethod
    def windows(self, heights: Sizes, widths: Sizes, keys: U64) -> Windows:
        """Draw the windows of stored images of these heights and widths [B] (pixels): int32 [B, 4]."""


class ImageAugmentation(Augmentation[F]):
    """Changes each image alone, after its window was cut and resized to S × S pixels, in numpy or OpenCV.

    One that boxes and masks can follow sets ``objects_follow``, and overrides ``move_points`` and
    ``move_mask`` if it moves pixels; one that has a meaning for any dtype and number of channels says so in
    ``unfit``. One that TensorFlow can apply to each image with the same result has ``apply_in_graph`` too,
    and sets ``is_in_graph``.
    """

    is_in_graph: ClassVar[bool] = False

    @abstractmethod
    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the parameters of the examples with these keys [B]; S = ``image_size``."""

    @abstractmethod
    def apply(self, image: Array, drawn: Arrays, row: int) -> None:
        """Change an image in place, with the parameters of row ``row`` of the batch.

        Args:
            image: uint8 [S, S, 3], or of what ``unfit`` allows [S, S, C].
            drawn: the parameters of the batch.
            row: the row of the image.
        """

    def mirrors(self, drawn: Arrays, row: int) -> bool:
        """Tell whether it mirrors row ``row`` from left to right and does nothing else, as resizing can."""
        return False

    def apply_in_graph(self, image: Any, drawn: dict[str, Any]) -> Any:
        """Return an image of TensorFlow, uint8 [S, S, 3], changed with the parameters of its row."""
        raise NotImplementedError(type(self).__name__)

    def move_points(self, points: Points, drawn: Arrays) -> Points:
        """Return the points [B, M, 2] of a batch, moved with their images. Mirrors are told by it."""
        return points

    def move_boxes(self, boxes: Boxes, drawn: Arrays) -> Boxes:
        """Return the boxes [B, M, 4] of a batch, moved with their images: around their corners."""
        corners = self.move_points(boxes[..., [0, 1, 0, 3, 2, 3, 2, 1]].reshape(len(boxes), -1, 2), drawn)
        corners = corners.reshape(*boxes.shape[:2], 4, 2)
        return np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=-1)

    @classmethod
    def moves_points(cls) -> bool:
        """Tell whether points can follow: whatever moves boxes or masks must say how points move."""
        others = (cls.move_boxes, cls.move_mask)
        return cls.move_points is not ImageAugmentation.move_points or others == (
            ImageAugmentation.move_boxes,
            ImageAugmentation.move_mask,
        )

    def move_mask(self, mask: Array, drawn: Arrays, row: int) -> Array:
        """Return the mask [S, S] of row ``row`` of the batch, moved with its image."""
        return mask


class BatchAugmentation(Augmentation[F]):
    """Changes whole batches on the device that trains. Batches as numpy arrays cannot have it.

    The parameters are drawn on the host, like all others, and travel with the batch. So the device needs no
    random numbers, and every device gives the same result.

    Attributes:
        mixes: rows 2k and 2k + 1 of a batch are mixed with each other, images and labels. The parameters have
            ``own_share``, float32 [B]: the share of the row's own label; its partner's label has the rest.
    """

    mixes: ClassVar[bool] = False

    @abstractmethod
    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the parameters of the examples with these keys [B]; only int32 and float32."""

    @abstractmethod
    def tensorflow(self, *, deterministic: bool) -> Any:
        """Return a function (images [b, S, S, C], parameters as tensors) -> images, for graphs.

        ``deterministic``: operations that are not deterministic must not be used.
        """

    @abstractmethod
    def torch(self, images: Any, drawn: Arrays) -> Any:
        """Return augmented images [b, C, S, S], uint8 or floating as given, on their device.

        Raises:
            UsageError: it cannot augment images of this type.
            EnvironmentFault: a library that it needs is not installed.
        """

    def described(self, drawn: Arrays, row: int) -> str:
        """Return what was done to an example, for captions; empty if nothing needs to be said."""
        return ""


STAGES: Final = (WindowAugmentation, ImageAugmentation, BatchAugmentation)


@cache
def kinds() -> tuple[type[Augmentation[Any]], ...]:
    """Return all augmentations, in the order of their stages and turns.

    Raises:
        ValueError: two of them draw from the same stream under the same key.
    """
    found = classes_in("shardmill.training.augment.kinds", Augmentation)
    by_stage = [sorted((kind for kind in found if issubclass(kind, stage)), key=_turn) for stage in STAGES]
    _check_streams([*by_stage[0], *by_stage[1]])  # these share the key of an image
    _check_streams(by_stage[2])
    return tuple(kind for stage in by_stage for kind in stage)


def _turn(kind: type[Augmentation[Any]]) -> int:
    return kind.turn


def _check_streams(found: Sequence[type[Augmentation[Any]]]) -> None:
    taken: dict[int, str] = {}
    for kind in found:
        for stream in kind.streams:
            if stream in taken:
                raise ValueError(f"{kind.__name__} and {taken[stream]} draw from the stream {stream}")
            taken[stream] = kind.__name__

"""The images and objects that annotation files name, and how they are recognised by their first bytes."""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import pyarrow as pa

from shardmill.beam_jobs.reasons import BROKEN_ROW
from shardmill.beam_jobs.sources.annotations.shapes import LARGEST, Shape, Shapes, box_around
from shardmill.beam_jobs.sources.recognition.glance import Glance
from shardmill.beam_jobs.sources.roles import split_of_name
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import KeyPoints

# Why an object is not in the record of its image; the first three are found once all are collected.
NO_AREA, OUTSIDE, DROPPED = "without an area", "outside of their image", "of a dropped class"
NO_BOX, NO_NAME = "without a box of four numbers", "without a class"

Box = tuple[float, float, float, float]  # ymin, xmin, ymax, xmax (pixels)


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """An image that an annotation file names.

    Attributes:
        row_uri: URI of the annotation itself.
        who: the annotation, for people: "image 17 of instances.json".
        path: path of the image, relative to the source; None if it names none.
        split: that the settings give, or None.
        size: height and width of the image that was annotated (pixels); None if it is not told.
        fault: why the annotation cannot be used, in words, or None.
        reason: of shardmill.beam_jobs.reasons, for a faulty entry.
        group: key of the images that stay in one split, or None.
        namesake: path without an ending of the image that is named like the annotation file itself, if such
            an image comes before that of ``path``.
        ends: paths of another machine; if ``path`` is no file, the only one that ends most like one of them.
        if_missing: what to say if there is none of these, or None.
    """

    row_uri: str
    who: str
    path: str | None
    split: str | None = None
    size: tuple[int, int] | None = None
    fault: str | None = None
    reason: str = BROKEN_ROW
    group: str | None = None
    namesake: str | None = None
    ends: tuple[str, ...] = ()
    if_missing: str | None = None


@dataclass
class Annotations:
    """Images and their objects, in the order in which they were added.

    Attributes:
        images: the images.
        of_image: number of the image of each object.
        boxes: edges of each object, four numbers (Box) after four numbers.
        names, crowds: of each object.
        shapes: polygons, key points and oriented boxes of objects that have some.
        num_left_out: objects of each image that could not be added.
        left_out: why -> how many objects.
        first: why -> the first of these objects, for people, where the kind of source tells it.
        remedy: what to do about these objects, or None.
        skipped: what else is left out, such as "caption" -> why -> how many, and the first for people.
        warnings: about the annotations, a sentence each.
        features: columns of further features, a row an image; None if there are none.
    """

    images: list[AnnotatedImage] = field(default_factory=list)
    of_image: array[int] = field(default_factory=lambda: array("q"))
    boxes: array[float] = field(default_factory=lambda: array("d"))
    names: list[str] = field(default_factory=list)
    crowds: array[int] = field(default_factory=lambda: array("b"))
    shapes: Shapes = field(default_factory=Shapes)
    num_left_out: Counter[int] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    remedy: str | None = None
    skipped: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    features: pa.Table | None = None

    def add_image(self, image: AnnotatedImage) -> int:
        """Add an image; returns its number."""
        self.images.append(image)
        return len(self.images) - 1

    def name_points(self, name: str, points: KeyPoints) -> None:
        """Say what the key points of the objects of a class are, before these are added.

        ``shardmill.infra.format.features.partners_by_name`` finds partners by ``left`` and ``right``.

        Raises:
            ConfigError: the class has other key points already.
        """
        if self.shapes.key_points.setdefault(name, points) != points:
            raise ConfigError(
                f"annotation files give the class {name!r} different key points",
                "give it the same names and skeleton in all of them",
            )

    def add_object(
        self,
        image: int,
        box: Box | None,
        name: str | None,
        *,
        is_crowd: bool = False,
        shape: Shape | None = None,
        who: str | None = None,
    ) -> None:
        """Add an object of an image, or count it if it lacks its box or class.

        Args:
            image: number of the image.
            box: edges of the object (pixels, or relative where the source has relative boxes); None: those of
                its shape.
            name: class of the object; None if it has none.
            is_crowd: it is a group of objects, or a difficult one.
            shape: polygon, key points or oriented box, in the unit of boxes; broken parts are counted.
            who: the object, for people: "annotation 7 of instances.json"; names the first of each fault.
        """
        if shape is not None and name is not None:
            shape = self.shapes.sound(shape, name, who)
            box = box_around(shape) if box is None else box
        if box is None or name is None:
            self.leave_out(image, NO_BOX if box is None else NO_NAME, who)
            return
        if shape is not None:
            self.shapes.add(len(self.names), shape)
        self.of_image.append(image)
        self.boxes.extend(box)
        self.names.append(sys.intern(name))
        self.crowds.append(int(is_crowd))

    def leave_out(self, image: int | None, why: str, who: str | None = None) -> None:
        """Count an object that is not added; ``image`` is None if it is of no image, ``who`` names it."""
        self.left_out[why] += 1
        if who is not None:
            self.first.setdefault(why, who)
        if image is not None:
            self.num_left_out[image] += 1

    def skip(self, what: str, why: str, who: str) -> None:
        """Count something that is left out and is no object; ``who`` names it."""
        counts = self.skipped.setdefault(what, {})
        count, first = counts.get(why, (0, who))
        counts[why] = count + 1, first

    def add_features(self, features: pa.Table) -> None:
        """Add columns of further features, a row an image, once all images are added."""
        if self.features is not None:
            for field_, values in zip(self.features.schema, self.features.columns, strict=True):
                features = features.append_column(field_, values)
        self.features = features


def box_of(values: object) -> tuple[float, float, float, float] | None:
    """Return four finite numbers of a list as they are, or None if it is something else."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 4:
        return None
    numbers = [float(value) for value in values if isinstance(value, int | float) and abs(value) < LARGEST]
    if len(numbers) != 4:
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3]


def edges_of_size(values: object) -> Box | None:
    """Return the edges of a box of left, top, width and height, or None if it is something else."""
    box = box_of(values)
    if box is None:
        return None
    left, top, width, height = box
    return top, left, top + height, left + width


def size_of(height: object, width: object) -> tuple[int, int] | None:
    """Return height and width if both are positive whole numbers, else None; 12.0 is one."""
    height, width = (
        int(side) if isinstance(side, float) and side.is_integer() else side for side in (height, width)
    )
    is_size = all(
        isinstance(side, int) and not isinstance(side, bool) and 0 < side < 1 << 31
        for side in (height, width)
    )
    return (height, width) if is_size else None  # type: ignore[return-value]


def is_text(value: object) -> bool:
    """Tell whether a value of JSON is a text; half a character of a pair is none."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


HEAD_BYTES = 1 << 16


MAX_FILES = 20  # that are looked into


READINGS = 4  # files or folders that are named where several fit


_YEAR = re.compile(r"(?<=[A-Za-z])[0-9]+")


def split_with_year(uri: str) -> str | None:
    """Return the split that the name of a file or of its folder gives, also with a year: ``train2017``."""
    return split_of_name(_YEAR.sub("", uri))


def different_splits(uris: Sequence[str]) -> list[str] | None:
    """Return the split that each of these names gives; None unless all give one, and no two the same."""
    splits = [split for uri in uris if (split := split_with_year(uri)) is not None]
    return splits if len(set(splits)) == len(uris) else None


def beginning_with(pattern: re.Pattern[bytes], glance: Glance, ending: str) -> dict[str, bytes]:
    """Return the files that begin so, with their first bytes; of many files some of each folder."""
    of_folder: dict[str, list[str]] = {}
    for uri in glance.ending_in(ending):
        of_folder.setdefault(uri.rpartition("/")[0], []).append(uri)
    some = [uri for uris in zip_longest(*of_folder.values()) for uri in uris if uri is not None]
    heads = {uri: glance.head(uri, HEAD_BYTES) for uri in sorted(some[:MAX_FILES])}
    return {uri: head for uri, head in heads.items() if pattern.search(head)}


def folder_of_image(name: re.Match[bytes] | None, annotation: str, glance: Glance) -> str:
    """Return the folder of the image of this name, the nearest to its annotation if there are several.

    Nearest is one whose name gives the same split, then one that shares most folders.

    It is "" for the source itself, or if the image is not found.
    """
    if name is None:
        return ""
    return folder_of_path(name[1].decode("utf-8", "replace"), annotation, glance)


def folder_of_path(path: str, annotation: str, glance: Glance) -> str:
    """Return the folder that a path begins in, as ``folder_of_image`` does."""
    path = path.removeprefix("./")
    tail = f"/{path}"
    seen = [f"/{uri}".removesuffix(tail)[1:] for uri in glance.images if f"/{uri}".endswith(tail)]
    if seen:
        shared = set(annotation.split("/"))
        split = split_with_year(annotation)
        return max(
            seen,
            key=lambda folder: (
                split is not None and split_with_year(folder) == split,
                len(shared.intersection(folder.split("/"))),
            ),
        )
    # A glance sees some of the files of a large folder.
    folders = dict.fromkeys(uri.rpartition("/")[0] for uri in glance.images)
    return next((folder for folder in folders if folder and glance.head(f"{folder}/{path}", 1)), "")


def folder_of_stem(stem: str, annotation: str, glance: Glance) -> str:
    """Return the folder of the image of this name, whose ending may be missing; "" if it is not found."""
    endings = dict.fromkeys(image[image.rfind(".") :] for image in glance.images)
    names = [stem, *(f"{stem}{ending}" for ending in endings)]
    return next((folder for name in names if (folder := folder_of_path(name, annotation, glance))), "")


_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\|file://")


def ends_of(name: object) -> tuple[str, ...]:
    """Return what the path of an image may end in (``AnnotatedImage.ends``): a path of another machine."""
    return (name,) if isinstance(name, str) and _ABSOLUTE.match(name) else ()

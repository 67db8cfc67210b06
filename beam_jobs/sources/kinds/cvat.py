"""Objects in images, as the XML files of CVAT describe them ("CVAT for images 1.1", "for video"): one a task.

The format: https://docs.cvat.ai/docs/manual/advanced/xml_format. Boxes, turned boxes, polygons, ellipses,
masks and skeletons are read; points without names are key points if all shapes of their class have as many.
Tags are the feature ``tags``, lines and cuboids are counted. ``subset`` gives the split. Of the tracks of a
video each frame with a shape is an image, ``frame_000012.PNG`` as CVAT exports it; all stay in one split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from xml.etree import ElementTree

import numpy as np

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, Annotations, Box, size_of
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.annotations.shapes import MOST_MASK_PIXELS, Points, Shape, points_of
from shardmill.beam_jobs.sources.annotations.tools.drawn import (
    LEFT_OUT,
    DrawnObjects,
    NamedPoints,
    ellipse,
    numbers_in,
    turned_box,
)
from shardmill.beam_jobs.sources.annotations.tools.recognising import recognise_documents
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.errors import ConfigError

BAD_NUMBERS, OTHER_COUNT = "without the numbers of their shape", "of another number of points than others"

_CVAT = re.compile(rb"\A\s*(<\?xml[^>]*>\s*)?<annotations\b")
_NO_OBJECTS = ("tag", "polyline", "cuboid")
_OF_FRAMES = (".PNG", ".png", ".jpg", ".jpeg", ".JPG")
_MOST_DIGITS = 9  # of the number of a frame

Outline = tuple[Box | None, Shape | None]


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that CVAT's files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: an annotation file is not of this format.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        drawn = DrawnObjects("tags")
        read = [(table, _images(_root(table))) for table in tables]
        counts = _numbers_of_points(image for _, images in read for image in images)
        for table, images in read:
            for at, image in enumerate(images, 1):
                _add_image(found, drawn, table, at, image, counts)
        drawn.finish(found)

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the XML file that describes images as CVAT does, or several whose names give splits."""
    return recognise_documents("cvat", "as CVAT does", _CVAT, ".xml", glance, settings)


def _root(table: AnnotationTable) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(table.read())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ConfigError(f"the annotation file {table.name} is no XML: {error}") from error
    if root.tag != "annotations" or not _images(root):
        raise ConfigError(
            f"the annotation file {table.name} has no images", "export the task as 'CVAT for images 1.1'"
        )
    return root


def _images(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the images of a file; of tracks, the frames in which they have a shape, as such images."""
    if (images := root.findall("image")) or root.find("track") is None:
        return images
    sides = {
        name: root.findtext(f"meta/task/original_size/{name}") or root.findtext(f"meta/original_size/{name}")
        for name in ("width", "height")
    }
    size = {name: side.strip() for name, side in sides.items() if side}
    frames: dict[int, ElementTree.Element] = {}
    for track in root.iterfind("track"):
        for shape in track:
            if not (number := shape.get("frame", "")).isdecimal() or len(number) > _MOST_DIGITS:
                continue
            name = {"name": f"frame_{int(number):06}", "frame": number}
            frame = frames.setdefault(int(number), ElementTree.Element("image", name | size))
            if shape.get("outside") != "1":
                shape.set("label", track.get("label", ""))
                frame.append(shape)
    return [frames[number] for number in sorted(frames)]


def _numbers_of_points(images: Iterable[ElementTree.Element]) -> dict[str, int]:
    """Return class -> how many points its shapes of points have, the most frequent number."""
    counts: dict[str, Counter[int]] = {}
    for image in images:
        for points in image.iterfind("points"):
            counts.setdefault(points.get("label", ""), Counter())[len(_points(points))] += 1
    return {label: number.most_common(1)[0][0] for label, number in counts.items()}


def _add_image(
    found: Annotations,
    drawn: DrawnObjects,
    table: AnnotationTable,
    at: int,
    image: ElementTree.Element,
    counts: Mapping[str, int],
) -> None:
    """Add an image and its objects."""
    name = (image.get("name") or "").strip()
    size = size_of(
        *(
            int(side) if side.isdecimal() and len(side) < 10 else None
            for side in map(image.get, ("height", "width"), ("", ""))
        )
    )
    subset = image.get("subset") or ""
    split = table.part.split or SPLIT_OF_FOLDER.get(subset.lower())
    who = f"image {at} of {table.name}"
    path = table.path_of(name) if name else None
    ends: tuple[str, ...] = (f"{subset}/{name}",)
    group = None
    if image.get("frame") is not None:
        ends, group = tuple(f"{name}{ending}" for ending in _OF_FRAMES), table.name
    number = found.add_image(
        AnnotatedImage(table.row_uri(at), who, path, split, size, group=group, ends=ends)
    )
    for order, element in enumerate(image, 1):
        of_object, label = f"shape {order} of {who}", (element.get("label") or "").strip() or None
        if element.tag == "tag" and label is not None:
            drawn.say(number, label)
        elif element.tag in _NO_OBJECTS:
            found.skip(element.tag, LEFT_OUT, of_object)
        elif element.tag == "skeleton":
            drawn.add(number, label, of_object, points=_skeleton(element))
        elif element.tag == "points":
            points = _points(element)
            if len(points) != counts.get(element.get("label", "")) or not len(points):
                found.leave_out(number, OTHER_COUNT, of_object)
                continue
            named = {str(key): (y, x, 2) for key, (y, x) in enumerate(points.tolist())}
            drawn.add(number, label, of_object, points=named)
        elif element.tag in _OUTLINES:
            outline = _OUTLINES[element.tag](element)
            if outline is None:
                found.leave_out(number, BAD_NUMBERS, of_object)
            else:
                drawn.add(number, label, of_object, box=outline[0], shape=outline[1])
        else:
            found.skip(element.tag, LEFT_OUT, of_object)


def _points(element: ElementTree.Element) -> Points:
    """Return the points of a shape; none if one is no pair of numbers."""
    try:
        pairs = [
            [float(number) for number in pair.split(",")] for pair in element.get("points", "").split(";")
        ]
    except ValueError:
        pairs = []
    return points_of(pairs)


def _box(element: ElementTree.Element) -> Outline | None:
    numbers = numbers_in(element.attrib, "xtl", "ytl", "xbr", "ybr")
    turn = numbers_in({"rotation": element.get("rotation") or 0}, "rotation")
    if numbers is None or turn is None:
        return None
    left, top, right, bottom = numbers
    if turn[0]:
        return None, Shape(corners=turned_box(left, top, right - left, bottom - top, turn[0]))
    return (top, left, bottom, right), None


def _polygon(element: ElementTree.Element) -> Outline | None:
    points = _points(element)
    return (None, Shape(rings=[points])) if len(points) else None


def _ellipse(element: ElementTree.Element) -> Outline | None:
    values = element.attrib | {"rotation": element.get("rotation") or "0"}
    numbers = numbers_in(values, "cx", "cy", "rx", "ry", "rotation")
    return None if numbers is None else (None, ellipse(*numbers))


def _mask(element: ElementTree.Element) -> Outline | None:
    """Read a mask: lengths of runs, row by row, the first of pixels that are not set."""
    numbers = numbers_in(element.attrib, "left", "top", "width", "height")
    try:
        runs = np.array([int(run) for run in (element.get("rle") or "").split(",")], np.int64)
    except (ValueError, OverflowError):
        return None
    if numbers is None or not all(number >= 0 and number.is_integer() for number in numbers):
        return None
    left, top, width, height = map(int, numbers)
    if (
        width * height > MOST_MASK_PIXELS
        or (runs < 0).any()
        or (runs > MOST_MASK_PIXELS).any()
        or runs.sum() != width * height
    ):
        return None
    pixels = np.repeat(np.arange(len(runs)) % 2, runs).reshape(height, width)
    rings = [ring + np.array([top, left]) for ring in rings_of_mask(pixels)]
    return (None, Shape(rings=rings, has_holes=True)) if rings else None


_OUTLINES: dict[str, Callable[[ElementTree.Element], Outline | None]] = {
    "box": _box,
    "polygon": _polygon,
    "ellipse": _ellipse,
    "mask": _mask,
}


def _skeleton(element: ElementTree.Element) -> NamedPoints:
    """Return the points of a skeleton by their labels; those outside of the image are not annotated."""
    found: dict[str, tuple[float, float, int]] = {}
    for part in element.iterfind("points"):
        where = _points(part)
        if part.get("outside") == "1" or len(where) != 1:
            found[part.get("label", "")] = (0.0, 0.0, 0)
        else:
            y, x = where[0].tolist()
            found[part.get("label", "")] = (y, x, 1 if part.get("occluded") == "1" else 2)
    return found

"""The images, objects and captions of COCO files, brought together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from shardmill.beam_jobs.config import FeatureColumn
from shardmill.beam_jobs.reasons import BROKEN_ROW, CONTRADICTION
from shardmill.beam_jobs.sources.annotations.collecting import (
    NO_BOX,
    AnnotatedImage,
    Annotations,
    edges_of_size,
    is_text,
)
from shardmill.beam_jobs.sources.annotations.features import features_of_entries, texts_feature
from shardmill.beam_jobs.sources.annotations.shapes import Shape, keypoints_of
from shardmill.beam_jobs.sources.kinds.box_table.values import is_true
from shardmill.beam_jobs.sources.kinds.coco.documents import Document, is_caption, is_id
from shardmill.beam_jobs.sources.kinds.coco.panoptic import (
    VOID,
    SegmentsBroken,
    is_panoptic,
    read_segments,
    segment_numbers,
)
from shardmill.beam_jobs.sources.kinds.coco.run_lengths import size_of_mask
from shardmill.beam_jobs.sources.kinds.coco.shapes import name_points, polygon_of
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.errors import ConfigError

_UNKNOWN_IMAGE, _UNKNOWN_CATEGORY = "of an unknown image", "of an unknown category"
_NO_OBJECT, _NO_TEXT = "that are no objects of JSON", "that are no text"
_NO_PIXEL, _UNNAMED = "without a pixel", "whose pixels no entry names"

_Fields = Mapping[str, Any]  # key -> value of an entry


@dataclass
class _Pointed:
    """An annotation of a file of key points, which an object of another file may have too.

    Attributes:
        entry: the annotation.
        name: its class.
        who: the annotation, for people.
        is_joined: whether an object has its key points.
    """

    entry: _Fields
    name: str
    who: str
    is_joined: bool = False


@dataclass
class CocoReader:
    """Adds the images, objects and captions of COCO files.

    Attributes:
        found: they are added to it.
        asked: features that the entries of images give.
        of_path: path of an image -> its numbers.
        fields: entry of each image, with the keys of the features.
        keys: all keys of these entries.
        captions: path of an image -> its captions.
        pointed: path of an image -> id -> its annotations of this id in files of key points.
        joining: images that files of captions and of key points name.
        segments: URIs of the files of segments in the source.
    """

    found: Annotations
    asked: Mapping[str, FeatureColumn]
    of_path: dict[str, list[int]] = field(default_factory=dict)
    fields: list[_Fields] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    captions: dict[str, list[str]] = field(default_factory=dict)
    pointed: dict[str, dict[Any, list[_Pointed]]] = field(default_factory=dict)
    joining: list[tuple[AnnotatedImage, _Fields]] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)

    def add(self, document: Document) -> None:
        """Add the images of a file and their annotations."""
        name_points(self.found, document)
        numbers: dict[Any, int] = {}
        paths: dict[Any, str | None] = {}
        for image, entry in self._images(document, paths):
            if document.has_captions_alone and image.path is not None:
                self.joining.append((image, self._fields(entry)))
                continue
            number = self._add_image(image, self._fields(entry))
            if image.fault is None:
                numbers[entry["id"]] = number
        names = document.names()
        for at, entry in enumerate(document.annotations, 1):
            if is_caption(entry):
                self._add_caption(entry, document.who(at), paths)
            elif not is_panoptic(entry):
                self._add_object(entry, document.who(at), numbers, names)
        if any(map(is_panoptic, document.annotations)):
            self._add_segments(document, numbers, names)

    def add_points(self, document: Document) -> None:
        """Keep the annotations of a file of key points, for the objects of the files that are added later."""
        name_points(self.found, document)
        paths: dict[Any, str | None] = {}
        for image, entry in self._images(document, paths):
            if image.path is None:
                self._add_image(image, self._fields(entry))
            else:
                self.joining.append((image, self._fields(entry)))
        names = document.names()
        for at, entry in enumerate(document.annotations, 1):
            who = document.who(at)
            known = self._known(entry, who, paths, names)
            if known is not None and known[0] is not None:
                path, name = known
                same = self.pointed.setdefault(path, {}).setdefault(_key(entry, name), [])
                same.append(_Pointed(entry, name, who))

    def finish(self) -> None:
        """Add the images and objects that no other file has, and the features of all images.

        Raises:
            ConfigError: a feature is asked for that no image has, or that is no feature.
        """
        for image, entry in self.joining:
            numbers = self.of_path.get(str(image.path), [])
            if not numbers:
                self._add_image(image, entry)
            for number in numbers:
                self.found.images[number] = _with_split(self.found.images[number], image)
        for path, of_image in self.pointed.items():
            for one in chain.from_iterable(of_image.values()):
                for number in () if one.is_joined else self.of_path[path]:
                    self._add(number, one.entry, one.name, one.who, one.entry.get("keypoints"))
        features_of_entries(self.found, self.fields, self.asked, self.keys)
        if self.captions:
            if "captions" in self.asked:
                raise ConfigError(
                    "source.columns.features: 'captions' is the name of the captions of the annotations",
                    'give the feature another, as in features = { my_captions = "captions" }',
                )
            texts = [self.captions.get(image.path or "") for image in self.found.images]
            self.found.add_features(texts_feature("captions", texts, "caption"))

    def _images(
        self, document: Document, paths: dict[Any, str | None]
    ) -> Iterator[tuple[AnnotatedImage, Any]]:
        """Yield the images of a file and their entries, and note the path of each id."""
        for at, entry in enumerate(document.images, 1):
            image = document.image(at, paths)
            if image.fault is None:
                paths[entry["id"]] = image.path
            yield image, entry

    def _fields(self, entry: Any) -> _Fields:
        """Return what an entry of an image says of the features."""
        if not isinstance(entry, dict) or not self.asked:
            return {}
        self.keys.update(entry)
        keys = (one.column or name for name, one in self.asked.items())
        return {key: entry[key] for key in keys if key in entry}

    def _add_image(self, image: AnnotatedImage, entry: _Fields) -> int:
        number = self.found.add_image(image)
        self.fields.append(entry)
        if image.path is not None:
            self.of_path.setdefault(image.path, []).append(number)
        return number

    def _add_caption(self, entry: _Fields, who: str, paths: Mapping[Any, str | None]) -> None:
        key, text = entry.get("image_id"), entry["caption"]
        if not is_id(key) or key not in paths:
            self.found.skip("caption", _UNKNOWN_IMAGE, f"{who}: {key!r}")
        elif not is_text(text):
            self.found.skip("caption", _NO_TEXT, who)
        elif (path := paths[key]) is not None:
            self.captions.setdefault(path, []).append(text)

    def _add_object(self, entry: Any, who: str, numbers: Mapping[Any, int], names: Mapping[Any, str]) -> None:
        if (known := self._known(entry, who, numbers, names)) is None:
            return
        number, name = known
        image = self.found.images[number]
        same = self.pointed.get(image.path or "", {}).get(_key(entry, name), [])
        fitting = [one for one in same if (one.name, one.entry.get("bbox")) == (name, entry.get("bbox"))]
        points = entry.get("keypoints")
        if fitting:
            other = next((one for one in fitting if not one.is_joined), fitting[0])
            other.is_joined = True
            points = other.entry.get("keypoints") if points is None else points
        elif same and image.fault is None:
            words = f"{who} and {same[0].who} have the same id, and another class or box"
            self.found.images[number] = replace(image, fault=words, reason=CONTRADICTION)
        self._add(number, entry, name, who, points)

    def _known(
        self, entry: Any, who: str, images: Mapping[Any, Any], names: Mapping[Any, str]
    ) -> tuple[Any, str] | None:
        """Return the image of an annotation and its class; None, counted, if one is not known."""
        if not isinstance(entry, dict):
            self.found.leave_out(None, _NO_OBJECT, who)
            return None
        key, category = entry.get("image_id"), entry.get("category_id")
        if not is_id(key) or key not in images:
            self.found.leave_out(None, _UNKNOWN_IMAGE, f"{who}: {key!r}")
            return None
        if not is_id(category) or category not in names:
            number = images[key] if isinstance(images[key], int) else None
            self.found.leave_out(number, _UNKNOWN_CATEGORY, f"{who}: {category!r}")
            return None
        return images[key], names[category]

    def _add(self, number: int, entry: _Fields, name: str, who: str, points: Any) -> None:
        """Add an object of an image; ``points`` are its key points as JSON has them, or None."""
        box = edges_of_size(entry.get("bbox"))
        if box is None and entry.get("bbox") not in (None, []):
            self.found.leave_out(number, NO_BOX, who)
            return
        image, segmentation = self.found.images[number], entry.get("segmentation")
        if image.size is None and (size := size_of_mask(segmentation)) is not None:
            self.found.images[number] = image = replace(image, size=size)
        shape = polygon_of(self.found, segmentation, image.size, who)
        if points is not None:
            places, visibility = keypoints_of(points)
            shape = replace(shape or Shape(), keypoints=places, visibility=visibility)
        is_crowd = is_true(entry.get("iscrowd"))
        self.found.add_object(number, box, name, is_crowd=is_crowd, shape=shape, who=who)

    def _add_segments(self, document: Document, numbers: Mapping[Any, int], names: Mapping[Any, str]) -> None:
        """Add the segments of a panoptic file."""
        for at, entry, file, content in read_segments(document.table, document.annotations):
            self.segments += [file] if document.table.table.uri is not None else []
            who, key = document.who(at), entry.get("image_id")
            if not is_id(key) or key not in numbers:
                self.found.skip("segment list", _UNKNOWN_IMAGE, f"{who}: {key!r}")
                continue
            number = numbers[key]
            image = self.found.images[number]
            try:
                pixels = segment_numbers(content, image.size)
            except SegmentsBroken as error:
                image = replace(image, fault=f"its segments: {error}", reason=BROKEN_ROW)
                self.found.images[number] = image
                continue
            self.found.images[number] = replace(image, size=pixels.shape)
            here = set(np.unique(pixels).tolist())
            for segment in entry["segments_info"]:
                one = {**segment, "image_id": key} if isinstance(segment, dict) else None
                known = self._known(one, who, numbers, names)
                identity = one.get("id") if one is not None else None
                is_here = is_id(identity) and identity in here
                if known is not None and is_here:
                    shape = Shape(rings_of_mask(pixels == identity), has_holes=True)
                    is_crowd, box = is_true(segment.get("iscrowd")), edges_of_size(segment.get("bbox"))
                    self.found.add_object(number, box, known[1], is_crowd=is_crowd, shape=shape, who=who)
                elif known is not None:
                    self.found.leave_out(number, _NO_PIXEL, f"{who}: {identity!r}")
                here -= {identity} if is_here else set()
            for identity in sorted(here - {VOID}):
                self.found.leave_out(number, _UNNAMED, f"{who}: {identity}")


def _key(entry: _Fields, name: str) -> Any:
    """Return what tells an object of an image from others: its id, or else class and box."""
    key = entry.get("id")
    return key if is_id(key) else (name, str(entry.get("bbox")))


def _with_split(image: AnnotatedImage, other: AnnotatedImage) -> AnnotatedImage:
    """Return an image with the split that another file gives it, or with a fault if they contradict."""
    if image.fault is not None or other.split in (None, image.split):
        return image
    if image.split is None:
        return replace(image, split=other.split)
    words = f"its split is {image.split}, and {other.split} in {other.who}"
    return replace(image, fault=words, reason=CONTRADICTION)

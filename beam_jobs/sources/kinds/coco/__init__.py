"""Objects in images, and captions, as the JSON files of COCO describe them: ``instances_train.json``.

The format: https://cocodataset.org/#format-data. Of an annotation its box, its category and ``iscrowd`` are
read. An image without annotations is an image without objects. Several files may tell of the same images:
captions join the images of other files by their paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardmill.beam_jobs.config import FeatureColumn, PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import CONTRADICTION
from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, Annotations, box_of, is_text
from shardmill.beam_jobs.sources.annotations.features import features_of_entries, texts_feature
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.box_table.values import is_true
from shardmill.beam_jobs.sources.kinds.coco.documents import Document, is_caption, is_id, read_document
from shardmill.beam_jobs.sources.kinds.coco.recognising import recognise_coco
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import ConfigError

_UNKNOWN_IMAGE, _UNKNOWN_CATEGORY = "of an unknown image", "of an unknown category"
_NO_OBJECT, _NO_TEXT = "that are no objects of JSON", "that are no text"


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that COCO files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or none of its images is there.
        ConfigError: an annotation file is not of this format.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        reader = _Reader(found, config.source.columns.further)
        for table in tables:
            reader.add(read_document(table))
        reader.finish()

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise COCO files."""
    return recognise_coco(glance)


@dataclass
class _Reader:
    """Adds the images, objects and captions of COCO files.

    Attributes:
        found: they are added to it.
        asked: features that the entries of images give.
        of_path: path of an image -> its numbers.
        fields: entry of each image, with the keys of the features.
        keys: all keys of these entries.
        captions: path of an image -> its captions.
        captioned: images that files of captions name.
    """

    found: Annotations
    asked: Mapping[str, FeatureColumn]
    of_path: dict[str, list[int]] = field(default_factory=dict)
    fields: list[Mapping[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    captions: dict[str, list[str]] = field(default_factory=dict)
    captioned: list[tuple[AnnotatedImage, Mapping[str, Any]]] = field(default_factory=list)

    def add(self, document: Document) -> None:
        """Add the images of a file and their annotations."""
        numbers: dict[Any, int] = {}
        paths: dict[Any, str | None] = {}
        for at, entry in enumerate(document.images, 1):
            image = document.image(at, paths)
            if image.fault is None:
                paths[entry["id"]] = image.path
            if document.has_captions_alone and image.path is not None:
                self.captioned.append((image, self._fields(entry)))
                continue
            number = self._add_image(image, self._fields(entry))
            if image.fault is None:
                numbers[entry["id"]] = number
        names = document.names()
        for at, entry in enumerate(document.annotations, 1):
            if is_caption(entry):
                self._add_caption(entry, document.who(at), paths)
            else:
                self._add_object(entry, document.who(at), numbers, names)

    def finish(self) -> None:
        """Add the images that captions alone name, and the features of all images.

        Raises:
            ConfigError: a feature is asked for that no image has, or that is no feature.
        """
        for image, entry in self.captioned:
            numbers = self.of_path.get(str(image.path), [])
            if not numbers:
                self._add_image(image, entry)
            for number in numbers:
                self.found.images[number] = _with_split(self.found.images[number], image)
        features_of_entries(self.found, self.fields, self.asked, self.keys)
        if self.captions:
            if "captions" in self.asked:
                raise ConfigError(
                    "source.columns.features: 'captions' is the name of the captions of the annotations",
                    'give the feature another, as in features = { my_captions = "captions" }',
                )
            texts = [self.captions.get(image.path or "") for image in self.found.images]
            self.found.add_features(texts_feature("captions", texts, "caption"))

    def _fields(self, entry: Any) -> Mapping[str, Any]:
        """Return what an entry of an image says of the features."""
        if not isinstance(entry, dict) or not self.asked:
            return {}
        self.keys.update(entry)
        keys = (one.column or name for name, one in self.asked.items())
        return {key: entry[key] for key in keys if key in entry}

    def _add_image(self, image: AnnotatedImage, entry: Mapping[str, Any]) -> int:
        number = self.found.add_image(image)
        self.fields.append(entry)
        if image.path is not None:
            self.of_path.setdefault(image.path, []).append(number)
        return number

    def _add_caption(self, entry: Mapping[str, Any], who: str, paths: Mapping[Any, str | None]) -> None:
        key, text = entry.get("image_id"), entry["caption"]
        if not is_id(key) or key not in paths:
            self.found.skip("caption", _UNKNOWN_IMAGE, f"{who}: {key!r}")
        elif not is_text(text):
            self.found.skip("caption", _NO_TEXT, who)
        elif (path := paths[key]) is not None:
            self.captions.setdefault(path, []).append(text)

    def _add_object(self, entry: Any, who: str, numbers: Mapping[Any, int], names: Mapping[Any, str]) -> None:
        if not isinstance(entry, dict):
            self.found.leave_out(None, _NO_OBJECT, who)
            return
        key = entry.get("image_id")
        number = numbers.get(key) if is_id(key) else None
        if number is None:
            self.found.leave_out(None, _UNKNOWN_IMAGE, f"{who}: {key!r}")
            return
        category = entry.get("category_id")
        name = names.get(category) if is_id(category) else None
        if name is None:
            self.found.leave_out(number, _UNKNOWN_CATEGORY, f"{who}: {category!r}")
            return
        self.found.add_object(number, _box(entry.get("bbox")), name, is_crowd=is_true(entry.get("iscrowd")))


def _with_split(image: AnnotatedImage, other: AnnotatedImage) -> AnnotatedImage:
    """Return an image with the split that another file gives it, or with a fault if they contradict."""
    if image.fault is not None or other.split in (None, image.split):
        return image
    if image.split is None:
        return replace(image, split=other.split)
    words = f"its split is {image.split}, and {other.split} in {other.who}"
    return replace(image, fault=words, reason=CONTRADICTION)


def _box(values: object) -> tuple[float, float, float, float] | None:
    """Return x, y, width, height as edges."""
    box = box_of(values)
    if box is None:
        return None
    left, top, width, height = box
    return top, left, top + height, left + width

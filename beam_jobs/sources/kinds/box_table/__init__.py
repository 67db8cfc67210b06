"""Objects in images, as tables describe them: a row for each object, as Open Images has, or for each image.

A box stands in four columns, or in one as a list. If that column holds lists of boxes, each row is an image
with all of its objects. Otherwise the rows of one image belong together, and a row with neither box nor class
names an image without objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import CONTRADICTION, UNKNOWN_SPLIT
from shardmill.beam_jobs.sources.annotations.collecting import NO_NAME, AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.box_table.masks import MaskFiles
from shardmill.beam_jobs.sources.kinds.box_table.recognising import recognise_box_table
from shardmill.beam_jobs.sources.kinds.box_table.rows import (
    SETTING,
    BoxRow,
    FeaturesOfImages,
    named_row,
    read_box_table,
    read_names_of_images,
    read_names_of_labels,
)
from shardmill.beam_jobs.sources.kinds.box_table.values import (
    edges_of,
    fault_of,
    is_empty,
    is_true,
    list_of,
    text_of,
)
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import BOX_NUMBERS
from shardmill.infra.readable import counted

_MOST_RELATIVE = 2.0  # edges of relative boxes that reach over their image are not beyond


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that tables name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or table, or none of its images is there.
        ConfigError: a table cannot be read, lacks a column, or has boxes of the other unit.
    """
    objects = config.source.objects
    names, others = {}, []
    if objects.table.names_file is not None:
        others += find_files_named(folder, objects.table.names_file, f"{SETTING}.names_file")
        names = {label: name for table in others for label, name in read_names_of_labels(table).items()}
    lists = [
        AnnotationTable(table, part)
        for part in objects.annotations
        if part.image_list is not None
        for table in find_files_named(folder, part.image_list, "source.objects.annotations.image_list")
    ]
    masks = MaskFiles(folder, config.filter.ignore)
    reader = _Reader(config.source, names, FeaturesOfImages(config.source.columns.further), masks)
    others += [listed.table for listed in lists]
    beside = _uris(others)

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        for table in tables:
            reader.add_file(found, table)
        for listed in lists:
            reader.add_listed(found, listed)
        reader.features.settle(found)
        reader.warn(found)
        beside.extend(masks.used)

    return list_annotated(folder, config, add_files, beside)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise tables by the names of the columns of boxes."""
    return recognise_box_table(glance, settings.objects.table)


@dataclass
class _Reader:
    """Adds the images and objects of tables.

    Attributes:
        settings: settings of the source.
        names: label -> name of its class.
        features: that the rows give the images.
        masks: files of masks of objects.
        known: path of an image -> its number, if its objects stand in several rows.
        nameless: labels without a name.
    """

    settings: SourceConfig
    names: Mapping[str, str]
    features: FeaturesOfImages
    masks: MaskFiles
    known: dict[str, int] = field(default_factory=dict)
    nameless: dict[str, None] = field(default_factory=dict)

    def add_file(self, found: Annotations, table: AnnotationTable) -> None:
        """Add the images and objects of a table.

        Raises:
            ConfigError: it cannot be read, its boxes are of another unit, or a column can be no feature.
        """
        rows = read_box_table(table.table, self.settings)
        add: Callable[[Annotations, AnnotationTable, BoxRow], int] = self._add_object
        if len(self.settings.objects.table.box_columns) == 1 and any(_are_boxes(row.box) for row in rows):
            add = self._add_image_with_objects
        first = len(found.boxes)
        images = [add(found, table, row) for row in rows]
        self.features.add(table.name, rows, images)
        self._check_units(table, found.boxes[first:])

    def add_listed(self, found: Annotations, table: AnnotationTable) -> None:
        """Add the images of a list that no row names."""
        bare = {_without_ending(path) for path in self.known}
        for number, name in read_names_of_images(table.table, self.settings):
            path = table.path_of(name)
            if path in self.known or _without_ending(path) in self.known or path in bare:
                continue
            image = AnnotatedImage(*named_row(table.name, number), path, table.part.split)
            self.known[path] = found.add_image(image)

    def warn(self, found: Annotations) -> None:
        """Warn of labels that the file of names lacks, and say what to do about objects that are left out."""
        if self.nameless:
            labels = f"{counted(len(self.nameless), 'label')}, such as {next(iter(self.nameless))!r}"
            found.warnings.append(f"{SETTING}.names_file has no name for {labels}")
        found.remedy = f"correct these rows; if they are many, look at {SETTING}.box_format and box_columns"

    def _add_object(self, found: Annotations, table: AnnotationTable, row: BoxRow) -> int:
        """Add a row that is an object, and its image if it is the first of it; returns the image's number."""
        image = self._image(table, row)
        if image.path is None:
            return found.add_image(image)
        number = self.known.get(image.path)
        if number is None:
            number = self.known[image.path] = found.add_image(image)
        else:
            found.images[number] = _agreed(found.images[number], image)
        values = row.box if isinstance(row.box, list) else [row.box]
        if not (all(map(is_empty, values)) and is_empty(row.label)):
            is_crowd = is_true(row.is_crowd)
            self._add(found, number, image, row.box, row.label, is_crowd=is_crowd, mask=row.mask)
        return number

    def _add_image_with_objects(self, found: Annotations, table: AnnotationTable, row: BoxRow) -> int:
        """Add a row that is an image with all of its objects; returns its number."""
        image = self._image(table, row)
        boxes, labels, crowds = (
            [] if is_empty(values) else list_of(values) for values in (row.box, row.label, row.is_crowd)
        )
        if image.fault is None and not (isinstance(boxes, list) and isinstance(labels, list)):
            image = replace(image, fault="its boxes or its classes are no list")
        elif image.fault is None and len(boxes) != len(labels):
            image = replace(image, fault=f"it has {len(boxes):,} boxes and {len(labels):,} classes")
        elif image.fault is None and crowds and len(crowds) != len(boxes):
            image = replace(image, fault=f"it has {len(boxes):,} boxes and {len(crowds):,} values of crowds")
        number = found.add_image(image)
        if image.path is not None:
            self.known.setdefault(image.path, number)
        if image.fault is None:
            for box, label, is_crowd in zip(boxes, labels, crowds or [False] * len(boxes), strict=True):
                self._add(found, number, image, box, label, is_crowd=is_true(is_crowd))
        return number

    def _image(self, table: AnnotationTable, row: BoxRow) -> AnnotatedImage:
        """Return the image that a row names."""
        path = table.path_of(row.path) if row.path is not None else None
        split: str | None = table.part.split
        fault: dict[str, Any] = {"fault": row.fault}
        if row.split is not None:
            split = SPLIT_OF_FOLDER.get(row.split.lower())
            if split is None and row.fault is None:
                fault = {"fault": f"its split is {row.split}", "reason": UNKNOWN_SPLIT}
        return AnnotatedImage(
            *named_row(table.name, row.number), path, split, row.size, **fault, group=row.group
        )

    def _add(
        self,
        found: Annotations,
        number: int,
        image: AnnotatedImage,
        values: Any,
        label: Any,
        *,
        is_crowd: bool,
        mask: str | None = None,
    ) -> None:
        """Add an object, or count and name it if it is no good; ``image`` is that of its own row."""
        box, name = edges_of(values, self.settings.objects.table.box_format), text_of(label)
        size = (1, 1) if self.settings.objects.table.units == "relative" else found.images[number].size
        if (why := fault_of(box, size) or (NO_NAME if name is None else None)) is not None:
            found.leave_out(number, why, image.who)
            return
        if name is not None and self.names and name not in self.names:
            self.nameless[name] = None
        shape = self.masks.shape_of(found, mask, size, image.who) if mask is not None else None
        name = self.names.get(name or "", name)
        found.add_object(number, box, name, is_crowd=is_crowd, shape=shape, who=image.who)

    def _check_units(self, table: AnnotationTable, boxes: array[float]) -> None:
        """Refuse boxes that are surely of the other unit.

        Raises:
            ConfigError: they are.
        """
        largest = np.array(boxes).reshape(-1, BOX_NUMBERS).max(1)
        unit = self.settings.objects.table.units
        if unit == "pixels" and len(largest) and largest.max() <= 1:
            raise ConfigError(
                f"all boxes of {table.name} lie within 0 and 1, and would be smaller than a pixel",
                f"they seem to be relative: --set {SETTING}.units=relative",
            )
        num_large = int(np.count_nonzero(largest > _MOST_RELATIVE))
        if unit == "relative" and 2 * num_large > len(largest):
            raise ConfigError(
                f"{num_large:,} of {len(largest):,} boxes of {table.name} reach beyond {_MOST_RELATIVE:g}",
                f"they seem to be in pixels: --set {SETTING}.units=pixels",
            )


def _agreed(image: AnnotatedImage, later: AnnotatedImage) -> AnnotatedImage:
    """Return an image, with a fault if a later row says something else of it."""
    if image.fault is not None:
        return image
    if later.fault is not None:
        return replace(image, fault=f"{later.fault}, in {later.who}", reason=later.reason)
    for what, one, other in (
        ("split", image.split, later.split),
        ("group", image.group, later.group),
        ("size", image.size or later.size, later.size or image.size),
    ):
        if one != other:
            words = f"its {what} is {one or 'unset'}, and {other or 'unset'} in {later.who}"
            return replace(image, fault=words, reason=CONTRADICTION)
    return image


def _are_boxes(value: Any) -> bool:
    return isinstance(value, list) and (not value or isinstance(value[0], list | tuple))


def _without_ending(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, _ = name.rpartition(".")
    return f"{folder}{slash}{stem if dot else name}"


def _uris(tables: list[Table]) -> list[str]:
    return [table.uri for table in tables if table.uri is not None]

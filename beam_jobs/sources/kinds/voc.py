"""Objects in images, as the XML files of Pascal VOC describe them: one file an image.

The format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html. Of an object its box, its
name and ``difficult`` are read. Its image is the one that is named like the XML file, or else the one that
``filename`` names. The edges of a box are numbers of pixels, counted from 1, which belong to it. Features are
further elements by their paths: ``source/database``, or ``object/truncated``, a list with a value an object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    READINGS,
    AnnotatedImage,
    Annotations,
    Box,
    beginning_with,
    box_of,
    different_splits,
    folder_of_image,
    folder_of_stem,
    size_of,
)
from shardmill.beam_jobs.sources.annotations.features import features_of_entries
from shardmill.beam_jobs.sources.annotations.image_sets import ImageSets, place_of_lists, read_image_sets
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import MOST_BYTES, AnnotationTable, read_together
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.box_table.values import is_true
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.infra.errors import ConfigError

_VOC = re.compile(rb"\A\s*(<\?xml[^>]*>\s*)?<annotation\b")
_VOC_NAME = re.compile(rb"<filename>\s*([^<]+?)\s*</filename>")
_IMAGE_SETS = ("ImageSets/Main", "ImageSets/Segmentation")
_OF_MASKS = ("SegmentationClass", "SegmentationObject")  # folders of masks beside the annotations
_ELEMENT = re.compile(r"[\w.-]+(/[\w.-]+)*")


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that XML files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: a feature names no element of the files.
    """
    sets = read_image_sets(folder, config.source.objects.image_sets)
    asked = config.source.columns.further
    keys = [one.column or name for name, one in asked.items()]
    if (wrong := next((key for key in keys if not _ELEMENT.fullmatch(key)), None)) is not None:
        raise ConfigError(
            f"source.columns.features: {wrong!r} is no path of elements", "write it as object/truncated"
        )
    names: list[str] = []
    entries: list[dict[str, Any]] = []

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        for table, text in read_together(AnnotationTable.content, tables):
            names.append(_stem(table))
            root = add_file(found, table, text, sets)
            entries.append({} if root is None else _elements(root, keys))
        features_of_entries(found, entries, asked)

    others = [file.uri for file in sets.files if file.uri is not None]
    listing = list_annotated(folder, config, add_files, others)
    return replace(listing, warnings=[*listing.warnings, *sets.warnings(names)])


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the folder of XML files that describe images as Pascal VOC does; None if there is none."""
    found = beginning_with(_VOC, glance, ".xml")
    if not found or not glance.images:
        return None
    uri = next(iter(found))
    parts: dict[str, dict[str, str | None]] = {}
    for file, head in found.items():
        folder = file.rpartition("/")[0]
        pattern = f"{folder}/*.xml" if folder else "*.xml"
        images = folder_of_image(_VOC_NAME.search(head), file, glance)
        images = images or folder_of_stem(file.rpartition("/")[2].rpartition(".")[0], file, glance)
        parts.setdefault(folder, {"file": pattern, "images": images})
    why = f"{uri} describes an image as Pascal VOC does"
    folders = {str(part["images"]) for part in parts.values()}
    above = [folder.rpartition("/")[0] for folder in parts]
    folders |= {f"{place}/{name}".lstrip("/") for place in above for name in _OF_MASKS}
    places = (place_of_lists(glance.files, name) for name in _IMAGE_SETS)
    sets = next((place for place in places if place is not None), None)
    splits = different_splits(list(parts))
    are_listed = sets is not None and all(_has_lists(glance, place) for place in above)
    if len(parts) > 1 and splits is not None:
        for part, split in zip(parts.values(), splits, strict=True):
            part["split"] = split
        why += "; the folders of such files give the splits"
    elif len(parts) > 1:
        why += f", and so do files in {quoted(list(parts)[1:])}"
        if not are_listed:
            some = list(parts.values())[:READINGS]
            readings = [cli_for("voc", {"objects": {"annotations": [part]}}) for part in some]
            return Recognised(why, image_folders=folders, readings=readings)
    objects: dict[str, Any] = {"annotations": tuple(parts.values())}
    if sets is not None:
        why += f"; the lists in {sets} give the splits"
        objects["image_sets"] = sets
    return Recognised(why, {"objects": objects}, image_folders=folders)


def _has_lists(glance: Glance, place: str) -> bool:
    return any(uri.startswith(f"{place}/ImageSets/".lstrip("/")) for uri in glance.files)


def _stem(table: AnnotationTable) -> str:
    """Return the name of the file without its ending, which is that of its image."""
    return table.name.rpartition("/")[2].rpartition(".")[0]


def _elements(root: ElementTree.Element, paths: Sequence[str]) -> dict[str, Any]:
    """Return path -> text of an element that is there, or a list if it is within the objects."""
    found: dict[str, Any] = {}
    for path in paths:
        if not path.startswith("object/"):
            found[path] = _text(root.find(path))
            continue
        texts: list[str | None] = []
        for entry in root.iterfind("object"):
            texts += [_text(element) for element in entry.findall(path.removeprefix("object/"))] or [None]
        found[path] = texts if any(texts) or not texts else None
    return {path: value for path, value in found.items() if value is not None}


def _text(element: ElementTree.Element | None) -> str | None:
    return None if element is None else (element.text or "").strip() or None


def add_file(
    found: Annotations, table: AnnotationTable, text: bytes | str, sets: ImageSets
) -> ElementTree.Element | None:
    """Add the image and the objects of an XML file; returns its root, or None if it is no good.

    Args:
        found: they are added to it.
        table: the file.
        text: its content, or why it cannot be read.
        sets: lists of images that give splits.
    """
    stem = _stem(table)
    split = sets.split_of(stem, table.part.split)
    image = AnnotatedImage(table.row_uri(1), f"the image of {table.name}", None, split)
    root = _root(text)
    if (contradiction := sets.contradiction_of(stem)) is not None:
        image, root = replace(image, split=None), contradiction
    if isinstance(root, str):
        found.add_image(replace(image, fault=root))
        return None
    name = (root.findtext("filename") or "").strip() or stem
    size = size_of(_whole(root.findtext("size/height")), _whole(root.findtext("size/width")))
    image = replace(image, path=table.path_of(name), size=size, namesake=table.path_of(stem))
    number = found.add_image(image)
    for entry in root.iterfind("object"):
        kind = (entry.findtext("name") or "").strip() or None
        is_difficult = is_true(entry.findtext("difficult"))
        found.add_object(number, _box(entry.find("bndbox")), kind, is_crowd=is_difficult)
    return root


def _root(text: bytes | str) -> ElementTree.Element | str:
    """Return the root of an XML file, or why it is no annotation of Pascal VOC."""
    if isinstance(text, str):
        return text
    try:
        if len(text) > MOST_BYTES:
            raise ElementTree.ParseError(f"more than {MOST_BYTES:,} bytes")
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        return f"its file is no XML: {error}"
    if root.tag != "annotation":
        return f"its file is no annotation of Pascal VOC: it begins with <{root.tag}>"
    return root


def _box(element: ElementTree.Element | None) -> Box | None:
    """Return the edges of a box, from the numbers of its first and last pixels."""
    if element is None:
        return None
    found = [_number(element.findtext(name)) for name in ("ymin", "xmin", "ymax", "xmax")]
    box = box_of(found)
    return None if box is None else (box[0] - 1, box[1] - 1, box[2], box[3])


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and number.is_integer() else None
